//! What would happen: the real planner, run forward in imagined time against hosts and gateways that do as they are
//! told. A preview calls this, so it can differ from what happens only where hosts do.

mod assumed;
mod cost;
mod future;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use denv_schema::manifest::PoolName;
use denv_schema::{Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::Chosen;
use crate::plan::{Plan, Step, Subject};
use crate::records::{Approved, MemberRecord, Phase, Records};
use crate::trial::Part;
use crate::waiting::WaitingOn;
use crate::world::World;
use crate::{checker, deployment};

pub use assumed::assumed;
pub use cost::HourlyCost;
pub use future::Pace;
pub use room::Room;

use cost::Costs;
use future::Future;

/// What would happen from now on if nothing else changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// What denv would do, in order.
    pub moves: Vec<Move>,
    /// How the deployments of each stage that has one would end.
    pub stages: BTreeMap<StageId, StageForecast>,
    pub fleets: BTreeMap<Name, Room>,
    /// What an hour costs, in each currency in which fleets have prices.
    pub cost: Vec<HourlyCost>,
    /// Stages that a person has to approve first. The rest is told as if that were done at once.
    pub approvals: Vec<StageId>,
    /// What still would not go on at the end, and why.
    pub waiting: Vec<Wait>,
    /// Seconds until there is nothing left to do; none if something waits for a person or for room.
    pub seconds: Option<u64>,
    /// Invariants that a plan would have broken. The running system stops such a plan; it is a fault of denv.
    pub violations: Vec<String>,
}

/// One thing that denv would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Seconds from now.
    pub after: u64,
    pub stage: StageId,
    /// Counted from 1, where it belongs to a batch of a deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    #[serde(flatten)]
    pub does: Does,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "does", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Does {
    Start {
        unit: UnitId,
        release: Name,
        fleet: Name,
        /// The pools in their order, and in each the members by rank.
        members: Vec<MemberPlace>,
        why: Option<Chosen>,
    },
    Restart {
        unit: UnitId,
        reason: String,
    },
    Ready {
        unit: UnitId,
    },
    Drain {
        unit: UnitId,
        host: Name,
        reason: String,
    },
    Stop {
        unit: UnitId,
        host: Name,
    },
    /// The stage's deployment enters this phase.
    Phase {
        phase: String,
    },
    Hold {
        release: Name,
        reason: String,
    },
    /// A parity suite is put to a unit or a reference. That it is passed is assumed.
    Test {
        suite: Name,
        /// `unit chat.prod.3 on h1`, or the reference's API.
        asked: String,
        part: Part,
    },
    /// The stage waits for its window, for the end of a freeze, or for a person's approval, and then goes on.
    Wait {
        on: String,
    },
}

/// Where a member would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberPlace {
    pub pool: PoolName,
    pub host: Name,
    pub gpus: Vec<u32>,
    pub cpu_slots: u32,
}

impl MemberPlace {
    fn of(member: &MemberRecord) -> Self {
        MemberPlace {
            pool: member.pool,
            host: member.host.clone(),
            gpus: member.spec.claim.gpus.clone(),
            cpu_slots: member.cpu_slots,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageForecast {
    pub from: Option<Name>,
    pub to: Name,
    /// The phase in which the deployment would be at the end.
    pub phase: String,
    pub succeeds: bool,
    /// Seconds until it is over; none if it would not be.
    pub seconds: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// Seconds from now since when it waits.
    pub since: u64,
    /// `stage chat/prod` or `unit chat.prod.3`.
    pub subject: String,
    pub on: String,
}

/// No preview looks further ahead.
const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 366);
/// Passes in a row that time alone brings about and in which nothing happens.
const MOST_IDLE: usize = 50;
/// Plans at one moment; see the running system's own bound.
const MOST_ROUNDS: usize = 100_000;

/// Looks ahead until nothing is left to do, or nothing goes on.
pub fn forecast(world: &World<'_>, pace: Pace) -> Forecast {
    let mut run = Run::begin(world, pace);
    let (mut idle, mut rounds) = (0, 0);
    loop {
        let planned = run.plan();
        rounds += 1;
        if rounds > MOST_ROUNDS || !run.violations.is_empty() {
            return run.end(&planned, false);
        }
        run.note_waits(&planned);
        if !planned.steps.is_empty() {
            run.carry_out(&planned.steps);
            idle = 0;
            continue;
        }
        if run.is_at_rest() {
            return run.end(&planned, true);
        }
        run.future.prefetch(&planned.prefetch, run.now);
        if run.approve(&planned) {
            continue;
        }
        idle += 1;
        let next = run.future.next().into_iter().chain(planned.wake_at).filter(|at| *at > run.now).min();
        match next.filter(|at| at.duration_since(world.now) < HORIZON && idle < MOST_IDLE) {
            Some(at) => {
                if run.future.next().is_some_and(|event| event <= at) {
                    idle = 0;
                }
                run.now = at;
                run.future.pass_until(at, &run.records);
            }
            None => return run.end(&planned, false),
        }
    }
}

struct Run<'w> {
    world: &'w World<'w>,
    now: Timestamp,
    records: Records,
    future: Future<'w>,
    moves: Vec<Move>,
    fleets: BTreeMap<Name, Room>,
    costs: Costs,
    /// Stages whose deployment this forecast saw, with when it was over.
    deployments: BTreeMap<StageId, Option<Timestamp>>,
    waits: BTreeMap<(Subject, String), Timestamp>,
    approvals: Vec<StageId>,
    violations: Vec<String>,
}

impl<'w> Run<'w> {
    fn begin(world: &'w World<'w>, pace: Pace) -> Self {
        let mut records = world.records.clone();
        let future = Future::begin(world, pace, &mut records);
        let open = |(id, stage): (&StageId, &crate::StageRecord)| {
            let deployment = stage.deployment.as_ref()?;
            (!deployment.phase.is_over()).then(|| (id.clone(), None))
        };
        Run {
            world,
            now: world.now,
            fleets: room::rooms(world),
            costs: Costs::begin(world),
            deployments: records.stages.iter().filter_map(open).collect(),
            records,
            future,
            moves: Vec::new(),
            waits: BTreeMap::new(),
            approvals: Vec::new(),
            violations: Vec::new(),
        }
    }

