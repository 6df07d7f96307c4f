//! The phases of a stage's change. One function a phase; what moves units is `converge`.

mod alarm;
mod gate;
mod pending;
pub(crate) mod prefetch;
mod recovery;

use std::collections::BTreeMap;

use denv_schema::manifest::{Approval, OnAlarm, Rollout, StageFleet, StageSpec, UnitRange};
use denv_schema::{Digest, Name, StageId};

use crate::converge::{Goal, Progress, converge};
use crate::counts::shares;
use crate::pass::{Pass, Unit};
use crate::placement::Release;
use crate::plan::{Plan, Step, Subject};
use crate::reclaim::reclaimed;
use crate::records::{Deployment, Good, Hold, Phase, StageRecord};
use crate::status::{Fault, UnitStatus, service, status};
use crate::trial::Gates;
use crate::waiting::WaitingOn;
use crate::wake::wake_at;
use crate::world::{World, signed};
use crate::{calendar, converge, lifecycle};

/// What to do next, in a world.
pub fn plan(world: &World<'_>) -> Plan {
    let mut pass = Pass::begin(world);
    let mut units: BTreeMap<&StageId, Vec<Unit<'_>>> = BTreeMap::new();
    for (id, record) in &world.records.units {
        let status = status(world, id, record);
        let service = service(world, id, record, &status);
        let unit = Unit { id, record, status, service };
        match reclaimed(world, record).filter(|_| record.is_active()) {
            Some((host, at)) => {
                pass.drain(&unit, format!("host `{host}` is taken back by its provider at {at}"), None);
            }
            None => units.entry(&record.stage).or_default().push(unit),
        }
    }
    for (id, spec) in &world.catalog.stages {
        let units = units.remove(id).unwrap_or_default();
        plan_stage(&mut pass, id, spec, &units);
    }
    for (id, units) in units {
        remove_stage(&mut pass, id, &units);
    }
    pass.await_the_unheard();
    let due = pass.wakes.iter().copied().filter(|at| *at > world.now).min();
    pass.plan.wake_at = wake_at(world).into_iter().chain(due).min();
    pass.plan
}

/// The release whose units a stage starts now: the good one while it is held or goes back, else what it wants.
pub(crate) fn desired<'w>(world: &World<'w>, id: &StageId, spec: &'w StageSpec) -> Option<Release<'w>> {
    let record = world.records.stages.get(id);
    let back = record.is_some_and(|record| {
        let phase = record.deployment.as_ref().map(|deployment| deployment.phase);
        record.hold.is_some() || phase == Some(Phase::RollingBack)
    });
    let good = record.and_then(|record| record.good.as_ref()).filter(|_| back);
    if let Some(Good { release, template, digest }) = good {
        return Some(Release { name: release, template, digest: *digest });
    }
    let rendered = world.catalog.rendered.get(&spec.release)?;
    Some(Release { name: &spec.release, template: &rendered.template, digest: rendered.digest })
}

/// What a hold and a retry are judged by: the release, what it means, and where it runs.
fn inputs(spec: &StageSpec, template: Digest) -> Digest {
    // What only routes, or bounds what denv chooses later, starts no deployment.
    let plain = |fleet: &StageFleet| StageFleet {
        name: fleet.name.clone(),
        units: UnitRange { min: fleet.units.min, max: None },
        priority: 0,
        weight: None,
    };
    Digest::of(&(&spec.release, template, spec.fleets.iter().map(plain).collect::<Vec<_>>()))
}

