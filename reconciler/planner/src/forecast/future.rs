//! Hosts and gateways as they would be if they did as they are told, in the time that such things take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use denv_gates::Outcome;
use denv_gates::alarm::Reading;
use denv_schema::wire::{
    Artifact, ArtifactReport, ArtifactState, MemberReport, MemberState, Rotation, UnitReport,
};
use denv_schema::{Catalog, Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};

use crate::plan::Step;
use crate::records::{Phase, Records, UnitPhase, UnitRecord};
use crate::trial::{AlarmObserved, TrialObserved};
use crate::world::{Observed, World, signed};

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As the units that run have taken; where none does, half of what a start may take.
    Expected,
    /// As long as manifests allow.
    Slowest,
}

/// Requests in flight are over within this, mostly.
const USUAL_DRAIN: Duration = Duration::from_secs(60);
/// Engines end within this after SIGTERM, mostly.
const USUAL_STOP: Duration = Duration::from_secs(10);

pub(super) struct Future<'w> {
    pub(super) observed: Observed,
    catalog: &'w Catalog,
    pace: Pace,
    /// How long starts have taken, by the model's name.
    starts: BTreeMap<String, Duration>,
    /// What comes, in order.
    events: BTreeMap<(Timestamp, u64), Event>,
    next_event: u64,
}

enum Event {
    Healthy(UnitId),
    Drained(UnitId),
    Stopped(UnitId),
    Answered(StageId, TrialObserved),
    Prepared(Name),
}

/// How many prompts an engine works on at once for a test, and how long it takes to each, mostly.
const PROMPTS_AT_ONCE: u32 = 8;
const USUAL_ANSWER: Duration = Duration::from_secs(5);

