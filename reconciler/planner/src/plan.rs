//! What is to be done, and with it what can't be done yet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use denv_gates::Outcome;
use denv_schema::wire::{Artifact, Command, Generation};
use denv_schema::{MemberId, Name, StageId, UnitId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::{
    Approved, DID_WELL, Deployment, Good, Hold, MemberRecord, Phase, Rebuilt, Records, Scale, UnitPhase,
    UnitRecord,
};
use crate::trial::{Ended, Part, Trial};
use crate::waiting::WaitingOn;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In order. Each is persisted before its effect is begun.
    pub steps: Vec<Step>,
    pub waiting: BTreeMap<Subject, WaitingOn>,
    /// What hosts are to have ready for engines to come, whole.
    pub prefetch: BTreeMap<Name, Vec<Artifact>>,
    /// When to plan again even if nothing is heard.
    pub wake_at: Option<Timestamp>,
}

/// One change of the records, and with it the command it means.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "plans are short; a box would only add noise")]
pub enum Step {
    OpenDeployment {
        stage: StageId,
        deployment: Deployment,
    },
    MoveDeployment {
        stage: StageId,
        phase: Phase,
        reason: Option<String>,
        at: Timestamp,
    },
    PauseDeployment {
        stage: StageId,
        reason: String,
        at: Timestamp,
    },
    /// Paused for a gate or an alarm: whoever resumes it decides to go on all the same.
    AwaitDecision {
        stage: StageId,
        reason: String,
        at: Timestamp,
    },
    ResumeDeployment {
        stage: StageId,
        at: Timestamp,
    },
    ApproveDeployment {
        stage: StageId,
        approved: Approved,
    },
    /// A suite is put to somebody.
    BeginTrial {
        stage: StageId,
        part: Part,
        trial: Trial,
    },
    EndTrial {
        stage: StageId,
        part: Part,
        outcome: Outcome,
        reason: String,
        at: Timestamp,
    },
    /// This release works: going back means going back to it.
    MarkGood {
        stage: StageId,
        good: Good,
    },
    Hold {
        stage: StageId,
        hold: Hold,
    },
    Unhold {
        stage: StageId,
    },
    /// A person says how many units are to run, within the ranges of the manifest; or none: as many as its least.
    Scale {
        stage: StageId,
        scale: Option<Scale>,
    },
    /// All are ready: the count of failures begins anew.
    SettleRepairs {
        stage: StageId,
    },
    StartUnit {
        unit: UnitId,
        record: UnitRecord,
    },
    /// Hosts run it, and its records were lost.
    AdoptUnit {
        unit: UnitId,
        record: UnitRecord,
        at: Timestamp,
    },
    /// The host lost it or runs something else: start it again, as a new generation.
    RestartUnit {
        unit: UnitId,
        generation: Generation,
        reason: String,
        at: Timestamp,
    },
    /// Its release has passed its gate: it takes traffic.
    AdmitUnit {
        unit: UnitId,
        at: Timestamp,
    },
    MarkReady {
        unit: UnitId,
        at: Timestamp,
    },
    /// The stage's release means just what this unit runs: only the name is another.
    RenameRelease {
        unit: UnitId,
        release: Name,
    },
    /// `repair_at`: it failed, and its replacement waits until then. `blame`: the host whose fault that was.
    DrainUnit {
        unit: UnitId,
        reason: String,
        repair_at: Option<Timestamp>,
        blame: Option<Name>,
        at: Timestamp,
    },
    StopUnit {
        unit: UnitId,
        at: Timestamp,
    },
    /// It is seen gone.
    ForgetUnit {
        unit: UnitId,
    },
    /// A host runs what was forgotten with it.
    EndStranger {
        unit: UnitId,
        host: Name,
        member: MemberId,
        generation: Generation,
        at: Timestamp,
    },
}