    fn imagined(&self) -> World<'_> {
        let World { catalog, .. } = *self.world;
        World { catalog, records: &self.records, observed: &self.future.observed, now: self.now }
    }

    fn plan(&mut self) -> Plan {
        let world = self.imagined();
        let planned = deployment::plan(&world);
        self.violations = checker::check(&world, &planned).iter().map(ToString::to_string).collect();
        planned
    }

    fn after(&self, at: Timestamp) -> u64 {
        seconds(at.duration_since(self.world.now))
    }

    fn carry_out(&mut self, steps: &[Step]) {
        for step in steps {
            if let Some((stage, does)) = self.does(step) {
                let batch = self.batch_of(&stage);
                self.moves.push(Move { after: self.after(self.now), stage, batch, does });
            }
            if let Step::OpenDeployment { stage, .. } = step {
                self.deployments.insert(stage.clone(), None);
            } else if let Step::MoveDeployment { stage, phase, .. } = step
                && phase.is_over()
            {
                self.deployments.insert(stage.clone(), Some(self.now));
            }
            self.records.apply(step);
            self.future.obey(step, self.now, &self.records);
        }
        let (mut fleets, mut costs) = (std::mem::take(&mut self.fleets), std::mem::take(&mut self.costs));
        room::note(&mut fleets, &self.imagined());
        costs.note(&self.imagined());
        (self.fleets, self.costs) = (fleets, costs);
    }

    fn batch_of(&self, stage: &StageId) -> Option<u32> {
        match self.records.stages.get(stage)?.deployment.as_ref()?.phase {
            Phase::Rolling { batch } | Phase::Baking { batch } => Some(batch + 1),
            Phase::Pending
            | Phase::Gating
            | Phase::Verifying
            | Phase::Succeeded
            | Phase::RollingBack
            | Phase::RolledBack
            | Phase::Superseded => None,
        }
    }

    /// What of a step people are shown.
    fn does(&self, step: &Step) -> Option<(StageId, Does)> {
        let record = |unit: &UnitId| self.records.units.get(unit);
        Some(match step {
            Step::StartUnit { unit, record } => {
                let does = Does::Start {
                    unit: unit.clone(),
                    release: record.release.clone(),
                    fleet: record.fleet.clone(),
                    members: record.members.iter().map(MemberPlace::of).collect(),
                    why: record.chosen.clone(),
                };
                (record.stage.clone(), does)
            }
            Step::RestartUnit { unit, reason, .. } => {
                (record(unit)?.stage.clone(), Does::Restart { unit: unit.clone(), reason: reason.clone() })
            }
            Step::MarkReady { unit, .. } => (record(unit)?.stage.clone(), Does::Ready { unit: unit.clone() }),
            Step::DrainUnit { unit, reason, .. } => {
                let (host, reason) = (record(unit)?.front().host.clone(), reason.clone());
                (record(unit)?.stage.clone(), Does::Drain { unit: unit.clone(), host, reason })
            }
            Step::StopUnit { unit, .. } => {
                let host = record(unit)?.front().host.clone();
                (record(unit)?.stage.clone(), Does::Stop { unit: unit.clone(), host })
            }
            Step::OpenDeployment { stage, .. } => {
                (stage.clone(), Does::Phase { phase: Phase::Pending.to_string() })
            }
            Step::MoveDeployment { stage, phase, .. } => {
                (stage.clone(), Does::Phase { phase: phase.to_string() })
            }
            Step::Hold { stage, hold } => {
                let (release, reason) = (hold.release.clone(), hold.reason.clone());
                (stage.clone(), Does::Hold { release, reason })
            }
            Step::BeginTrial { stage, part, trial } => {
                let (suite, asked) = (trial.suite.clone(), trial.asked.to_string());
                (stage.clone(), Does::Test { suite, asked, part: *part })
            }
            Step::PauseDeployment { .. }
            | Step::AwaitDecision { .. }
            | Step::EndTrial { .. }
            | Step::AdmitUnit { .. }
            | Step::ResumeDeployment { .. }
            | Step::ApproveDeployment { .. }
            | Step::MarkGood { .. }
            | Step::Unhold { .. }
            | Step::Scale { .. }
            | Step::SettleRepairs { .. }
            | Step::AdoptUnit { .. }
            | Step::RenameRelease { .. }
            | Step::ForgetUnit { .. }
            | Step::EndStranger { .. } => return None,
        })
    }