fn plan_stage(pass: &mut Pass<'_>, id: &StageId, spec: &StageSpec, units: &[Unit<'_>]) {
    for unit in units {
        lifecycle::advance(pass, unit, &spec.rollout);
    }
    if let Some(waiting) = pass.brake.clone()
        && units.iter().any(|unit| matches!(unit.status, UnitStatus::Silent { .. }))
    {
        pass.wait(Subject::Stage(id.clone()), waiting);
    } else {
        for unit in units.iter().filter(|unit| matches!(unit.status, UnitStatus::Silent { .. })) {
            let Some((host, since)) = pass.world.silent_host(unit.record) else { continue };
            let until = since + signed(spec.lost_after.get());
            let until = (until > pass.world.now).then_some(until);
            pass.wait(Subject::Unit(unit.id.clone()), WaitingOn::Host { host: host.clone(), until });
        }
    }
    if let Some(waiting) = pass.unheard(id, spec) {
        pass.wait(Subject::Stage(id.clone()), waiting);
        return;
    }
    let nothing = StageRecord::default();
    let record = pass.world.records.stages.get(id).unwrap_or(&nothing);
    let rendered = pass.world.catalog.rendered.get(&spec.release);
    let rendered = rendered.expect("the catalog renders each release it has");
    let release = Release { name: &spec.release, template: &rendered.template, digest: rendered.digest };
    let inputs = inputs(spec, rendered.digest);
    let counts = shares(pass, id, spec, record, units, &release);
    let stage = Stage { id, spec, record, units, release, inputs, counts };
    let held = stage.unhold_if_changed(pass);
    match record.deployment.as_ref().filter(|deployment| !deployment.phase.is_over()) {
        Some(deployment) if deployment.inputs != stage.inputs => {
            let reason = Some(format!("the stage wants `{}` now", spec.release));
            stage.move_to(pass, Phase::Superseded, reason);
            if !stage.is_good() {
                stage.open(pass);
            }
        }
        Some(deployment) if deployment.paused => {
            converge::stand(pass, id, spec, record, units, &stage.goal_of_good(false));
            let reason = deployment.reason.clone().unwrap_or_default();
            pass.wait(Subject::Stage(id.clone()), WaitingOn::Paused { reason });
        }
        Some(deployment) => stage.go_on(pass, deployment),
        None if !held && stage.is_recovered() => stage.mark_good(pass),
        None if !held && let Some(until) = stage.is_recovering(pass) => {
            pass.wait(Subject::Stage(id.clone()), WaitingOn::Recovery { until });
        }
        None if !held && !stage.is_good() => stage.open(pass),
        None => stage.keep(pass, held),
    }
}

/// A stage that no manifest has any more: all of it leaves.
fn remove_stage(pass: &mut Pass<'_>, id: &StageId, units: &[Unit<'_>]) {
    let rollout = Rollout::default();
    for unit in units {
        let is_silent = matches!(unit.status, UnitStatus::Silent { .. });
        if let Some(waiting) = pass.brake.clone().filter(|_| is_silent) {
            pass.wait(Subject::Unit(unit.id.clone()), waiting);
        } else if unit.record.is_active() {
            pass.drain(unit, format!("stage `{id}` was removed"), None);
        } else {
            lifecycle::advance(pass, unit, &rollout);
        }
    }
}

/// One stage in one pass.
struct Stage<'a> {
    id: &'a StageId,
    spec: &'a StageSpec,
    record: &'a StageRecord,
    units: &'a [Unit<'a>],
    /// What it wants to run.
    release: Release<'a>,
    inputs: Digest,
    /// How many units each of its fleets is to have.
    counts: BTreeMap<Name, u32>,
}