impl Records {
    /// What the records are after a step.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::OpenDeployment { stage, deployment } => {
                self.stages.entry(stage.clone()).or_default().deployment = Some(deployment.clone());
            }
            Step::MoveDeployment { stage, phase, reason, at } => self.on_deployment(stage, |deployment| {
                deployment.phase = *phase;
                deployment.since = *at;
                if reason.is_some() {
                    deployment.reason.clone_from(reason);
                }
                deployment.paused = false;
                deployment.gates.undecided = false;
            }),
            Step::PauseDeployment { stage, reason, at } => {
                self.on_deployment(stage, |deployment| deployment.pause(reason, *at));
            }
            Step::AwaitDecision { stage, reason, at } => {
                self.on_deployment(stage, |deployment| deployment.await_decision(reason, *at));
            }
            Step::BeginTrial { stage, part, trial } => {
                self.on_deployment(stage, |deployment| deployment.gates.begin(*part, trial));
            }
            Step::EndTrial { stage, part, outcome, reason, at } => {
                let ended = Ended { outcome: *outcome, reason: reason.clone(), at: *at };
                self.on_deployment(stage, |deployment| deployment.gates.end(*part, ended));
            }
            Step::AdmitUnit { unit, at } => self.on_unit(unit, |record| record.admit(*at)),
            Step::ResumeDeployment { stage, at } => {
                self.on_deployment(stage, |deployment| deployment.resume(*at));
            }
            Step::ApproveDeployment { stage, approved } => {
                self.on_deployment(stage, |deployment| deployment.approved = Some(approved.clone()));
            }
            Step::MarkGood { stage, good } => {
                self.stages.entry(stage.clone()).or_default().good = Some(good.clone());
            }
            Step::Hold { stage, hold } => {
                self.stages.entry(stage.clone()).or_default().hold = Some(hold.clone())
            }
            Step::Unhold { stage } => self.stages.entry(stage.clone()).or_default().hold = None,
            Step::Scale { stage, scale } => {
                self.stages.entry(stage.clone()).or_default().scale.clone_from(scale);
            }
            Step::SettleRepairs { stage } => {
                self.stages.entry(stage.clone()).or_default().repairs = crate::records::Repairs::default();
            }
            Step::StartUnit { unit, record } => {
                self.give_number(unit, record.created);
                self.units.insert(unit.clone(), record.clone().into());
            }
            Step::AdoptUnit { unit, record, at } => self.adopt(unit, record, *at),
            Step::RestartUnit { unit, generation, reason, at } => self.on_unit(unit, |record| {
                let did_well =
                    record.phase == UnitPhase::Ready && at.duration_since(record.since) >= DID_WELL;
                record.restarts_in_a_row = if did_well { 1 } else { record.restarts_in_a_row + 1 };
                record.generation = *generation;
                record.phase = UnitPhase::Starting;
                record.reason = Some(reason.clone());
                record.since = *at;
            }),
            Step::MarkReady { unit, at } => {
                let Some(record) = self.units.get_mut(unit).map(Arc::make_mut) else { return };
                record.phase = UnitPhase::Ready;
                record.reason = None;
                record.since = *at;
                for member in &record.members {
                    self.hosts.remove(&member.host);
                }
            }
            Step::RenameRelease { unit, release } => {
                self.on_unit(unit, |record| record.release.clone_from(release));
            }
            Step::DrainUnit { unit, reason, repair_at, blame, at } => {
                let Some(record) = self.units.get_mut(unit).map(Arc::make_mut) else { return };
                record.phase = UnitPhase::Draining;
                record.reason = Some(reason.clone());
                record.since = *at;
                if let (Some(at), Some(stage)) = (repair_at, self.stages.get_mut(&record.stage)) {
                    stage.repairs.failures += 1;
                    stage.repairs.not_before = Some(*at);
                }
                if let Some(host) = blame {
                    let faults = self.hosts.entry(host.clone()).or_default();
                    faults.count += 1;
                    faults.last = *at;
                    faults.reason.clone_from(reason);
                }
            }
            Step::StopUnit { unit, at } => self.on_unit(unit, |record| {
                record.phase = UnitPhase::Stopping;
                record.since = *at;
            }),
            Step::ForgetUnit { unit } => drop(self.units.remove(unit)),
            Step::EndStranger { unit, member, generation, at, .. } => {
                self.give_number(unit, *at);
                self.pending.insert(crate::strangers::stop(member, *generation).id);
            }
        }
    }

    fn adopt(&mut self, unit: &UnitId, record: &UnitRecord, at: Timestamp) {
        self.give_number(unit, at);
        let stage = self.stages.entry(record.stage.clone()).or_default();
        let rebuilt = stage.rebuilt.get_or_insert(Rebuilt { since: at, below: 0 });
        rebuilt.below = rebuilt.below.max(stage.next_unit + Rebuilt::UNSEEN);
        stage.next_unit = rebuilt.below;
        self.units.insert(unit.clone(), Arc::new(record.clone()));
    }

    /// No other unit gets the number of this one. Numbers that are left out were given by records that are lost.
    fn give_number(&mut self, unit: &UnitId, at: Timestamp) {
        let Some((stage, number)) = unit.parts() else { return };
        let record = self.stages.entry(stage).or_default();
        if number > record.next_unit {
            let rebuilt = record.rebuilt.get_or_insert(Rebuilt { since: at, below: 0 });
            rebuilt.below = rebuilt.below.max(number);
        }
        record.next_unit = record.next_unit.max(number + 1);
    }

    fn on_deployment(&mut self, stage: &StageId, change: impl FnOnce(&mut Deployment)) {
        if let Some(deployment) = self.stages.get_mut(stage).and_then(|stage| stage.deployment.as_mut()) {
            change(deployment);
        }
    }

    fn on_unit(&mut self, unit: &UnitId, change: impl FnOnce(&mut UnitRecord)) {
        if let Some(record) = self.units.get_mut(unit) {
            change(Arc::make_mut(record));
        }
    }
}

