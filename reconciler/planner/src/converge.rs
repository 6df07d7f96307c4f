//! Which units to start and which to drain, so that a stage comes to its goal within its budget. Rolling forward,
//! rolling back, scaling and repairing are this one function with other goals.

use std::collections::BTreeMap;

use denv_schema::manifest::{StageSpec, Strategy, Stripe};
use denv_schema::{Digest, Name, StageId, UnitId};

use crate::batches::batch;
use crate::loss;
use crate::pass::{Pass, Unit};
use crate::placement::{Release, place};
use crate::plan::{Step, Subject};
use crate::records::{MemberRecord, StageRecord, UnitPhase, UnitRecord};
use crate::status::{Service, UnitStatus};
use crate::waiting::WaitingOn;
use crate::world::{World, signed};

/// What a stage is to come to.
pub(crate) struct Goal<'a> {
    /// None: nothing is to run.
    pub release: Option<Release<'a>>,
    /// What the units that the batch leaves run, where those of them that are lost are to be replaced meanwhile.
    pub rest: Option<Release<'a>>,
    /// How many units each fleet has in the end.
    pub units: BTreeMap<Name, u32>,
    /// How many of all of them run the release at the end of this batch.
    pub size: u32,
    /// Units leave without waiting to be replaced one by one when they serve nobody: the way back is short.
    pub back: bool,
    /// Units of the release that are started take no traffic before it has passed its gate.
    pub withheld: bool,
}

pub(crate) struct Progress {
    /// Units of the goal's release that are ready.
    pub ready: u32,
    /// All that the batch asks for is ready, and all that should be gone is gone.
    pub done: bool,
}

/// The longest wait between tries to replace units that fail.
const REPAIR_MOST: std::time::Duration = std::time::Duration::from_secs(600);
const REPAIR_FIRST: std::time::Duration = std::time::Duration::from_secs(5);

