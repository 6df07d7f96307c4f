use std::collections::BTreeMap;

use denv_schema::Name;
use denv_schema::manifest::{Comparison, Expectation, ParityCase, ParitySuiteSpec};
use denv_schema::wire::{Answer, CaseAnswer, Said};
use serde_json::Value;

use super::compare::{agreement, answer_words, as_expected, calls, json_text, texts, words};
use super::report::{CaseReport, CaseVerdict, Difference};
use super::text_difference::cut;
use crate::Outcome;

/// Whose answers are the right ones, for cases that do not say so themselves.
#[derive(Clone, Copy, Debug)]
pub enum Reference<'a> {
    /// The reference's answers.
    Answers(&'a BTreeMap<Name, CaseAnswer>),
    /// There is nothing to compare with, and never will be: the stage had no release before.
    Nothing,
}

/// What comes of a suite, case by case.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub outcome: Outcome,
    /// With figures, for people.
    pub reason: String,
    pub cases: Vec<CaseReport>,
}

const LONGEST_PROMPT: usize = 400;
const LONGEST_ANSWER: usize = 16 << 10;

/// Judges a release's answers to a suite's prompts.
pub fn judge(
    suite: &ParitySuiteSpec,
    answers: &BTreeMap<Name, CaseAnswer>,
    reference: Reference<'_>,
) -> Verdict {
    let one = |case: &ParityCase| judge_case(suite, case, answers.get(&case.name), reference);
    let cases: Vec<CaseReport> = suite.cases.iter().map(one).collect();
    let count = |verdict| cases.iter().filter(|case| case.verdict == verdict).count() as u64;
    let (passed, failed) = (count(CaseVerdict::Passed), count(CaseVerdict::Failed));
    let (unknown, skipped) = (count(CaseVerdict::Inconclusive), count(CaseVerdict::Skipped));
    let judged = passed + failed + unknown;
    let needed = (judged * u64::from(suite.passing.thousandths_of_a_percent())).div_ceil(100_000);
    let outcome = if passed >= needed {
        Outcome::Pass
    } else if passed + unknown >= needed {
        Outcome::Inconclusive
    } else {
        Outcome::Fail
    };
    Verdict { outcome, reason: reason(&cases, [passed, judged, needed, unknown, skipped], outcome), cases }
}

fn reason(cases: &[CaseReport], counts: [u64; 5], outcome: Outcome) -> String {
    let [passed, judged, needed, unknown, skipped] = counts;
    if judged == 0 {
        return "there is no release before to compare with".to_owned();
    }
    let mut said = format!("{passed} of {judged} cases passed, {needed} must");
    if skipped > 0 {
        said.push_str(&format!("; {skipped} had nothing to compare with"));
    }
    let worst = match outcome {
        Outcome::Pass => None,
        Outcome::Fail => Some(CaseVerdict::Failed),
        Outcome::Inconclusive => Some(CaseVerdict::Inconclusive),
    };
    let first = cases.iter().find(|case| Some(case.verdict) == worst);
    if outcome == Outcome::Inconclusive {
        said.push_str(&format!("; of {unknown} nothing can be said"));
    }
    if let Some(case) = first {
        let why = case.reason.clone().or_else(|| {
            let Difference { at, expected, answered } = case.differences.first()?;
            let quoted = |text: &str| {
                if text.is_empty() { "nothing".to_owned() } else { format!("`{}`", cut(text, 60)) }
            };
            Some(format!("at {at}, {} instead of {}", quoted(answered), quoted(expected)))
        });
        said.push_str(&format!("; `{}`: {}", case.name, why.unwrap_or_default()));
    }
    said
}