/// What something is said of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    Stage(StageId),
    Unit(UnitId),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Stage(stage) => write!(f, "stage {stage}"),
            Subject::Unit(unit) => write!(f, "unit {unit}"),
        }
    }
}

/// Where a unit's members are: `` `h1`, GPUs [0, 1] ``, or of many the hosts with how much of each.
struct Places<'a>(&'a [MemberRecord]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [only] if only.spec.claim.gpus.is_empty() => write!(f, "`{}`", only.host),
            [only] => write!(f, "`{}`, GPUs {:?}", only.host, only.spec.claim.gpus),
            [first, .., last] => {
                let gpus: usize = self.0.iter().map(|member| member.spec.claim.gpus.len()).sum();
                write!(f, "`{}` to `{}`, {} members, {gpus} GPUs", first.host, last.host, self.0.len())
            }
            [] => f.write_str("no host"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::OpenDeployment { deployment: Deployment { number, from, to, .. }, .. } => match from {
                Some(from) => write!(f, "deployment {number} opened: `{from}` to `{to}`"),
                None => write!(f, "deployment {number} opened: `{to}`"),
            },
            Step::MoveDeployment { phase, reason, .. } => {
                match phase {
                    Phase::Succeeded | Phase::Superseded => write!(f, "deployment {phase}")?,
                    Phase::RolledBack => f.write_str("deployment rolled back")?,
                    Phase::RollingBack => f.write_str("deployment is rolling back")?,
                    Phase::Pending
                    | Phase::Gating
                    | Phase::Rolling { .. }
                    | Phase::Baking { .. }
                    | Phase::Verifying => {
                        write!(f, "deployment is {phase}")?;
                    }
                }
                reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            Step::PauseDeployment { reason, .. } | Step::AwaitDecision { reason, .. } => {
                write!(f, "deployment is paused: {reason}")
            }
            Step::ResumeDeployment { .. } => f.write_str("deployment goes on"),
            Step::ApproveDeployment { approved, .. } => write!(f, "deployment approved by {}", approved.by),
            Step::BeginTrial { part: Part::Reference, trial, .. } => {
                write!(f, "parity suite `{}` is put to its reference, {}", trial.suite, trial.asked)
            }
            Step::BeginTrial { trial, .. } => {
                write!(f, "parity suite `{}` is put to {}", trial.suite, trial.asked)
            }
            Step::EndTrial { part: Part::Reference, outcome: Outcome::Pass, .. } => {
                f.write_str("the reference has answered")
            }
            Step::EndTrial { part: Part::Reference, reason, .. } => {
                write!(f, "the reference is away: {reason}")
            }
            Step::EndTrial { part, outcome, reason, .. } => {
                write!(f, "gate {} the rollout {outcome}: {reason}", part.as_str())
            }
            Step::AdmitUnit { .. } => f.write_str("takes traffic: its release has passed its gate"),
            Step::MarkGood { good, .. } => write!(f, "`{}` is the good release", good.release),
            Step::Hold { hold, .. } => {
                write!(f, "held: `{}` is not tried again: {}", hold.release, hold.reason)
            }
            Step::Unhold { .. } => f.write_str("no longer held"),
            Step::Scale { scale: Some(scale), .. } => {
                write!(f, "{} units are wanted, by {}", scale.units, scale.by)
            }
            Step::Scale { scale: None, .. } => f.write_str("as many units are wanted as manifests say"),
            Step::SettleRepairs { .. } => f.write_str("all units are ready again"),
            Step::StartUnit { record, .. } => {
                write!(f, "start `{}` on {}", record.release, Places(&record.members))
            }
            Step::AdoptUnit { record, .. } => write!(
                f,
                "adopted with its `{}` as generation {}: it runs on {}, and its records were lost",
                record.release,
                record.generation,
                Places(&record.members)
            ),
            Step::RestartUnit { generation, reason, .. } => {
                write!(f, "start again as generation {generation}: {reason}")
            }
            Step::MarkReady { .. } => f.write_str("ready"),
            Step::RenameRelease { release, .. } => {
                write!(f, "runs just what `{release}` means, so it is not restarted")
            }
            Step::DrainUnit { reason, .. } => write!(f, "drain: {reason}"),
            Step::StopUnit { .. } => f.write_str("drained; stop"),
            Step::ForgetUnit { .. } => f.write_str("stopped"),
            Step::EndStranger { host, .. } => {
                write!(f, "still runs on `{host}`, and nothing wants it any more: end it")
            }
        }
    }
}