impl Stage<'_> {
    fn is_good(&self) -> bool {
        let good = self.record.good.as_ref();
        good.is_some_and(|good| good.digest == self.release.digest && good.release == *self.release.name)
    }

    fn good(&self) -> Option<Release<'_>> {
        let Good { release, template, digest } = self.record.good.as_ref()?;
        Some(Release { name: release, template, digest: *digest })
    }

    /// Whether the stage is held; a hold that its inputs have outgrown ends.
    fn unhold_if_changed(&self, pass: &mut Pass<'_>) -> bool {
        match &self.record.hold {
            Some(hold) if hold.inputs != self.inputs => {
                pass.step(Step::Unhold { stage: self.id.clone() });
                false
            }
            hold => hold.is_some(),
        }
    }

    fn open(&self, pass: &mut Pass<'_>) {
        let now = pass.world.now;
        let deployment = Deployment {
            number: self.record.deployment.as_ref().map_or(1, |last| last.number + 1),
            from: self.record.good.as_ref().map(|good| good.release.clone()),
            to: self.spec.release.clone(),
            template: self.release.template.clone(),
            digest: self.release.digest,
            inputs: self.inputs,
            phase: Phase::Pending,
            opened: now,
            since: now,
            reason: None,
            paused: false,
            approved: None,
            gates: Gates::default(),
        };
        pass.step(Step::OpenDeployment { stage: self.id.clone(), deployment });
    }

    fn move_to(&self, pass: &mut Pass<'_>, phase: Phase, reason: Option<String>) {
        pass.step(Step::MoveDeployment { stage: self.id.clone(), phase, reason, at: pass.world.now });
    }

    fn wait(&self, pass: &mut Pass<'_>, on: WaitingOn) {
        pass.wait(Subject::Stage(self.id.clone()), on);
    }

    /// How many units are wanted, in all fleets.
    fn total(&self) -> u32 {
        self.counts.values().sum()
    }

    fn go_on(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        match deployment.phase {
            Phase::Pending => self.pending(pass, deployment),
            Phase::RollingBack => self.rolling_back(pass),
            Phase::Gating => {
                self.unless_failed(pass, deployment, |stage, pass| stage.gating(pass, deployment))
            }
            Phase::Rolling { batch } => self.unless_failed(pass, deployment, |stage, pass| {
                stage.rolling(pass, deployment, batch);
            }),
            Phase::Baking { batch } => self.unless_failed(pass, deployment, |stage, pass| {
                stage.baking(pass, deployment, batch);
            }),
            Phase::Verifying => {
                self.unless_failed(pass, deployment, |stage, pass| stage.verifying(pass, deployment))
            }
            Phase::Succeeded | Phase::RolledBack | Phase::Superseded => {}
        }
    }

    /// Moves units up to the size of a batch.
    fn advance(
        &self,
        pass: &mut Pass<'_>,
        deployment: &Deployment,
        batch: u32,
        rest: Option<Release<'_>>,
    ) -> Progress {
        let (units, total) = (self.counts.clone(), self.total());
        let size = self.spec.rollout.batches.get(batch as usize).map_or(total, |amount| amount.of(total));
        let goal = Goal {
            release: Some(Release {
                name: &deployment.to,
                template: &deployment.template,
                digest: deployment.digest,
            }),
            rest,
            size,
            units,
            back: false,
            withheld: false,
        };
        converge(pass, self.id, self.spec, self.record, self.units, &goal)
    }

    fn rolling(&self, pass: &mut Pass<'_>, deployment: &Deployment, batch: u32) {
        let progress = self.advance(pass, deployment, batch, None);
        if progress.done {
            self.move_to(pass, Phase::Baking { batch }, None);
        } else if self.is_overdue(pass, deployment) {
            self.fail(pass, deployment, format!("batch {} was not done in time", batch + 1));
        } else {
            self.wait_for_units(pass, &progress, batch);
        }
    }

    fn is_overdue(&self, pass: &Pass<'_>, deployment: &Deployment) -> bool {
        deadline(&self.spec.rollout, deployment).is_some_and(|at| pass.world.now >= at)
    }

    fn wait_for_units(&self, pass: &mut Pass<'_>, progress: &Progress, batch: u32) {
        if !pass.plan.waiting.contains_key(&Subject::Stage(self.id.clone())) {
            if let Some(until) = pass.world.deaf_until() {
                let gateways = pass.world.observed.gateways.keys().cloned().collect();
                self.wait(pass, WaitingOn::SilentGateways { gateways, until });
                return;
            }
            let total = self.total();
            let of = self.spec.rollout.batches.get(batch as usize).map_or(total, |amount| amount.of(total));
            self.wait(pass, WaitingOn::Units { ready: progress.ready, of });
        }
    }

    fn baking(&self, pass: &mut Pass<'_>, deployment: &Deployment, batch: u32) {
        let until = deployment.since + signed(self.spec.rollout.bake.get());
        let is_last = batch as usize + 1 >= self.spec.rollout.batches.len();
        let may_go_on = calendar::may_begin(&self.spec.rollout, pass.world.now);
        // The next batch would replace what is lost of the old release. It may be days away.
        let rest = self.good().filter(|_| !is_last && may_go_on.is_err());
        let progress = self.advance(pass, deployment, batch, rest);
        if pass.world.now < until {
            self.wait(pass, WaitingOn::Bake { until });
        } else if !progress.done {
            self.wait_for_units(pass, &progress, batch);
        } else if !self.is_measured(pass, deployment) {
            // What is waited for, or what comes of it, is said.
        } else if is_last {
            self.move_to(pass, Phase::Verifying, None);
        } else if let Err(waiting) = may_go_on {
            self.wait(pass, waiting);
        } else {
            self.move_to(pass, Phase::Rolling { batch: batch + 1 }, None);
        }
    }

    fn verifying(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        let progress = self.advance(pass, deployment, u32::MAX, None);
        if !progress.done && self.is_overdue(pass, deployment) {
            self.fail(pass, deployment, "it was not verified in time".to_owned());
        } else if !progress.done {
            self.wait_for_units(pass, &progress, u32::MAX);
        } else if self.passes_after(pass, deployment) {
            let Deployment { to, template, digest, .. } = deployment.clone();
            self.rename(pass, &to, digest);
            let good = Good { release: to, template, digest };
            pass.step(Step::MarkGood { stage: self.id.clone(), good });
            if self.record.repairs.failures > 0 {
                pass.step(Step::SettleRepairs { stage: self.id.clone() });
            }
            self.move_to(pass, Phase::Succeeded, None);
        }
    }

    /// What runs just what a release means is called by its name.
    fn rename(&self, pass: &mut Pass<'_>, to: &Name, digest: Digest) {
        let other = |unit: &&Unit<'_>| unit.record.is_active() && unit.record.template == digest;
        for unit in self.units.iter().filter(other).filter(|unit| unit.record.release != *to) {
            pass.step(Step::RenameRelease { unit: unit.id.clone(), release: to.clone() });
        }
    }

    /// Goes on, unless the new release has shown that it is not good.
    fn unless_failed(
        &self,
        pass: &mut Pass<'_>,
        deployment: &Deployment,
        go_on: impl FnOnce(&Self, &mut Pass<'_>),
    ) {
        match self.failure(deployment) {
            Some(reason) => self.fail(pass, deployment, reason),
            None => match self.fires(pass, deployment) {
                Some(reason) => self.fail_by_gate(pass, deployment, reason),
                None => go_on(self, pass),
            },
        }
    }

    /// Why the new release is not good, if it is not.
    fn failure(&self, deployment: &Deployment) -> Option<String> {
        let template = deployment.digest;
        self.units.iter().filter(|unit| unit.record.template == template && unit.record.is_active()).find_map(
            |unit| {
                let (id, host) = (unit.id, &unit.record.front().host);
                match &unit.status {
                    UnitStatus::Failed { reason, fault: Fault::Release } => {
                        Some(format!("unit `{id}` on `{host}`: {reason}"))
                    }
                    UnitStatus::Unhealthy { reason } => {
                        Some(format!("unit `{id}` on `{host}` became unhealthy: {reason}"))
                    }
                    // Another host may do better.
                    UnitStatus::Failed { fault: Fault::Host(_), .. }
                    | UnitStatus::Planned
                    | UnitStatus::Preparing
                    | UnitStatus::Starting
                    | UnitStatus::Withheld
                    | UnitStatus::Checking { .. }
                    | UnitStatus::Ready
                    | UnitStatus::Silent { .. }
                    | UnitStatus::Drifted { .. }
                    | UnitStatus::Draining
                    | UnitStatus::Stopping
                    | UnitStatus::Stopped => None,
                }
            },
        )
    }

    fn fail(&self, pass: &mut Pass<'_>, deployment: &Deployment, reason: String) {
        let (stage, now) = (self.id.clone(), pass.world.now);
        match self.spec.rollout.on_alarm {
            OnAlarm::Pause => pass.step(Step::PauseDeployment { stage, reason, at: now }),
            OnAlarm::Rollback => {
                pass.plan.steps.extend(roll_back(&stage, deployment, reason, now));
            }
        }
    }

    /// As [`Stage::fail`], for what a gate or an alarm says, which a person may overrule.
    fn fail_by_gate(&self, pass: &mut Pass<'_>, deployment: &Deployment, reason: String) {
        match self.spec.rollout.on_alarm {
            OnAlarm::Pause => self.ask_a_person(pass, reason),
            OnAlarm::Rollback => self.fail(pass, deployment, reason),
        }
    }

    fn ask_a_person(&self, pass: &mut Pass<'_>, reason: String) {
        pass.step(Step::AwaitDecision { stage: self.id.clone(), reason, at: pass.world.now });
    }

    fn rolling_back(&self, pass: &mut Pass<'_>) {
        let progress = self.to_good(pass, true);
        if progress.done {
            self.move_to(pass, Phase::RolledBack, None);
        } else if self.record.good.is_some() {
            self.wait_for_units(pass, &progress, u32::MAX);
        }
    }

    /// Nothing is under way: what runs is kept as it should be.
    fn keep(&self, pass: &mut Pass<'_>, held: bool) {
        if let (true, Some(hold)) = (held, &self.record.hold) {
            let at = self.record.good.as_ref().map(|good| good.release.clone());
            let (release, reason) = (hold.release.clone(), hold.reason.clone());
            self.wait(pass, WaitingOn::Held { release, at, reason });
        }
        if let Some(good) = &self.record.good {
            self.rename(pass, &good.release, good.digest);
        }
        let progress = self.to_good(pass, false);
        if progress.done && self.record.repairs.failures > 0 {
            pass.step(Step::SettleRepairs { stage: self.id.clone() });
        }
    }

    fn to_good(&self, pass: &mut Pass<'_>, back: bool) -> Progress {
        converge(pass, self.id, self.spec, self.record, self.units, &self.goal_of_good(back))
    }

    /// Nothing but the good release, if there is one.
    fn goal_of_good(&self, back: bool) -> Goal<'_> {
        let release = self.good();
        let units = if release.is_some() { self.counts.clone() } else { BTreeMap::new() };
        Goal { release, rest: None, size: units.values().sum(), units, back, withheld: false }
    }
}

