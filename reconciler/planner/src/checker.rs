//! Whether a plan keeps the invariants, told apart from how the plan was made. It runs after every plan in tests, and
//! in production before a plan is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use denv_schema::launch::LaunchTemplate;
use denv_schema::manifest::{PlacementRule, StageSpec, Strategy};
use denv_schema::wire::{Ability, Artifact, ArtifactState};
use denv_schema::{Name, StageId, UnitId};

use crate::calendar::may_begin;
use crate::converge::{count, floor};
use crate::counts::wanted;
use crate::deployment::is_approved;
use crate::deployment::prefetch::progress;
use crate::lifecycle::drained;
use crate::plan::{Plan, Step};
use crate::reclaim::reclaimed;
use crate::records::{Deployment, Phase, Records, StageRecord, UnitPhase, UnitRecord};
use crate::status::{Service, UnitStatus, service, status};
use crate::trial::is_admitted;
use crate::world::World;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Invariant 1.
    GpuTakenTwice { host: Name, gpu: u32, units: [UnitId; 2] },
    /// Invariant 1.
    SlotsOvercommitted { host: Name, taken: u32, of: u32 },
    /// Invariant 1.
    OutOfPlace { unit: UnitId, host: Name, fleet: Name },
    /// Invariant 1: it would not get all that it takes.
    Incomplete { unit: UnitId },
    /// Invariant 1.
    SpansDomains { unit: UnitId },
    /// Invariant 2.
    BelowFloor { stage: StageId, left: u32, floor: u32 },
    /// Invariant 3.
    StoppedUndrained { unit: UnitId },
    /// Invariant 3.
    NotReplaced { stage: StageId },
    /// Invariant 5.
    GenerationRepeated { unit: UnitId },
    /// Invariant 2.
    RestartedServing { unit: UnitId },
    /// Invariant 1: what is off the books may still hold what it was given.
    ForgottenRunning { unit: UnitId },
    /// Invariant 6.
    RemovedWhileBlind { unit: UnitId },
    /// What the stage's windows and freezes promise to people.
    BegunOutsideWindows { stage: StageId },
    /// What the stage's manifest leaves to a person.
    BegunUnapproved { stage: StageId },
    /// Nothing stops for a release that no host has ready.
    BegunUnprepared { stage: StageId },
    /// A release takes no traffic before its gate.
    BegunUngated { stage: StageId },
    /// A unit takes no traffic before its release's gate.
    AdmittedUngated { unit: UnitId },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::GpuTakenTwice { host, gpu, units: [a, b] } => {
                write!(f, "GPU {gpu} of `{host}` would belong to `{a}` and `{b}`")
            }
            Violation::SlotsOvercommitted { host, taken, of } => {
                write!(f, "{taken} CPU slots of `{host}` would be taken, and it has {of}")
            }
            Violation::OutOfPlace { unit, host, fleet } => {
                write!(f, "`{unit}` would start on `{host}`, which can't take units of fleet `{fleet}`")
            }
            Violation::Incomplete { unit } => {
                write!(f, "`{unit}` would start with a part of what its release takes")
            }
            Violation::SpansDomains { unit } => {
                write!(f, "`{unit}` would span several domains, and its release asks for one")
            }
            Violation::BelowFloor { stage, left, floor } => {
                write!(f, "`{stage}` would be left with {left} ready units, and must keep {floor}")
            }
            Violation::StoppedUndrained { unit } => {
                write!(f, "`{unit}` would stop while gateways may use it")
            }
            Violation::NotReplaced { stage } => {
                write!(f, "`{stage}` would drain units that nothing replaces yet")
            }
            Violation::GenerationRepeated { unit } => {
                write!(f, "`{unit}` would start twice in one generation")
            }
            Violation::RestartedServing { unit } => {
                write!(f, "`{unit}` would be restarted while requests may go to it")
            }
            Violation::ForgottenRunning { unit } => {
                write!(f, "`{unit}` would be forgotten before it is seen gone")
            }
            Violation::RemovedWhileBlind { unit } => {
                write!(f, "`{unit}` would be removed for silence while too many hosts are silent")
            }
            Violation::BegunOutsideWindows { stage } => {
                write!(f, "a batch of `{stage}` would begin outside its windows, or in a freeze")
            }
            Violation::BegunUnapproved { stage } => {
                write!(f, "the deployment of `{stage}` would begin before a person has approved it")
            }
            Violation::BegunUnprepared { stage } => {
                write!(f, "the deployment of `{stage}` would begin before any host has prepared its release")
            }
            Violation::BegunUngated { stage } => {
                write!(f, "the first batch of `{stage}` would begin before its release has passed its gate")
            }
            Violation::AdmittedUngated { unit } => {
                write!(f, "`{unit}` would take traffic before its release has passed its gate")
            }
        }
    }
}