pub(crate) fn converge(
    pass: &mut Pass<'_>,
    stage: &StageId,
    spec: &StageSpec,
    record: &StageRecord,
    units: &[Unit<'_>],
    goal: &Goal<'_>,
) -> Progress {
    let template = goal.release.map(|release| release.digest);
    let mut budget = Budget::of(spec, goal, units);
    // What the good release's failures have put off is its own next try, not the release that may mend it.
    let is_good = record.good.as_ref().is_some_and(|good| Some(good.digest) == template);
    let mut repair_at = record.repairs.not_before.filter(|_| is_good);
    let (mut done, mut ready) = (true, 0);
    let mut fleets: Vec<&Name> = goal.units.keys().collect();
    fleets
        .extend(units.iter().map(|unit| &unit.record.fleet).filter(|fleet| !goal.units.contains_key(*fleet)));
    fleets.sort();
    fleets.dedup();
    let fleets: Vec<(&Name, Sorted<'_, '_>)> = fleets
        .into_iter()
        .map(|fleet| (fleet, Sorted::of(pass, spec, template, fleet, goal, units)))
        .collect();
    let kept = fleets.iter().map(|(fleet, sorted)| ((*fleet).clone(), count(&sorted.others))).collect();
    let batch = batch(goal.size, &goal.units, &kept);
    let is_last = goal.size >= goal.units.values().sum();
    for (fleet, sorted) in fleets {
        let next = drain_failed(pass, record, sorted.failed.iter().copied(), repair_at);
        if is_good && !goal.back {
            repair_at = next;
        }
        let want = goal.units.get(fleet).copied().unwrap_or(0);
        let target = batch.get(fleet).copied().unwrap_or(0);
        let turn = Turn {
            template,
            stage,
            spec,
            units,
            fleet,
            want,
            target,
            back: goal.back,
            withheld: goal.withheld,
        };
        let room = start(pass, &turn, goal, &sorted, repair_at);
        keep_rest(pass, &turn, goal, &sorted, repair_at.max(record.repairs.not_before).max(next));
        drain_others(pass, &turn, &sorted, &mut budget, room);
        drain_surplus(pass, &turn, &sorted, &mut budget);
        let ready_here = count(sorted.mine.iter().filter(|unit| unit.is_ready()));
        ready += ready_here;
        done &= ready_here >= target
            && count(&sorted.others) <= want.saturating_sub(target)
            // What is more in one fleet may have to stay until a later batch fills another.
            && (!is_last || count(&sorted.mine) <= want);
    }
    let leaving = units.iter().any(|unit| !unit.record.is_active() && !is_lost(pass, spec, unit));
    let failed = units.iter().any(|unit| unit.is_failed());
    Progress { ready, done: done && !leaving && !failed }
}

/// What a deployment that has been stopped does: nothing moves on, what fails leaves, and what the stage then lacks is made
/// up for with the release that is known to be good. Whoever decides may be hours away.
pub(crate) fn stand(
    pass: &mut Pass<'_>,
    stage: &StageId,
    spec: &StageSpec,
    record: &StageRecord,
    units: &[Unit<'_>],
    goal: &Goal<'_>,
) {
    let active = units.iter().filter(|unit| unit.record.is_active());
    let next = drain_failed(pass, record, active, record.repairs.not_before);
    let Some(good) = goal.release else { return };
    for (fleet, want) in &goal.units {
        let here = Sorted::of(pass, spec, None, fleet, goal, units).others;
        // What is withheld serves nobody, and may for long.
        let serving = count(here.iter().filter(|unit| !unit.record.withheld));
        begin(pass, stage, fleet, &good, want.saturating_sub(serving), false, next);
    }
}

/// A stage's ready units, and the least that must be left of them.
struct Budget {
    ready: u32,
    floor: u32,
}

impl Budget {
    fn of(spec: &StageSpec, goal: &Goal<'_>, units: &[Unit<'_>]) -> Self {
        Budget {
            ready: count(units.iter().filter(|unit| unit.is_ready())),
            floor: floor(spec, goal.units.values().sum()),
        }
    }

    /// Whether a unit may leave, and if so, that it does.
    fn take(&mut self, unit: &Unit<'_>) -> bool {
        match unit.service {
            Service::Nobody => true,
            // It is not among the ready, but may be in truth: those must do without it.
            Service::Perhaps => self.ready >= self.floor,
            Service::Sure if self.ready > self.floor => {
                self.ready -= 1;
                true
            }
            Service::Sure => false,
        }
    }
}

/// The least ready units that a rollout may leave of `total`.
pub(crate) fn floor(spec: &StageSpec, total: u32) -> u32 {
    total - spec.rollout.max_unavailable.of_rounded_down(total)
}

/// The wanted units of one fleet, by what they are to the goal.
struct Sorted<'u, 'w> {
    /// Of the goal's release, in their place.
    mine: Vec<&'u Unit<'w>>,
    /// Of another release, or on a host that left the fleet.
    others: Vec<&'u Unit<'w>>,
    failed: Vec<&'u Unit<'w>>,
}

impl<'u, 'w> Sorted<'u, 'w> {
    fn of(
        pass: &Pass<'_>,
        spec: &StageSpec,
        template: Option<Digest>,
        fleet: &Name,
        goal: &Goal<'_>,
        units: &'u [Unit<'w>],
    ) -> Self {
        let mut sorted = Sorted { mine: Vec::new(), others: Vec::new(), failed: Vec::new() };
        for unit in units.iter().filter(|unit| unit.record.fleet == *fleet && unit.record.is_active()) {
            let in_place = goal.units.contains_key(fleet) && out_of_place(pass.world, unit.record).is_none();
            if unit.is_failed() {
                sorted.failed.push(unit);
            } else if in_place && is_lost(pass, spec, unit) {
                // Out of reach: counted as gone, and kept on the books for when its host returns.
            } else if in_place && Some(unit.record.template) == template {
                sorted.mine.push(unit);
            } else {
                sorted.others.push(unit);
            }
        }
        sorted
    }
}

/// A host of the unit that is not of its fleet any more.
fn out_of_place<'u>(world: &World<'_>, unit: &'u UnitRecord) -> Option<&'u Name> {
    let of_fleet = |host: &Name| world.catalog.hosts.get(host).is_some_and(|spec| spec.fleet == unit.fleet);
    unit.members.iter().map(|member| &member.host).find(|host| !of_fleet(host))
}

pub(crate) fn is_lost(pass: &Pass<'_>, spec: &StageSpec, unit: &Unit<'_>) -> bool {
    pass.brake.is_none()
        && loss::lost_at(pass.world, unit.record, spec.lost_after.get())
            .is_some_and(|at| pass.world.now >= at)
}

