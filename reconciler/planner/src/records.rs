//! What is recorded: the planner's memory, persisted before anything acts on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use denv_schema::launch::{HandOver, LaunchSpec, LaunchTemplate, MemberPlace};
use denv_schema::manifest::PoolName;
use denv_schema::quantity::Period;
use denv_schema::wire::{Action, Command, CommandId, Generation};
use denv_schema::{Digest, MemberId, Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::Chosen;
use crate::trial::Gates;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Records {
    pub stages: BTreeMap<StageId, StageRecord>,
    /// Shared: records are copied far more often than a unit changes.
    pub units: BTreeMap<UnitId, Arc<UnitRecord>>,
    /// Hosts that did not do what they were told, since they last did.
    pub hosts: BTreeMap<Name, HostFaults>,
    /// Commands that their host has not answered yet.
    pub pending: BTreeSet<CommandId>,
    /// Commands of present units that their host refused, and why.
    pub refused: BTreeMap<CommandId, String>,
}

/// How often a host did not do what it was told, without doing it in between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFaults {
    pub count: u32,
    pub last: Timestamp,
    /// What happened last.
    pub reason: String,
}

impl HostFaults {
    /// A host that fails more often than this in a row is set aside.
    const MOST: u32 = 3;
    /// For how long, before it is tried again.
    const SET_ASIDE: SignedDuration = SignedDuration::from_mins(30);

    /// Until when the host is given nothing new, if it is set aside.
    pub fn set_aside_until(&self) -> Option<Timestamp> {
        (self.count >= Self::MOST).then(|| self.last + Self::SET_ASIDE)
    }
}

/// How many units a person wants of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scale {
    /// In all fleets together. Bounded by their ranges, also where those change.
    pub units: u32,
    pub by: String,
    pub at: Timestamp,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<Rebuilt>,
}

/// That a stage's records were lost, and are made anew from what hosts run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rebuilt {
    pub since: Timestamp,
    /// Numbers below this one were given by the records that are lost: what hosts run under them was not given up.
    pub below: u64,
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
    #[serde(default, skip_serializing_if = "Gates::is_empty")]
    pub gates: Gates,
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
    /// Puts the parity suite to the reference, and to the first new unit before that takes traffic.
    Gating,
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
            Phase::Gating => f.write_str("gating"),
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
    /// Its parts, one a host and pool: the pools in their order, and in each the members by rank. Never empty.
    pub members: Vec<MemberRecord>,
    /// Why it is where it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Chosen>,
    pub generation: Generation,
    pub phase: UnitPhase,
    /// When it entered its phase.
    pub since: Timestamp,
    pub created: Timestamp,
    /// How often it was started again without having been ready for long in between.
    #[serde(default)]
    pub restarts_in_a_row: u32,
    /// It takes no traffic before its release has passed its gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// Why it is leaving, for people.
    pub reason: Option<String>,
}

/// A unit that was ready for this long did well.
pub(crate) const DID_WELL: SignedDuration = SignedDuration::from_mins(10);

/// The part of a unit on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRecord {
    pub id: MemberId,
    pub pool: PoolName,
    pub host: Name,
    /// CPU slots it takes on a host without accelerators; accelerators are in `spec.claim.gpus`.
    pub cpu_slots: u32,
    /// The first of the ports it has for what members say to each other.
    pub first_port: u16,
    pub spec: LaunchSpec,
    /// The spec's: what desired and observed are compared by.
    pub digest: Digest,
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

impl MemberRecord {
    /// Those of a unit that runs at these places: the members of each pool in the order of their ranks.
    pub(crate) fn of_unit(unit: &UnitId, template: &LaunchTemplate, places: &[MemberPlace]) -> Vec<Self> {
        let member = |(rank, (place, spec)): (u32, (&MemberPlace, LaunchSpec))| MemberRecord {
            id: MemberId::new(unit, rank),
            pool: place.pool,
            host: place.host.clone(),
            cpu_slots: place.cpu_slots,
            first_port: place.first_port,
            digest: spec.digest(),
            spec,
        };
        (0..).zip(places.iter().zip(template.at(unit, places))).map(member).collect()
    }
}

impl UnitRecord {
    /// Whether it is wanted.
    pub fn is_active(&self) -> bool {
        matches!(self.phase, UnitPhase::Starting | UnitPhase::Ready)
    }

    /// The member that takes requests: of a unit of two pools, that which writes the answers.
    pub fn front(&self) -> &MemberRecord {
        let last = self.members.last().map(|member| member.pool);
        let front = self.members.iter().find(|member| Some(member.pool) == last);
        front.expect("a unit has members")
    }

    /// The member that is asked before that, where its engine leaves it to those who ask to bring its pools together.
    pub fn prefill(&self) -> Option<(&MemberRecord, &HandOver)> {
        self.members.iter().find_map(|member| Some((member, member.spec.hand_over.as_ref()?)))
    }

    /// The ids of [`UnitRecord::commands`], without the whole of them.
    pub fn command_ids(&self) -> impl Iterator<Item = CommandId> {
        self.members.iter().map(|member| self.command_id(member))
    }

    /// The id of the command to one of its members.
    pub fn command_id(&self, member: &MemberRecord) -> CommandId {
        let verb = if self.phase == UnitPhase::Stopping { "stop" } else { "start" };
        CommandId(format!("{}@{}/{verb}", member.id, self.generation))
    }

    /// The commands that make its hosts do what the phase wants, to be delivered in the term of that moment.
    pub fn commands(&self) -> impl Iterator<Item = (&Name, Command)> {
        self.members.iter().map(|member| {
            let action = match self.phase {
                UnitPhase::Starting | UnitPhase::Ready | UnitPhase::Draining => {
                    Action::Start(member.spec.clone())
                }
                UnitPhase::Stopping => Action::Stop {},
            };
            (&member.host, Command::new(0, member.id.clone(), self.generation, action))
        })
    }

    /// The model's name as the engine knows it.
    pub fn model(&self) -> &str {
        self.members.first().map_or("", |member| &member.spec.model)
    }

    /// What its recipe gives it to become ready.
    pub fn start_timeout(&self) -> Period {
        let timeouts = self.members.iter().map(|member| member.spec.start_timeout);
        timeouts.max_by_key(|timeout| timeout.get()).unwrap_or(Period::from_secs(0))
    }

    /// What its recipe gives it to end.
    pub fn stop_timeout(&self) -> Period {
        let timeouts = self.members.iter().map(|member| member.spec.stop_timeout);
        timeouts.max_by_key(|timeout| timeout.get()).unwrap_or(Period::from_secs(0))
    }

    pub fn is_on(&self, host: &Name) -> bool {
        self.members.iter().any(|member| member.host == *host)
    }
}