/// What a plan would break. Empty: it may be carried out.
pub fn check(world: &World<'_>, plan: &Plan) -> Vec<Violation> {
    let mut found = Vec::new();
    if plan.steps.is_empty() {
        return found;
    }
    let mut after = world.records.clone();
    let mut drains: BTreeMap<&StageId, Vec<(&UnitId, &UnitRecord)>> = BTreeMap::new();
    for step in &plan.steps {
        match step {
            Step::StartUnit { unit, record } => {
                start(world, &after, unit, record, &mut found);
                if world.records.units.contains_key(unit) || after.units.contains_key(unit) {
                    found.push(Violation::GenerationRepeated { unit: unit.clone() });
                }
            }
            Step::AdoptUnit { unit, .. } if after.units.contains_key(unit) => {
                found.push(Violation::GenerationRepeated { unit: unit.clone() });
            }
            Step::RestartUnit { unit, generation, .. } => {
                let repeated =
                    world.records.units.get(unit).is_none_or(|record| record.generation >= *generation);
                found.extend(repeated.then(|| Violation::GenerationRepeated { unit: unit.clone() }));
                let record = world.records.units.get(unit);
                if record.is_some_and(|record| serves(world, unit, record) != Service::Nobody) {
                    found.push(Violation::RestartedServing { unit: unit.clone() });
                }
            }
            Step::EndStranger { unit, member, host, .. }
                if after
                    .units
                    .get(unit)
                    .is_some_and(|of| of.members.iter().any(|of| of.id == *member && of.host == *host)) =>
            {
                found.push(Violation::StoppedUndrained { unit: unit.clone() });
            }
            Step::ForgetUnit { unit } => {
                let record = world.records.units.get(unit);
                if record.is_none_or(|record| status(world, unit, record) != UnitStatus::Stopped) {
                    found.push(Violation::ForgottenRunning { unit: unit.clone() });
                }
            }
            Step::DrainUnit { unit, .. } => {
                if let Some(record) = world.records.units.get(unit) {
                    drains.entry(&record.stage).or_default().push((unit, record));
                }
            }
            Step::StopUnit { unit, .. } => {
                if let Some(record) = world.records.units.get(unit) {
                    let rollout = world.catalog.stages.get(&record.stage).map(|stage| stage.rollout.clone());
                    let rollout = rollout.unwrap_or_default();
                    let left =
                        record.phase == UnitPhase::Draining && drained(world, unit, record, &rollout).is_ok();
                    if !left {
                        found.push(Violation::StoppedUndrained { unit: unit.clone() });
                    }
                }
            }
            Step::MoveDeployment {
                stage, phase: phase @ (Phase::Gating | Phase::Rolling { .. }), ..
            } => {
                begin(world, &after, stage, *phase, &mut found);
            }
            Step::AdmitUnit { unit, .. } if !may_admit(world, &after, unit) => {
                found.push(Violation::AdmittedUngated { unit: unit.clone() });
            }
            Step::MarkReady { unit, .. } if after.units.get(unit).is_some_and(|record| record.withheld) => {
                found.push(Violation::AdmittedUngated { unit: unit.clone() });
            }
            Step::OpenDeployment { .. }
            | Step::MoveDeployment { .. }
            | Step::PauseDeployment { .. }
            | Step::ResumeDeployment { .. }
            | Step::AdoptUnit { .. }
            | Step::AdmitUnit { .. }
            | Step::AwaitDecision { .. }
            | Step::ApproveDeployment { .. }
            | Step::BeginTrial { .. }
            | Step::EndTrial { .. }
            | Step::MarkGood { .. }
            | Step::Hold { .. }
            | Step::Unhold { .. }
            | Step::Scale { .. }
            | Step::SettleRepairs { .. }
            | Step::MarkReady { .. }
            | Step::RenameRelease { .. }
            | Step::EndStranger { .. } => {}
        }
        after.apply(step);
    }
    for (stage, drained) in drains {
        budget(world, stage, &drained, &mut found);
    }
    resources(world, &after.units, &mut found);
    found
}