/// What an answer is compared with.
enum Expected<'a> {
    Text(&'a str),
    Json(Value),
    Calls(&'a [denv_schema::manifest::ExpectedCall]),
    Reference(&'a Answer),
}

fn judge_case(
    suite: &ParitySuiteSpec,
    case: &ParityCase,
    answer: Option<&CaseAnswer>,
    reference: Reference<'_>,
) -> CaseReport {
    let comparison = case.comparison.as_ref().unwrap_or(&suite.comparison);
    let mut report = CaseReport {
        name: case.name.clone(),
        verdict: CaseVerdict::Inconclusive,
        prompt: case.messages.last().map_or_else(String::new, |it| cut(&it.content, LONGEST_PROMPT)),
        expected: None,
        comparison: words(comparison),
        answered: None,
        differences: Vec::new(),
        reason: None,
        took_ms: answer.map(|answer| answer.took_ms),
    };
    let expected = match expected(case, reference) {
        Ok(expected) => expected,
        Err((verdict, reason)) => {
            (report.verdict, report.reason) = (verdict, Some(reason));
            report.answered = answer.and_then(|answer| match &answer.said {
                Said::Answer(answer) => Some(cut(&answer_words(answer), LONGEST_ANSWER)),
                Said::Error { .. } | Said::Unreadable { .. } | Said::TimedOut | Said::Away { .. } => None,
            });
            return report;
        }
    };
    report.expected = Some(cut(&expected.words(), LONGEST_ANSWER));
    if let Some(kind) = expected.kind() {
        report.comparison = kind.to_owned();
    }
    match answer.map(|answer| &answer.said) {
        Some(Said::Answer(answer)) => {
            report.answered = Some(cut(&answer_words(answer), LONGEST_ANSWER));
            report.differences = expected.differences(comparison, answer);
            let is_right = report.differences.is_empty();
            report.verdict = if is_right { CaseVerdict::Passed } else { CaseVerdict::Failed };
            let is_cut = answer.finish_reason.as_deref() == Some("length")
                && expected.words().starts_with(answer_words(answer).trim_end());
            if !is_right && is_cut {
                report.reason = Some(format!("the answer was cut at {} tokens", case.max_tokens));
            } else if !is_right {
                report.reason = expected.agreement(comparison, answer);
            }
        }
        Some(Said::Error { status, message }) => {
            (report.verdict, report.reason) =
                (CaseVerdict::Failed, Some(format!("the engine answered {status}: {message}")));
        }
        Some(Said::Unreadable { reason }) => {
            (report.verdict, report.reason) =
                (CaseVerdict::Failed, Some(format!("what the engine answered is no answer: {reason}")));
        }
        Some(Said::TimedOut) => {
            let reason = format!("the engine lives and took longer than {}", suite.timeout);
            (report.verdict, report.reason) = (CaseVerdict::Failed, Some(reason));
        }
        Some(Said::Away { reason }) => report.reason = Some(format!("the engine was away: {reason}")),
        None => report.reason = Some("it was not asked".to_owned()),
    }
    report
}

fn expected<'a>(
    case: &'a ParityCase,
    reference: Reference<'a>,
) -> Result<Expected<'a>, (CaseVerdict, String)> {
    if let Some(Expectation { text, json, tool_calls }) = &case.expect {
        let json = json.as_ref().map(|json| Expected::Json(Value::Object(json.0.clone())));
        let text = text.as_deref().map(Expected::Text);
        let calls = tool_calls.as_deref().map(Expected::Calls);
        // Validation has seen to it that there is one.
        return text.or(json).or(calls).ok_or((CaseVerdict::Skipped, "nothing is expected".to_owned()));
    }
    let unknown = |reason: String| Err((CaseVerdict::Inconclusive, reason));
    let Reference::Answers(answers) = reference else {
        return Err((CaseVerdict::Skipped, "there is no release before to compare with".to_owned()));
    };
    match answers.get(&case.name).map(|answer| &answer.said) {
        Some(Said::Answer(answer)) => Ok(Expected::Reference(answer)),
        Some(Said::Error { status, message }) => {
            unknown(format!("the reference answered {status}: {message}"))
        }
        Some(Said::Unreadable { reason }) => unknown(format!("the reference's answer is none: {reason}")),
        Some(Said::TimedOut) => unknown("the reference took too long".to_owned()),
        Some(Said::Away { reason }) => unknown(format!("the reference was away: {reason}")),
        None => unknown("the reference was not asked".to_owned()),
    }
}

impl Expected<'_> {
    fn words(&self) -> String {
        match self {
            Expected::Text(text) => (*text).to_owned(),
            Expected::Json(value) => value.to_string(),
            Expected::Calls(calls) => calls
                .iter()
                .map(|call| {
                    let arguments = call.arguments.as_ref();
                    let arguments = arguments.map(|it| Value::Object(it.0.clone()).to_string());
                    format!("{}({})", call.name, arguments.as_deref().unwrap_or("…"))
                })
                .collect::<Vec<_>>()
                .join("\n"),
            Expected::Reference(answer) => answer_words(answer),
        }
    }

    /// How it is compared, where that does not depend on the comparison.
    fn kind(&self) -> Option<&'static str> {
        match self {
            Expected::Json(_) => Some("as JSON"),
            Expected::Calls(_) => Some("the calls of tools"),
            Expected::Text(_) | Expected::Reference(_) => None,
        }
    }

    fn differences(&self, comparison: &Comparison, answer: &Answer) -> Vec<Difference> {
        match self {
            Expected::Text(text) => {
                let mut found = texts(comparison, text, &answer.text);
                found.extend(calls(&[], &answer.tool_calls));
                found
            }
            Expected::Json(value) => json_text(value, &answer.text),
            Expected::Calls(expected) => calls(expected, &answer.tool_calls),
            Expected::Reference(reference) => {
                let mut found = texts(comparison, &reference.text, &answer.text);
                found.extend(calls(&as_expected(&reference.tool_calls), &answer.tool_calls));
                found
            }
        }
    }

    fn agreement(&self, comparison: &Comparison, answer: &Answer) -> Option<String> {
        let least = comparison.at_least?;
        let text = match self {
            Expected::Text(text) => text,
            Expected::Reference(reference) => reference.text.as_str(),
            Expected::Json(_) | Expected::Calls(_) => return None,
        };
        let share = denv_schema::quantity::Share::from_ratio(agreement(text, &answer.text))?;
        Some(format!("{share} of the tokens agree, {least} must"))
    }
}