/// One fleet's turn.
struct Turn<'a> {
    template: Option<Digest>,
    stage: &'a StageId,
    spec: &'a StageSpec,
    /// All units of the stage.
    units: &'a [Unit<'a>],
    fleet: &'a Name,
    want: u32,
    target: u32,
    back: bool,
    withheld: bool,
}

impl Turn<'_> {
    /// How many units the batch leaves as they are. One that is withheld comes beside them all, where units surge.
    fn leaves(&self) -> u32 {
        match self.spec.rollout.strategy {
            Strategy::Surge if self.withheld => self.want,
            Strategy::Surge | Strategy::Auto | Strategy::Replace => self.want.saturating_sub(self.target),
        }
    }
}

/// What failed serves nobody: it leaves at once. Each failure of the good release makes the next try wait longer.
pub(crate) fn drain_failed<'u, 'w: 'u>(
    pass: &mut Pass<'_>,
    record: &StageRecord,
    units: impl IntoIterator<Item = &'u Unit<'w>>,
    mut repair_at: Option<jiff::Timestamp>,
) -> Option<jiff::Timestamp> {
    for unit in units {
        let UnitStatus::Failed { reason, .. } = &unit.status else { continue };
        let is_good = record.good.as_ref().is_some_and(|good| good.digest == unit.record.template);
        let next = is_good.then(|| {
            let wait = REPAIR_FIRST.saturating_mul(1 << record.repairs.failures.min(10)).min(REPAIR_MOST);
            pass.world.now + signed(wait)
        });
        repair_at = repair_at.max(next);
        pass.drain(unit, format!("failed: {reason}"), next);
    }
    repair_at
}

/// Starts what the batch lacks. False: there was no room for all of it.
fn start(
    pass: &mut Pass<'_>,
    turn: &Turn<'_>,
    goal: &Goal<'_>,
    sorted: &Sorted<'_, '_>,
    repair_at: Option<jiff::Timestamp>,
) -> bool {
    let Some(release) = goal.release else { return true };
    let (mine, others) = (count(&sorted.mine), count(&sorted.others));
    let lacking = turn.target.saturating_sub(mine);
    let lacking = match turn.spec.rollout.strategy {
        Strategy::Surge | Strategy::Auto => lacking,
        // In place of what has left, and no more.
        Strategy::Replace => lacking.min(turn.want.saturating_sub(mine + others)),
    };
    begin(pass, turn.stage, turn.fleet, &release, lacking, turn.withheld, repair_at)
}

/// Starts again what was lost of the release that the batch leaves: the next batch may be days away.
fn keep_rest(
    pass: &mut Pass<'_>,
    turn: &Turn<'_>,
    goal: &Goal<'_>,
    sorted: &Sorted<'_, '_>,
    repair_at: Option<jiff::Timestamp>,
) {
    let Some(rest) = goal.rest else { return };
    let beyond = count(&sorted.mine).saturating_sub(turn.target);
    let lacking = turn.leaves().saturating_sub(beyond + count(&sorted.others));
    begin(pass, turn.stage, turn.fleet, &rest, lacking, false, repair_at);
}

/// Starts units of a release. False: there was no room for all of them.
fn begin(
    pass: &mut Pass<'_>,
    stage: &StageId,
    fleet: &Name,
    release: &Release<'_>,
    lacking: u32,
    withheld: bool,
    repair_at: Option<jiff::Timestamp>,
) -> bool {
    if lacking == 0 {
        return true;
    }
    if let Some(until) = repair_at.filter(|until| *until > pass.world.now) {
        let failures = pass.world.records.stages.get(stage).map_or(0, |record| record.repairs.failures);
        pass.wait(Subject::Stage(stage.clone()), WaitingOn::Repair { failures, until });
        return true;
    }
    for _ in 0..lacking {
        match place(pass.usage(), stage, fleet, release) {
            Ok(placement) => {
                let unit = UnitId::new(stage, pass.next_unit(stage));
                pass.usage().reserve(stage, release.digest, &placement);
                let record = UnitRecord {
                    stage: stage.clone(),
                    fleet: fleet.clone(),
                    release: release.name.clone(),
                    template: release.digest,
                    members: MemberRecord::of_unit(&unit, release.template, &placement.places),
                    chosen: Some(placement.chosen),
                    generation: pass.first_generation(fleet),
                    phase: UnitPhase::Starting,
                    since: pass.world.now,
                    created: pass.world.now,
                    restarts_in_a_row: 0,
                    withheld,
                    reason: None,
                };
                pass.step(Step::StartUnit { unit, record });
            }
            Err(waiting) => {
                pass.wait(Subject::Stage(stage.clone()), waiting);
                return false;
            }
        }
    }
    true
}