impl<'w> Future<'w> {
    /// What is under way ends as it should. Hosts that answer have answered all commands.
    pub(super) fn begin(world: &World<'w>, pace: Pace, records: &mut Records) -> Self {
        let mut future = Future {
            observed: world.observed.clone(),
            catalog: world.catalog,
            pace,
            starts: starts(records),
            events: BTreeMap::new(),
            next_event: 0,
        };
        let is_preparing = |it: &ArtifactReport| it.state == ArtifactState::Preparing;
        let hosts = world.observed.hosts.iter();
        for (host, _) in hosts.filter(|(_, host)| host.report.artifacts.iter().any(is_preparing)) {
            future.schedule(world.now + SECOND, Event::Prepared(host.clone()));
        }
        let heard: Vec<_> = records
            .units
            .iter()
            .filter(|(_, unit)| world.all_connected(unit))
            .map(|it| it.0.clone())
            .collect();
        for id in heard {
            let unit = records.units[&id].clone();
            for id in unit.command_ids() {
                records.pending.remove(&id);
            }
            match unit.phase {
                UnitPhase::Starting if is_failed(world, &unit) => {}
                UnitPhase::Starting => future.start(&id, &unit, world.now),
                UnitPhase::Draining => future.drain(&id, &unit, world.now),
                UnitPhase::Stopping => future.stop(&id, &unit, world.now),
                UnitPhase::Ready => {}
            }
        }
        for (id, stage) in &records.stages {
            if stage.deployment.as_ref().is_some_and(|deployment| !deployment.phase.is_over()) {
                future.ask(id, world.now, records);
                future.quiet(id, records);
            }
        }
        future
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// What the step makes hosts and gateways do.
    pub(super) fn obey(&mut self, step: &Step, now: Timestamp, records: &Records) {
        match step {
            Step::StartUnit { unit, record } => self.start(unit, record, now),
            Step::RestartUnit { unit, .. } => {
                if let Some(record) = records.units.get(unit) {
                    self.start(unit, record, now);
                }
            }
            Step::DrainUnit { unit, .. } => {
                if let Some(record) = records.units.get(unit) {
                    self.drain(unit, record, now);
                }
            }
            Step::StopUnit { unit, .. } => {
                if let Some(record) = records.units.get(unit) {
                    self.stop(unit, record, now);
                }
            }
            Step::ForgetUnit { unit } => {
                for gateway in self.observed.gateways.values_mut() {
                    gateway.report.units.remove(unit);
                }
            }
            Step::EndStranger { host, member, .. } => {
                if let Some(host) = self.observed.hosts.get_mut(host) {
                    Arc::make_mut(&mut host.report).members.remove(member);
                }
            }
            Step::BeginTrial { stage, .. } => self.ask(stage, now, records),
            Step::AdmitUnit { unit, .. } => {
                if let Some(record) = records.units.get(unit) {
                    self.route(unit, record, Rotation::In, 0);
                }
            }
            Step::MoveDeployment { stage, phase: Phase::Rolling { .. } | Phase::Baking { .. }, .. } => {
                self.quiet(stage, records);
            }
            Step::OpenDeployment { .. }
            | Step::MoveDeployment { .. }
            | Step::PauseDeployment { .. }
            | Step::AwaitDecision { .. }
            | Step::EndTrial { .. }
            | Step::ResumeDeployment { .. }
            | Step::ApproveDeployment { .. }
            | Step::MarkGood { .. }
            | Step::Hold { .. }
            | Step::Unhold { .. }
            | Step::Scale { .. }
            | Step::SettleRepairs { .. }
            | Step::AdoptUnit { .. }
            | Step::MarkReady { .. }
            | Step::RenameRelease { .. } => {}
        }
    }

    /// Everything that happens until then.
    pub(super) fn pass_until(&mut self, now: Timestamp, records: &Records) {
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= now) {
            let event = entry.remove();
            match event {
                Event::Answered(stage, seen) => {
                    self.observed.trials.insert(stage, seen);
                    continue;
                }
                Event::Prepared(host) => {
                    self.prepared(&host);
                    continue;
                }
                Event::Healthy(_) | Event::Drained(_) | Event::Stopped(_) => {}
            }
            let (Event::Healthy(id) | Event::Drained(id) | Event::Stopped(id)) = &event else { continue };
            let Some(unit) = records.units.get(id) else { continue };
            match (event, unit.phase) {
                (Event::Healthy(id), UnitPhase::Starting | UnitPhase::Ready) => {
                    self.report(unit, MemberState::Healthy, now);
                    if !unit.withheld {
                        self.route(&id, unit, Rotation::In, 0);
                    }
                }
                (Event::Drained(id), UnitPhase::Draining) => self.route(&id, unit, Rotation::Out, 0),
                (Event::Stopped(_), UnitPhase::Stopping) => {
                    for member in &unit.members {
                        if let Some(host) = self.observed.hosts.get_mut(&member.host) {
                            Arc::make_mut(&mut host.report).members.remove(&member.id);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Hosts get ready what they are to have. What that takes is a part of what starts have taken.
    pub(super) fn prefetch(&mut self, wanted: &BTreeMap<Name, Vec<Artifact>>, now: Timestamp) {
        for (name, artifacts) in wanted {
            let Some(host) = self.observed.hosts.get_mut(name) else { continue };
            let known = |artifact: &Artifact| host.report.artifacts.iter().any(|it| it.artifact == *artifact);
            let new: Vec<&Artifact> = artifacts.iter().filter(|artifact| !known(artifact)).collect();
            if new.is_empty() {
                continue;
            }
            let new = new.into_iter().map(|artifact| ArtifactReport {
                artifact: artifact.clone(),
                state: ArtifactState::Preparing,
                fetched: None,
            });
            let new: Vec<ArtifactReport> = new.collect();
            Arc::make_mut(&mut host.report).artifacts.extend(new);
            self.schedule(now + SECOND, Event::Prepared(name.clone()));
        }
    }

    fn prepared(&mut self, host: &Name) {
        let reports =
            self.observed.hosts.get_mut(host).map(|host| &mut Arc::make_mut(&mut host.report).artifacts);
        let underway = reports.into_iter().flatten().filter(|it| it.state == ArtifactState::Preparing);
        underway.for_each(|report| report.state = ArtifactState::Ready);
    }

    /// Whoever is asked answers as it should.
    fn ask(&mut self, stage: &StageId, now: Timestamp, records: &Records) {
        let deployment = records.stages.get(stage).and_then(|record| record.deployment.as_ref());
        let Some(deployment) = deployment else { return };
        for (part, trial) in deployment.gates.trials.iter().filter(|(_, trial)| trial.ended.is_none()) {
            let Some(suite) = self.catalog.parity_suites.get(&trial.suite) else { continue };
            let rounds = u32::try_from(suite.cases.len()).unwrap_or(u32::MAX).div_ceil(PROMPTS_AT_ONCE);
            let takes = match self.pace {
                Pace::Expected => USUAL_ANSWER.min(suite.timeout.get()),
                Pace::Slowest => suite.timeout.get(),
            };
            let seen = TrialObserved {
                deployment: deployment.number,
                part: *part,
                attempt: trial.attempt,
                outcome: Outcome::Pass,
                reason: "assumed".to_owned(),
            };
            let at = (trial.since + signed(takes * rounds)).max(now + SECOND);
            self.schedule(at, Event::Answered(stage.clone(), seen));
        }
    }

    /// Alarms have enough to say of what rolls out, and nothing bad.
    fn quiet(&mut self, stage: &StageId, records: &Records) {
        let deployment = records.stages.get(stage).and_then(|record| record.deployment.as_ref());
        let (Some(deployment), Some(spec)) = (deployment, self.catalog.stages.get(stage)) else { return };
        if !matches!(deployment.phase, Phase::Rolling { .. } | Phase::Baking { .. }) {
            return;
        }
        for alarm in &spec.alarms {
            let reading = Reading {
                outcome: Outcome::Pass,
                reason: "assumed".to_owned(),
                samples: u64::from(u32::MAX),
            };
            let readings = self.observed.alarms.entry(stage.clone()).or_default();
            let known = readings.get(alarm).is_some_and(|known| known.of == deployment.digest);
            if !known {
                readings.insert(alarm.clone(), AlarmObserved { of: deployment.digest, reading });
            }
        }
    }

    fn start(&mut self, id: &UnitId, unit: &UnitRecord, now: Timestamp) {
        self.report(unit, MemberState::Starting, now);
        let may_take = unit.start_timeout().get();
        let takes = match self.pace {
            Pace::Expected => self.starts.get(unit.model()).copied().unwrap_or(may_take / 2).min(may_take),
            Pace::Slowest => may_take,
        };
        // What has been starting for a while needs only the rest.
        self.schedule((unit.since + signed(takes)).max(now + SECOND), Event::Healthy(id.clone()));
    }

    fn drain(&mut self, id: &UnitId, unit: &UnitRecord, now: Timestamp) {
        let rollout =
            self.catalog.stages.get(&unit.stage).map(|stage| stage.rollout.clone()).unwrap_or_default();
        let (may_take, serves) = (rollout.drain_timeout.get(), self.serves(id));
        self.route(id, unit, Rotation::Out, u32::from(serves));
        let takes = match self.pace {
            Pace::Expected => may_take.min(USUAL_DRAIN),
            Pace::Slowest => may_take,
        };
        let at = if serves { (unit.since + signed(takes)).max(now + SECOND) } else { now + SECOND };
        self.schedule(at, Event::Drained(id.clone()));
    }

    fn stop(&mut self, id: &UnitId, unit: &UnitRecord, now: Timestamp) {
        let may_take = unit.stop_timeout().get();
        let takes = match self.pace {
            Pace::Expected => may_take.min(USUAL_STOP),
            Pace::Slowest => may_take,
        };
        self.schedule((unit.since + signed(takes)).max(now + SECOND), Event::Stopped(id.clone()));
    }

    fn schedule(&mut self, at: Timestamp, event: Event) {
        self.events.insert((at, self.next_event), event);
        self.next_event += 1;
    }

    /// Whether a gateway gives it requests.
    fn serves(&self, id: &UnitId) -> bool {
        let mut reports = self.observed.gateways.values().filter_map(|gateway| gateway.report.units.get(id));
        reports.any(|report| report.in_rotation || report.inflight > 0)
    }

    fn report(&mut self, unit: &UnitRecord, state: MemberState, since: Timestamp) {
        for member in &unit.members {
            let host = self.observed.hosts.get_mut(&member.host).filter(|host| host.connected);
            let Some(host) = host else { continue };
            let report = MemberReport {
                generation: unit.generation,
                spec: member.digest,
                state,
                since,
                claim: Some(member.spec.claim.clone()),
                restarts: 0,
                ends_in_a_row: 0,
                reason: None,
            };
            Arc::make_mut(&mut host.report).members.insert(member.id.clone(), report);
        }
    }

    fn route(&mut self, id: &UnitId, unit: &UnitRecord, rotation: Rotation, inflight: u32) {
        let in_rotation = rotation == Rotation::In;
        let report = UnitReport { generation: unit.generation, rotation, in_rotation, inflight };
        for gateway in self.observed.gateways.values_mut().filter(|gateway| gateway.connected) {
            gateway.report.units.insert(id.clone(), report);
        }
    }
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// It will not become healthy by waiting.
fn is_failed(world: &World<'_>, unit: &UnitRecord) -> bool {
    unit.members.iter().any(|member| {
        let report = world.member(member).filter(|report| report.generation == unit.generation);
        world.records.refused.contains_key(&unit.command_id(member))
            || report.is_some_and(|of| matches!(of.state, MemberState::Failed | MemberState::Unhealthy))
    })
}

/// How long units of each model took from their start to being ready: the middle one.
fn starts(records: &Records) -> BTreeMap<String, Duration> {
    let mut seen: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    // A unit that was restarted became ready long after it was made.
    let first = |unit: &&Arc<UnitRecord>| unit.phase == UnitPhase::Ready && unit.generation == 1;
    for unit in records.units.values().filter(first) {
        let took = Duration::try_from(unit.since.duration_since(unit.created)).unwrap_or_default();
        seen.entry(unit.model().to_owned()).or_default().push(took);
    }
    let middle = |mut took: Vec<Duration>| {
        took.sort_unstable();
        took[took.len() / 2]
    };
    seen.into_iter().map(|(model, took)| (model, middle(took))).collect()
}
