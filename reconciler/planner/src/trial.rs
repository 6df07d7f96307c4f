//! What is recorded and observed of a deployment's gates: which suite was put to whom, and what came of it.

use std::collections::BTreeMap;

use denv_gates::Outcome;
use denv_gates::alarm::Reading;
use denv_schema::launch::HandOver;
use denv_schema::manifest::{ParitySuiteSpec, StageSpec};
use denv_schema::wire::Generation;
use denv_schema::{Digest, MemberId, Name, UnitId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::{Deployment, Phase, StageRecord, UnitRecord};

/// A deployment's gates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gates {
    pub trials: BTreeMap<Part, Trial>,
    /// It is paused because of what a gate or an alarm said: whoever resumes it decides to go on all the same.
    pub undecided: bool,
    /// The phase for which a person has decided to go on all the same.
    pub waived: Option<Phase>,
}

/// What a suite is put to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Whose answers are the right ones, before anything moves.
    Reference,
    /// The first new unit, before it takes traffic.
    Before,
    /// A unit of the whole, after the last batch.
    After,
}

/// A suite put to somebody. What says nothing is tried again, as another attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    pub suite: Name,
    /// The suite's: another one is another trial.
    pub digest: Digest,
    /// Counted from 1.
    pub attempt: u32,
    pub asked: Asked,
    pub since: Timestamp,
    /// When the first attempt began.
    pub first: Timestamp,
    /// What the attempt before came to, if that said nothing of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    pub ended: Option<Ended>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// The API that the suite names.
    Api,
    Unit(Box<AskedUnit>),
}

/// A unit, as it was when it was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedUnit {
    pub unit: UnitId,
    pub generation: Generation,
    pub release: Name,
    pub member: MemberId,
    pub host: Name,
    /// The model's name as its engine knows it.
    pub model: String,
    /// The member that is asked first, where there are two pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<AskedPrefill>,
}

/// The prefill member of a unit, and how what it has read is brought to the one that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedPrefill {
    pub member: MemberId,
    pub host: Name,
    pub hand_over: HandOver,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    pub outcome: Outcome,
    /// With figures, for people.
    pub reason: String,
    pub at: Timestamp,
}

/// What came of the trial that is under way in a stage's deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrialObserved {
    pub deployment: u64,
    pub part: Part,
    pub attempt: u32,
    pub outcome: Outcome,
    pub reason: String,
}

/// What an alarm of a stage says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlarmObserved {
    /// What the units run that were looked at: the template's digest.
    pub of: Digest,
    pub reading: Reading,
}

impl Gates {
    pub fn is_empty(&self) -> bool {
        *self == Gates::default()
    }

    pub(crate) fn begin(&mut self, part: Part, trial: &Trial) {
        self.trials.insert(part, trial.clone());
    }

    pub(crate) fn end(&mut self, part: Part, ended: Ended) {
        if let Some(trial) = self.trials.get_mut(&part) {
            trial.ended = Some(ended);
        }
    }

    pub(crate) fn ended(&self, part: Part) -> Option<&Ended> {
        self.trials.get(&part)?.ended.as_ref()
    }
}

impl Part {
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Reference => "reference",
            Part::Before => "before",
            Part::After => "after",
        }
    }
}

impl Asked {
    pub(crate) fn unit(id: &UnitId, record: &UnitRecord) -> Self {
        let front = record.front();
        Asked::Unit(Box::new(AskedUnit {
            unit: id.clone(),
            generation: record.generation,
            release: record.release.clone(),
            member: front.id.clone(),
            host: front.host.clone(),
            model: record.model().to_owned(),
            prefill: record.prefill().map(|(member, hand_over)| AskedPrefill {
                member: member.id.clone(),
                host: member.host.clone(),
                hand_over: hand_over.clone(),
            }),
        }))
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Asked::Api => f.write_str("the API that it names"),
            Asked::Unit(asked) => write!(f, "unit `{}` on `{}`", asked.unit, asked.host),
        }
    }
}

impl Deployment {
    pub(crate) fn pause(&mut self, reason: &str, at: Timestamp) {
        self.paused = true;
        self.reason = Some(reason.to_owned());
        self.since = at;
    }

    /// Pauses it for what a gate or an alarm says.
    pub(crate) fn await_decision(&mut self, reason: &str, at: Timestamp) {
        self.pause(reason, at);
        self.gates.undecided = true;
    }

    /// Goes on. Where a gate or an alarm had it paused, that is a person's decision against what it said.
    pub(crate) fn resume(&mut self, at: Timestamp) {
        if std::mem::take(&mut self.gates.undecided) {
            self.gates.waived = Some(self.phase);
        }
        self.paused = false;
        self.reason = None;
        self.since = at;
    }
}

impl UnitRecord {
    /// Lets it take traffic. Only now does it have to become ready.
    pub(crate) fn admit(&mut self, at: Timestamp) {
        self.withheld = false;
        self.since = at;
    }
}

/// Whether some cases say that the reference's answers are the right ones.
pub(crate) fn needs_reference(suite: &ParitySuiteSpec) -> bool {
    suite.cases.iter().any(|case| case.expect.is_none())
}

/// Whether the release of the stage's deployment may take traffic, as far as its gate is concerned. What means the same
/// as the good release is good.
pub(crate) fn is_admitted(spec: &StageSpec, record: &StageRecord, deployment: &Deployment) -> bool {
    let is_good = record.good.as_ref().is_some_and(|good| good.digest == deployment.digest);
    let is_gated = spec.parity.as_ref().is_some_and(|parity| parity.before) && !is_good;
    let has_passed =
        || deployment.gates.ended(Part::Before).is_some_and(|ended| ended.outcome == Outcome::Pass);
    !is_gated || has_passed() || deployment.gates.waived == Some(Phase::Gating)
}