    /// Remembers since when each thing waits for what it still waits for, and tells of waits that end by the calendar.
    fn note_waits(&mut self, planned: &Plan) {
        let waiting: BTreeMap<(Subject, String), Timestamp> = planned
            .waiting
            .iter()
            .filter(|(_, on)| on.until().is_none())
            .map(|(subject, on)| {
                let key = (subject.clone(), on.to_string());
                let since = self.waits.get(&key).copied().unwrap_or(self.now);
                (key, since)
            })
            .collect();
        self.waits = waiting;
        for (subject, on) in &planned.waiting {
            let (Subject::Stage(stage), WaitingOn::Window { .. } | WaitingOn::Freeze { .. }) = (subject, on)
            else {
                continue;
            };
            let does = Does::Wait { on: on.to_string() };
            let told = self.moves.iter().rev().find(|told| told.stage == *stage);
            if told.is_none_or(|told| told.does != does) {
                let (stage, batch) = (stage.clone(), self.batch_of(stage));
                self.moves.push(Move { after: self.after(self.now), stage, batch, does });
            }
        }
    }

    /// Imagines the approvals that are waited for, and says whether there were any.
    fn approve(&mut self, planned: &Plan) -> bool {
        let mut steps = Vec::new();
        for (subject, on) in &planned.waiting {
            if let (Subject::Stage(stage), WaitingOn::Approval { .. }) = (subject, on) {
                let does = Does::Wait { on: on.to_string() };
                self.moves.push(Move {
                    after: self.after(self.now),
                    stage: stage.clone(),
                    batch: None,
                    does,
                });
                self.approvals.push(stage.clone());
                let approved = Approved { by: "whoever reads this preview".to_owned(), at: self.now };
                steps.push(Step::ApproveDeployment { stage: stage.clone(), approved });
            }
        }
        self.carry_out(&steps);
        !steps.is_empty()
    }

    /// Nothing is under way, and nothing is wanted.
    fn is_at_rest(&self) -> bool {
        let over = |stage: &crate::StageRecord| {
            stage.deployment.as_ref().is_none_or(|deployment| deployment.phase.is_over())
        };
        self.waits.is_empty() && self.future.next().is_none() && self.records.stages.values().all(over)
    }

    fn end(self, planned: &Plan, at_rest: bool) -> Forecast {
        let held = |on: &WaitingOn| matches!(on, WaitingOn::Held { .. });
        let known: BTreeSet<&Subject> = planned.waiting.keys().collect();
        let of_last_pass = planned.waiting.iter().filter(|(subject, on)| {
            let noted = self.waits.keys().any(|(other, _)| other == *subject);
            !noted && (held(on) || !at_rest)
        });
        let mut waiting: Vec<Wait> = self
            .waits
            .iter()
            .filter(|((subject, _), _)| known.contains(subject))
            .map(|((subject, on), since)| Wait {
                since: self.after(*since),
                subject: subject.to_string(),
                on: on.clone(),
            })
            .collect();
        waiting.extend(of_last_pass.map(|(subject, on)| Wait {
            since: self.after(self.now),
            subject: subject.to_string(),
            on: on.to_string(),
        }));
        let stages = self.deployments.iter().filter_map(|(id, over)| {
            let deployment = self.records.stages.get(id)?.deployment.as_ref()?;
            let forecast = StageForecast {
                from: deployment.from.clone(),
                to: deployment.to.clone(),
                phase: deployment.phase.to_string(),
                succeeds: deployment.phase == Phase::Succeeded,
                seconds: over.map(|at| self.after(at)),
            };
            Some((id.clone(), forecast))
        });
        Forecast {
            stages: stages.collect(),
            seconds: at_rest.then(|| self.after(self.now)),
            moves: self.moves.clone(),
            fleets: self.fleets.clone(),
            cost: self.costs.finish(),
            approvals: self.approvals.clone(),
            waiting,
            violations: self.violations.clone(),
        }
    }
}

fn seconds(length: SignedDuration) -> u64 {
    Duration::try_from(length).unwrap_or_default().as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