/// When the phase that the deployment is in has taken too long, if its stage says so.
pub(crate) fn deadline(rollout: &Rollout, deployment: &Deployment) -> Option<jiff::Timestamp> {
    let deadlines = &rollout.deadlines;
    let within = match deployment.phase {
        Phase::Pending => deadlines.prepare,
        Phase::Gating => deadlines.gate,
        Phase::Rolling { .. } => deadlines.batch,
        Phase::Verifying => deadlines.verify,
        Phase::Baking { .. }
        | Phase::Succeeded
        | Phase::RollingBack
        | Phase::RolledBack
        | Phase::Superseded => None,
    };
    Some(deployment.since + signed(within?.get()))
}

/// Whether a person has approved the deployment, or need not.
pub(crate) fn is_approved(rollout: &Rollout, deployment: &Deployment) -> bool {
    match rollout.approval {
        Approval::None => true,
        Approval::Required => deployment.approved.is_some(),
    }
}

/// A deployment turns back, and what it was made from is not tried again by itself.
pub(crate) fn roll_back(
    stage: &StageId,
    deployment: &Deployment,
    reason: String,
    at: jiff::Timestamp,
) -> [Step; 2] {
    let hold =
        Hold { inputs: deployment.inputs, release: deployment.to.clone(), reason: reason.clone(), since: at };
    [
        Step::Hold { stage: stage.clone(), hold },
        Step::MoveDeployment { stage: stage.clone(), phase: Phase::RollingBack, reason: Some(reason), at },
    ]
}
