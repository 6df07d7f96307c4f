use std::fmt::{self, Write as _};

use denv_schema::{Name, StageId, UnitId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// A run of a parity suite, with each case and every difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub stage: StageId,
    /// The stage's deployment that was gated.
    pub deployment: u64,
    pub when: When,
    /// Counts a gate's runs from 1: a run that says nothing is made again.
    pub attempt: u32,
    pub release: Name,
    pub suite: Name,
    /// The unit that was asked, and where it ran.
    pub unit: UnitId,
    pub host: Name,
    /// Whose answers were held to be right, in words, for cases that do not say so themselves.
    pub reference: Option<String>,
    pub begun: Timestamp,
    pub ended: Timestamp,
    pub outcome: Outcome,
    /// With figures, for people.
    pub reason: String,
    /// In the suite's order.
    pub cases: Vec<CaseReport>,
}

/// When a suite is run: before the first new unit takes traffic, or after the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    Before,
    After,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaseReport {
    pub name: Name,
    pub verdict: CaseVerdict,
    /// The end of what was asked.
    pub prompt: String,
    /// What the answer was compared with, and how.
    pub expected: Option<String>,
    pub comparison: String,
    pub answered: Option<String>,
    pub differences: Vec<Difference>,
    /// Why it could not be judged, or what was wrong beside the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub took_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CaseVerdict {
    Passed,
    Failed,
    /// A host, an engine that ended, or the reference: nothing is said of the release.
    Inconclusive,
    /// There is nothing to compare with, and never will be: the stage had no release before.
    Skipped,
}

/// One place in which an answer is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Where: a place in a text, a JSON pointer, a call.
    pub at: String,
    pub expected: String,
    pub answered: String,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            When::Before => "before",
            When::After => "after",
        })
    }
}

impl CaseVerdict {
    pub fn as_str(self) -> &'static str {
        match self {
            CaseVerdict::Passed => "passed",
            CaseVerdict::Failed => "failed",
            CaseVerdict::Inconclusive => "inconclusive",
            CaseVerdict::Skipped => "skipped",
        }
    }
}

impl Report {
    /// How many cases have this verdict.
    pub fn count(&self, verdict: CaseVerdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// In the order in which people want to read: what failed first.
    pub(super) fn by_weight(&self) -> Vec<&CaseReport> {
        let weight = |case: &&CaseReport| match case.verdict {
            CaseVerdict::Failed => 0,
            CaseVerdict::Inconclusive => 1,
            CaseVerdict::Skipped => 2,
            CaseVerdict::Passed => 3,
        };
        let mut cases: Vec<_> = self.cases.iter().collect();
        cases.sort_by_key(weight);
        cases
    }

    /// Its head: what was run, and what came of it, as label and text.
    pub fn head(&self) -> Vec<(&'static str, String)> {
        let mut head = vec![
            ("Stage", self.stage.to_string()),
            ("Deployment", format!("{}, {} it takes traffic", self.deployment, self.when)),
            ("Release", self.release.to_string()),
            ("Suite", self.suite.to_string()),
            ("Unit", format!("{} on {}", self.unit, self.host)),
        ];
        if self.when == When::After {
            head[1].1 = format!("{}, after its last batch", self.deployment);
        }
        if let Some(reference) = &self.reference {
            head.push(("Reference", reference.clone()));
        }
        head.push(("Run", format!("{} at {:.0}", self.attempt, self.ended)));
        head.push(("Outcome", format!("{}: {}", self.outcome, self.reason)));
        head
    }

    /// For a terminal: the head, then the cases that did not pass with every difference, then the others' names.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for (label, value) in self.head() {
            let _ = writeln!(text, "{:<12} {value}", format!("{label}:"));
        }
        let (passed, others): (Vec<_>, Vec<_>) =
            self.by_weight().into_iter().partition(|case| case.verdict == CaseVerdict::Passed);
        for case in others {
            let _ = writeln!(text, "\n{:<12} {}", case.verdict.as_str(), case.name);
            if let Some(reason) = &case.reason {
                let _ = writeln!(text, "  {reason}");
            }
            if !case.differences.is_empty() {
                let _ = writeln!(text, "  compared: {}", case.comparison);
            }
            for difference in &case.differences {
                let _ = writeln!(text, "  at {}", difference.at);
                indent(&mut text, "    - ", &difference.expected);
                indent(&mut text, "    + ", &difference.answered);
            }
        }
        for (i, case) in passed.into_iter().enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{gap}{:<12} {} ({})", case.verdict.as_str(), case.name, case.comparison);
        }
        text
    }
}

fn indent(text: &mut String, sign: &str, lines: &str) {
    if lines.is_empty() {
        let _ = writeln!(text, "{sign}(nothing)");
    }
    for line in lines.lines() {
        let _ = writeln!(text, "{sign}{line}");
    }
}