fn deployment_of<'a>(records: &'a Records, stage: &StageId) -> Option<(&'a StageRecord, &'a Deployment)> {
    let record = records.stages.get(stage)?;
    Some((record, record.deployment.as_ref()?))
}

/// A deployment begins approved and in its windows, and each later batch in them too; its first batch begins gated.
fn begin(world: &World<'_>, after: &Records, stage: &StageId, phase: Phase, found: &mut Vec<Violation>) {
    let Some(spec) = world.catalog.stages.get(stage) else { return };
    let Some((record, deployment)) = deployment_of(after, stage) else { return };
    // What the gate has let through began with the gate.
    let is_gated = deployment.phase == Phase::Gating;
    if !is_gated && may_begin(&spec.rollout, world.now).is_err() {
        found.push(Violation::BegunOutsideWindows { stage: stage.clone() });
    }
    if deployment.phase == Phase::Pending && !is_approved(&spec.rollout, deployment) {
        found.push(Violation::BegunUnapproved { stage: stage.clone() });
    }
    if deployment.phase == Phase::Pending && !is_prepared(world, spec, stage, deployment) {
        found.push(Violation::BegunUnprepared { stage: stage.clone() });
    }
    if phase == (Phase::Rolling { batch: 0 }) && !is_admitted(spec, record, deployment) {
        found.push(Violation::BegunUngated { stage: stage.clone() });
    }
}

/// Whether a host that may take the release's units has what they are started from, or is not asked to before. Where no
/// unit is to come, or one has come already, there is nothing to prepare.
fn is_prepared(world: &World<'_>, spec: &StageSpec, stage: &StageId, deployment: &Deployment) -> bool {
    let wanted: Vec<Artifact> = deployment.template.artifacts().collect();
    let mut units = world.records.units.values().filter(|unit| unit.stage == *stage);
    if wanted.is_empty()
        || units.any(|unit| unit.template == deployment.digest)
        || crate::counts::wanted(spec, world.records.stages.get(stage)) == 0
    {
        return true;
    }
    let fleets: BTreeSet<&Name> = spec.fleets.iter().map(|fleet| &fleet.name).collect();
    let hosts = world.catalog.hosts.iter().filter(|(_, host)| fleets.contains(&host.fleet));
    let mut heard = hosts.filter_map(|(name, _)| world.host(name)).filter(|host| host.connected);
    heard.any(|host| {
        !host.report.inventory.abilities.contains(&Ability::Prefetch)
            || progress(host, &wanted) == ArtifactState::Ready
    })
}

/// Whether a unit's release has passed its gate.
fn may_admit(world: &World<'_>, after: &Records, unit: &UnitId) -> bool {
    let admitted = || {
        let unit = world.records.units.get(unit)?;
        let spec = world.catalog.stages.get(&unit.stage)?;
        let (record, deployment) = deployment_of(after, &unit.stage)?;
        Some(deployment.digest == unit.template && is_admitted(spec, record, deployment))
    };
    admitted() == Some(true)
}

