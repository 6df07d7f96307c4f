//! What is recorded: the planner's memory, persisted before anything acts on it.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::launch::{LaunchSpec, LaunchTemplate};
use denv_schema::wire::{Action, Command, CommandId, Generation};
use denv_schema::{Digest, MemberId, Name, StageId, UnitId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Records {
    pub stages: BTreeMap<StageId, StageRecord>,
    pub units: BTreeMap<UnitId, UnitRecord>,
    /// Commands that their host has not answered yet.
    pub pending: BTreeSet<CommandId>,
    /// Commands of present units that their host refused, and why.
    pub refused: BTreeMap<CommandId, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StageRecord {
    /// The number of the next unit; numbers are never used again.
    pub next_unit: u64,
    /// The release that last succeeded, whole: going back needs neither Git nor the catalog.
    pub good: Option<Good>,
    /// The deployment that is under way, or the last one.
    pub deployment: Option<Deployment>,
    /// After a rollback: what is not tried again.
    pub hold: Option<Hold>,
    pub repairs: Repairs,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Good {
    pub release: Name,
    pub template: LaunchTemplate,
    /// The template's.
    pub digest: Digest,
}

/// One change of a stage from what runs to what is desired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// Counts a stage's deployments from 1.
    pub number: u64,
    pub from: Option<Name>,
    pub to: Name,
    pub template: LaunchTemplate,
    /// The template's.
    pub digest: Digest,
    /// What it was made from: a hold and a retry are judged by it.
    pub inputs: Digest,
    pub phase: Phase,
    pub opened: Timestamp,
    /// When it entered its phase.
    pub since: Timestamp,
    /// Why it is where it is: what failed, who paused it.
    pub reason: Option<String>,
    /// A person, or an alarm under `onAlarm: pause`, has stopped it from going on.
    pub paused: bool,
    /// The approval that it may need to leave `pending`.
    #[serde(default)]
    pub approved: Option<Approved>,
}

/// That a person approved this very deployment: another one, of the same release too, is approved anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    pub by: String,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Waits for room, for approval, or for its window.
    Pending,
    /// Moves units up to the size of batch `batch`, counted from 0.
    Rolling {
        batch: u32,
    },
    /// Watches the units of batch `batch` stay healthy.
    Baking {
        batch: u32,
    },
    /// Looks at the whole once more.
    Verifying,
    Succeeded,
    RollingBack,
    RolledBack,
    Superseded,
}

impl Phase {
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::RolledBack | Phase::Superseded)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Phase::Pending => f.write_str("pending"),
            Phase::Rolling { batch } => write!(f, "rolling (batch {})", batch + 1),
            Phase::Baking { batch } => write!(f, "baking (batch {})", batch + 1),
            Phase::Verifying => f.write_str("verifying"),
            Phase::Succeeded => f.write_str("succeeded"),
            Phase::RollingBack => f.write_str("rolling-back"),
            Phase::RolledBack => f.write_str("rolled-back"),
            Phase::Superseded => f.write_str("superseded"),
        }
    }
}

/// Keeps a stage at its good release until its inputs change or a person says retry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    pub inputs: Digest,
    /// What is not tried again.
    pub release: Name,
    pub reason: String,
    pub since: Timestamp,
}

/// Slows down the replacing of units that fail again and again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repairs {
    /// Units of the good release that failed since all were last ready.
    pub failures: u32,
    pub not_before: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitRecord {
    pub stage: StageId,
    pub fleet: Name,
    pub release: Name,
    /// The digest of the release's template.
    pub template: Digest,
    pub host: Name,
    pub member: MemberId,
    /// CPU slots it takes on a host without accelerators; accelerators are in `spec.gpus`.
    pub cpu_slots: u32,
    pub spec: LaunchSpec,
    /// The spec's: what desired and observed are compared by.
    pub digest: Digest,
    pub generation: Generation,
    pub phase: UnitPhase,
    /// When it entered its phase.
    pub since: Timestamp,
    pub created: Timestamp,
    /// Why it is leaving, for people.
    pub reason: Option<String>,
}

/// What denv wants of a unit. What the unit is, is its [`crate::UnitStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnitPhase {
    /// Has been told to start and was never ready in this generation.
    Starting,
    /// Was ready in this generation, and is wanted.
    Ready,
    /// Leaves rotation; requests finish.
    Draining,
    /// Has been told to stop.
    Stopping,
}

impl UnitRecord {
    /// Whether it is wanted.
    pub fn is_active(&self) -> bool {
        matches!(self.phase, UnitPhase::Starting | UnitPhase::Ready)
    }

    /// The id of [`UnitRecord::command`], without the whole of it.
    pub fn command_id(&self) -> CommandId {
        let verb = if self.phase == UnitPhase::Stopping { "stop" } else { "start" };
        CommandId(format!("{}@{}/{verb}", self.member, self.generation))
    }

    /// The command that makes the host do what the phase wants, to be delivered in the term of that moment.
    pub fn command(&self) -> Command {
        let action = match self.phase {
            UnitPhase::Starting | UnitPhase::Ready | UnitPhase::Draining => Action::Start(self.spec.clone()),
            UnitPhase::Stopping => Action::Stop {},
        };
        Command::new(0, self.member.clone(), self.generation, action)
    }
}