/// Drains what the batch replaces: first what serves nobody, then the oldest.
fn drain_others(
    pass: &mut Pass<'_>,
    turn: &Turn<'_>,
    sorted: &Sorted<'_, '_>,
    budget: &mut Budget,
    room: bool,
) {
    let ready_mine = count(sorted.mine.iter().filter(|unit| unit.is_ready()));
    let mut left = count(&sorted.others);
    for unit in order(pass.world, turn, sorted) {
        if left <= turn.leaves() {
            return;
        }
        // What remains, with what is ready of the new, must still be all that the fleet should have.
        let replaced = left - 1 + ready_mine >= turn.want;
        // Where nothing can come first, something may go first.
        let replaces = match turn.spec.rollout.strategy {
            Strategy::Surge => false,
            Strategy::Replace => true,
            Strategy::Auto => !room,
        };
        let may_go = if matches!(unit.status, UnitStatus::Silent { .. }) {
            pass.brake.is_none() && replaced
        } else if unit.service != Service::Nobody {
            replaced || replaces
        } else {
            // It serves nobody. One that never did may always go; one that did goes where its place is needed.
            replaced || turn.back || unit.record.phase == UnitPhase::Starting || replaces || !room
        };
        if !may_go || !budget.take(unit) {
            continue;
        }
        left -= 1;
        let is_other = Some(unit.record.template) != turn.template;
        let reason = match out_of_place(pass.world, unit.record) {
            _ if is_other => "its stage runs another release now".to_owned(),
            None => format!("its stage has left fleet `{}`", turn.fleet),
            Some(host) => format!("host `{host}` has left fleet `{}`", turn.fleet),
        };
        pass.drain(unit, reason, None);
    }
}

/// The order in which units leave: first what serves nobody, then the oldest. Where the stage asks for it, one of each
/// failure domain before the second of any, counted with those that are out already.
fn order<'s, 'w>(world: &World<'w>, turn: &Turn<'_>, sorted: &Sorted<'s, 'w>) -> Vec<&'s Unit<'w>> {
    let mut order = sorted.others.clone();
    order.sort_by_key(|unit| (unit.service, unit.record.created, unit.id));
    if turn.spec.rollout.stripe == Stripe::Fleet {
        return order;
    }
    let domain = |unit: &Unit<'_>| world.failure_domain(&unit.record.front().host);
    let mut out: BTreeMap<Option<&Name>, u32> = BTreeMap::new();
    for unit in turn.units.iter().filter(|unit| !unit.is_ready()) {
        *out.entry(domain(unit)).or_default() += 1;
    }
    let mut ranked: Vec<(Service, u32, &Unit<'_>)> = order
        .into_iter()
        .map(|unit| {
            let out = out.entry(domain(unit)).or_default();
            *out += 1;
            (unit.service, *out, unit)
        })
        .collect();
    ranked.sort_by_key(|(service, out, _)| (*service, *out));
    ranked.into_iter().map(|(_, _, unit)| unit).collect()
}

/// Drains what is more than wanted: first what is not ready, then the youngest.
fn drain_surplus(pass: &mut Pass<'_>, turn: &Turn<'_>, sorted: &Sorted<'_, '_>, budget: &mut Budget) {
    let surplus = count(&sorted.mine).saturating_sub(turn.want);
    let mut order = sorted.mine.clone();
    order.sort_by_key(|unit| (unit.service, std::cmp::Reverse((unit.record.created, unit.id))));
    for unit in order.into_iter().take(surplus as usize) {
        // A silent one may be the one that runs: which to keep is seen when it can be heard.
        if matches!(unit.status, UnitStatus::Silent { .. }) && pass.brake.is_some() {
            return;
        }
        if !budget.take(unit) {
            continue;
        }
        let message = format!(
            "fleet `{}` has {} units of the stage, and {} are wanted",
            turn.fleet,
            count(&sorted.mine),
            turn.want
        );
        pass.drain(unit, message, None);
    }
}

pub(crate) fn count<T>(items: impl IntoIterator<Item = T>) -> u32 {
    u32::try_from(items.into_iter().count()).unwrap_or(u32::MAX)
}