/// A unit gets all that it takes, on hosts of its fleet that may take it, and within one domain unless it may span them.
fn start(world: &World<'_>, after: &Records, unit: &UnitId, record: &UnitRecord, found: &mut Vec<Violation>) {
    let spec = |host: &Name| world.catalog.hosts.get(host);
    let may_take = |host: &Name| spec(host).is_some_and(|spec| spec.fleet == record.fleet && !spec.cordoned);
    if let Some(member) = record.members.iter().find(|member| !may_take(&member.host)) {
        let (host, fleet) = (member.host.clone(), record.fleet.clone());
        found.push(Violation::OutOfPlace { unit: unit.clone(), host, fleet });
    }
    let is_gated = deployment_of(after, &record.stage)
        .is_some_and(|(_, it)| it.phase == Phase::Gating && it.digest == record.template);
    if is_gated && !record.withheld {
        found.push(Violation::AdmittedUngated { unit: unit.clone() });
    }
    let Some(template) = template(world, after, record) else {
        found.push(Violation::Incomplete { unit: unit.clone() });
        return;
    };
    let whole = template.pools.iter().all(|pool| {
        let mine = || record.members.iter().filter(|member| member.pool == pool.name);
        match pool.needs.gpus {
            Some(gpus) => count(mine().flat_map(|member| &member.spec.claim.gpus)) == gpus,
            None => mine().map(|member| member.cpu_slots).sum::<u32>() == pool.needs.cpu_slots.unwrap_or(1),
        }
    });
    if !whole {
        found.push(Violation::Incomplete { unit: unit.clone() });
    }
    let domains: BTreeSet<&Name> =
        record.members.iter().filter_map(|member| world.domain(&member.host)).collect();
    if template.placement == PlacementRule::SameDomain && domains.len() > 1 {
        found.push(Violation::SpansDomains { unit: unit.clone() });
    }
}

/// What the unit's release means, by whichever of the stage's records or manifests says it.
fn template<'a>(world: &World<'a>, after: &'a Records, record: &UnitRecord) -> Option<&'a LaunchTemplate> {
    let stage = after.stages.get(&record.stage);
    let deployment = stage.and_then(|stage| stage.deployment.as_ref());
    let good = stage.and_then(|stage| stage.good.as_ref());
    let known = [
        deployment.map(|deployment| (deployment.digest, &deployment.template)),
        good.map(|good| (good.digest, &good.template)),
        world.catalog.rendered.get(&record.release).map(|rendered| (rendered.digest, &rendered.template)),
    ];
    known.into_iter().flatten().find(|(digest, _)| *digest == record.template).map(|(_, template)| template)
}

fn is_ready(world: &World<'_>, id: &UnitId, record: &UnitRecord) -> bool {
    serves(world, id, record) == Service::Sure
}

fn serves(world: &World<'_>, id: &UnitId, record: &UnitRecord) -> Service {
    service(world, id, record, &status(world, id, record))
}

fn budget(
    world: &World<'_>,
    stage: &StageId,
    drained: &[(&UnitId, &UnitRecord)],
    found: &mut Vec<Violation>,
) {
    // What its provider takes back ends whatever denv does.
    let drained: Vec<_> =
        drained.iter().filter(|(_, record)| reclaimed(world, record).is_none()).copied().collect();
    if crate::loss::brake(world).is_some() {
        for (id, record) in &drained {
            if matches!(status(world, id, record), UnitStatus::Silent { .. }) {
                found.push(Violation::RemovedWhileBlind { unit: (*id).clone() });
            }
        }
    }
    // A stage that no manifest has keeps nothing; one with nothing good to keep has no floor.
    let Some(spec) = world.catalog.stages.get(stage) else { return };
    let gone = count(drained.iter().filter(|(id, record)| is_ready(world, id, record)));
    let perhaps = drained.iter().any(|(id, record)| serves(world, id, record) == Service::Perhaps);
    if gone == 0 && !perhaps || world.records.stages.get(stage).is_none_or(|record| record.good.is_none()) {
        return;
    }
    let units = || {
        let of_stage = world.records.units.iter().filter(|(_, record)| record.stage == *stage);
        of_stage.filter(|(_, record)| reclaimed(world, record).is_none())
    };
    let ready = count(units().filter(|(id, record)| is_ready(world, id, record)));
    let total = wanted(spec, world.records.stages.get(stage));
    let (left, floor) = (ready - gone, floor(spec, total));
    if left < floor {
        found.push(Violation::BelowFloor { stage: stage.clone(), left, floor });
    }
    if spec.rollout.strategy == Strategy::Surge {
        replaced(world, stage, (spec, total), &drained, found);
    }
}