impl Step {
    /// The commands that a step means, and whose they are: to be told once `after` is in the store.
    pub fn commands(&self, after: &Records) -> Vec<(Name, UnitId, Command)> {
        match self {
            Step::StartUnit { unit, .. } | Step::RestartUnit { unit, .. } | Step::StopUnit { unit, .. } => {
                let commands = after.units.get(unit).into_iter().flat_map(|unit| unit.commands());
                commands.map(|(host, command)| (host.clone(), unit.clone(), command)).collect()
            }
            Step::EndStranger { unit, host, member, generation, .. } => {
                vec![(host.clone(), unit.clone(), crate::strangers::stop(member, *generation))]
            }
            Step::OpenDeployment { .. }
            | Step::MoveDeployment { .. }
            | Step::PauseDeployment { .. }
            | Step::AwaitDecision { .. }
            | Step::ResumeDeployment { .. }
            | Step::ApproveDeployment { .. }
            | Step::BeginTrial { .. }
            | Step::EndTrial { .. }
            | Step::AdmitUnit { .. }
            | Step::MarkGood { .. }
            | Step::Hold { .. }
            | Step::Unhold { .. }
            | Step::Scale { .. }
            | Step::SettleRepairs { .. }
            | Step::AdoptUnit { .. }
            | Step::MarkReady { .. }
            | Step::RenameRelease { .. }
            | Step::DrainUnit { .. }
            | Step::ForgetUnit { .. } => Vec::new(),
        }
    }

    /// What the step is about.
    pub fn subject(&self) -> Subject {
        match self {
            Step::OpenDeployment { stage, .. }
            | Step::MoveDeployment { stage, .. }
            | Step::PauseDeployment { stage, .. }
            | Step::AwaitDecision { stage, .. }
            | Step::BeginTrial { stage, .. }
            | Step::EndTrial { stage, .. }
            | Step::ResumeDeployment { stage, .. }
            | Step::ApproveDeployment { stage, .. }
            | Step::MarkGood { stage, .. }
            | Step::Hold { stage, .. }
            | Step::Unhold { stage }
            | Step::Scale { stage, .. }
            | Step::SettleRepairs { stage } => Subject::Stage(stage.clone()),
            Step::StartUnit { unit, .. }
            | Step::AdoptUnit { unit, .. }
            | Step::RestartUnit { unit, .. }
            | Step::AdmitUnit { unit, .. }
            | Step::MarkReady { unit, .. }
            | Step::RenameRelease { unit, .. }
            | Step::DrainUnit { unit, .. }
            | Step::StopUnit { unit, .. }
            | Step::EndStranger { unit, .. }
            | Step::ForgetUnit { unit } => Subject::Unit(unit.clone()),
        }
    }
}