/// Under surge, what a fleet keeps, with what is ready of the release it moves to, is all that it should have, or all that
/// the stage should have.
fn replaced(
    world: &World<'_>,
    stage: &StageId,
    (spec, total): (&StageSpec, u32),
    drained: &[(&UnitId, &UnitRecord)],
    found: &mut Vec<Violation>,
) {
    let Some(record) = world.records.stages.get(stage) else { return };
    let forward = record.deployment.as_ref().filter(|deployment| {
        !deployment.phase.is_over() && deployment.phase != Phase::RollingBack && deployment.to == spec.release
    });
    let target = match (forward, &record.good) {
        (Some(deployment), _) => deployment.digest,
        (None, Some(good)) => good.digest,
        (None, None) => return,
    };
    let leaves = |id: &UnitId| drained.iter().any(|(drained, _)| *drained == id);
    let kept = |fleet: Option<&Name>| {
        count(world.records.units.iter().filter(|(id, record)| {
            record.stage == *stage
                && fleet.is_none_or(|fleet| record.fleet == *fleet)
                && record.is_active()
                && !leaves(id)
                && (is_ready(world, id, record) || record.template != target)
        }))
    };
    let short = spec.fleets.iter().any(|fleet| {
        let of_fleet = |record: &UnitRecord| record.stage == *stage && record.fleet == fleet.name;
        let replaces = drained
            .iter()
            .any(|(id, record)| of_fleet(record) && record.template != target && is_ready(world, id, record));
        replaces && kept(Some(&fleet.name)) < fleet.units.min
    });
    // Where a fleet has no room for its share, others have it.
    if short && kept(None) < total {
        found.push(Violation::NotReplaced { stage: stage.clone() });
    }
}

fn resources(world: &World<'_>, units: &BTreeMap<UnitId, Arc<UnitRecord>>, found: &mut Vec<Violation>) {
    let mut gpus: BTreeMap<(&Name, u32), &UnitId> = BTreeMap::new();
    let (mut slots, mut before): (BTreeMap<&Name, u32>, BTreeMap<&Name, u32>) = Default::default();
    for member in world.records.units.values().flat_map(|unit| &unit.members) {
        *before.entry(&member.host).or_default() += member.cpu_slots;
    }
    for (id, member) in units.iter().flat_map(|(id, unit)| unit.members.iter().map(move |of| (id, of))) {
        for gpu in &member.spec.claim.gpus {
            if let Some(other) = gpus.insert((&member.host, *gpu), id) {
                let units = [other.clone(), id.clone()];
                found.push(Violation::GpuTakenTwice { host: member.host.clone(), gpu: *gpu, units });
            }
        }
        *slots.entry(&member.host).or_default() += member.cpu_slots;
    }
    for (host, taken) in slots {
        // A host whose slots were lowered, or that was removed, may hold more until its units have left: only a plan
        // that adds to it is wrong.
        let before = before.get(host).copied().unwrap_or(0);
        let of = world.catalog.hosts.get(host).and_then(|host| host.cpu_slots).unwrap_or(0);
        if taken > of && taken > before {
            found.push(Violation::SlotsOvercommitted { host: host.clone(), taken, of });
        }
    }
}
