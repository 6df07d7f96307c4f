//! The world, as people and tools are shown it. Pure: a state in, views out.

use std::collections::BTreeMap;

use denv_gates::Outcome;
use denv_planner::{
    AlarmObserved, Approved, Deployment, MemberRecord, Part, Subject, Trial, UnitRecord, UnitStatus, World,
    status,
};
use denv_schema::api::{
    AlarmView, ApprovedView, DeploymentView, GateView, GatewayView, HeldView, HostView, ManifestView,
    MemberView, StageView, UnitView, WaitingView,
};
use denv_schema::manifest::Kind;
use denv_schema::{Catalog, Digest, Name, StageId, UnitId};
use jiff::Timestamp;
use serde::Serialize;

use crate::orchestrator::State;

pub(super) fn stage(state: &State, id: &StageId) -> Option<StageView> {
    let catalog = state.catalog.as_ref()?;
    let spec = catalog.stages.get(id)?;
    let record = state.records.stages.get(id);
    let units = units(state, Some(id));
    let of_stage = |subject: &Subject| match subject {
        Subject::Stage(stage) => stage == id,
        Subject::Unit(unit) => state.records.units.get(unit).is_some_and(|unit| unit.stage == *id),
    };
    // What keeps denv itself from acting is what everything waits on.
    let problem =
        state.problem.iter().map(|on| WaitingView { subject: "control plane".to_owned(), on: on.clone() });
    let waiting = state.plan.waiting.iter().filter(|(subject, _)| of_stage(subject));
    Some(StageView {
        stage: id.clone(),
        desired: spec.release.clone(),
        good: record.and_then(|record| record.good.as_ref()).map(|good| good.release.clone()),
        held: record.and_then(|record| record.hold.as_ref()).map(|hold| HeldView {
            release: hold.release.clone(),
            reason: hold.reason.clone(),
            since: hold.since,
        }),
        ready: u32::try_from(units.iter().filter(|unit| unit.status == "ready").count()).unwrap_or(u32::MAX),
        wanted: denv_planner::wanted(spec, record),
        scaled_by: record.and_then(|record| record.scale.as_ref()).map(|scale| scale.by.clone()),
        deployment: record.and_then(|record| record.deployment.as_ref()).map(|it| deployment(id, it)),
        // What they read moves without anything being planned.
        alarms: Vec::new(),
        waiting: problem
            .chain(
                waiting.map(|(subject, on)| WaitingView { subject: subject.to_string(), on: on.to_string() }),
            )
            .collect(),
        units,
    })
}

pub(super) fn alarm((name, seen): (&Name, &AlarmObserved)) -> AlarmView {
    let reason = seen.reading.reason.clone();
    AlarmView { alarm: name.clone(), outcome: outcome(seen.reading.outcome), reason }
}

fn gate((part, trial): (&Part, &Trial)) -> GateView {
    GateView {
        part: part.as_str().to_owned(),
        suite: trial.suite.clone(),
        attempt: trial.attempt,
        asked: trial.asked.to_string(),
        since: trial.since,
        outcome: trial.ended.as_ref().map(|ended| outcome(ended.outcome)),
        reason: trial.ended.as_ref().map(|ended| ended.reason.clone()).or_else(|| trial.last.clone()),
    }
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Fail => "fail",
        Outcome::Inconclusive => "inconclusive",
    }
    .to_owned()
}

pub(super) fn deployment(stage: &StageId, deployment: &Deployment) -> DeploymentView {
    DeploymentView {
        stage: stage.clone(),
        number: deployment.number,
        from: deployment.from.clone(),
        to: deployment.to.clone(),
        phase: deployment.phase.to_string(),
        paused: deployment.paused,
        over: deployment.phase.is_over(),
        succeeded: deployment.phase == denv_planner::Phase::Succeeded,
        reason: deployment.reason.clone(),
        opened: deployment.opened,
        since: deployment.since,
        approved: deployment
            .approved
            .as_ref()
            .map(|Approved { by, at }| ApprovedView { by: by.clone(), at: *at }),
        gates: deployment.gates.trials.iter().map(gate).collect(),
    }
}

pub(super) fn units(state: &State, stage: Option<&StageId>) -> Vec<UnitView> {
    let Some(catalog) = state.catalog.as_ref() else { return Vec::new() };
    let now = Timestamp::now();
    let world = World { catalog, records: &state.records, observed: &state.observed, now };
    let wanted = |unit: &UnitRecord| stage.is_none_or(|stage| unit.stage == *stage);
    let mut units: Vec<UnitView> = state
        .records
        .units
        .iter()
        .filter(|(_, unit)| wanted(unit))
        .map(|(id, record)| unit(&world, id, record))
        .collect();
    // The order in which they were started, which their names do not sort by.
    units.sort_by_key(|unit| (unit.stage.clone(), unit.unit.as_str().len(), unit.unit.clone()));
    units
}

fn unit(world: &World<'_>, id: &UnitId, record: &UnitRecord) -> UnitView {
    let members: Vec<MemberView> = record.members.iter().map(|of| member(world, record, of)).collect();
    let status = status(world, id, record);
    let reason = match &status {
        UnitStatus::Unhealthy { reason }
        | UnitStatus::Failed { reason, .. }
        | UnitStatus::Drifted { reason } => Some(reason.clone()),
        _ => record.reason.clone(),
    };
    let inflight = world.observed.gateways.values().filter(|gateway| gateway.connected);
    let inflight =
        inflight.filter_map(|gateway| gateway.report.units.get(id)).map(|unit| unit.inflight).sum();
    UnitView {
        unit: id.clone(),
        stage: record.stage.clone(),
        release: record.release.clone(),
        fleet: record.fleet.clone(),
        host: record.front().host.clone(),
        member: record.front().id.clone(),
        restarts: members.iter().map(|member| member.restarts).sum(),
        members,
        chosen: record.chosen.as_ref().map(ToString::to_string),
        generation: record.generation,
        status: status.as_str().to_owned(),
        reason,
        since: record.since,
        inflight,
    }
}

fn member(world: &World<'_>, unit: &UnitRecord, record: &MemberRecord) -> MemberView {
    let host = world.observed.hosts.get(&record.host);
    let report = host.and_then(|host| host.report.members.get(&record.id));
    let report = report.filter(|report| report.generation == unit.generation);
    MemberView {
        member: record.id.clone(),
        pool: record.pool,
        host: record.host.clone(),
        gpus: record.spec.claim.gpus.clone(),
        cpu_slots: record.cpu_slots,
        state: report.map(|report| report.state),
        restarts: report.map_or(0, |report| report.restarts),
        reason: report.and_then(|report| report.reason.clone()),
    }
}

pub(super) fn hosts(state: &State, now: Timestamp) -> Vec<HostView> {
    let Some(catalog) = state.catalog.as_ref() else { return Vec::new() };
    let mut by_host: BTreeMap<&Name, Vec<(&UnitId, &MemberRecord)>> = BTreeMap::new();
    for (id, member) in
        state.records.units.iter().flat_map(|(id, unit)| unit.members.iter().map(move |it| (id, it)))
    {
        by_host.entry(&member.host).or_default().push((id, member));
    }
    let view = |(name, spec): (&Name, &denv_schema::manifest::HostSpec)| {
        let observed = state.observed.hosts.get(name);
        let here = || by_host.get(name).into_iter().flatten();
        let members = || here().map(|(_, member)| *member);
        let mut units: Vec<UnitId> = here().map(|(id, _)| (*id).clone()).collect();
        units.dedup();
        let gpus = observed.map_or(0, |host| host.report.inventory.gpus.len());
        let used = match spec.cpu_slots {
            Some(slots) if gpus == 0 => {
                format!("{}/{slots} CPU slots", members().map(|member| member.cpu_slots).sum::<u32>())
            }
            _ => {
                format!("{}/{gpus} GPUs", members().map(|member| member.spec.claim.gpus.len()).sum::<usize>())
            }
        };
        HostView {
            host: name.clone(),
            fleet: spec.fleet.clone(),
            state: match observed {
                Some(host) if host.connected => "connected",
                Some(_) => "silent",
                None => "never-joined",
            }
            .to_owned(),
            last_seen: observed.map(|host| if host.connected { now } else { host.last_seen }),
            version: observed.map(|host| host.version.clone()),
            ingress: observed.map(|host| host.ingress.clone()),
            cordoned: spec.cordoned,
            used,
            units,
            problems: observed.map_or_else(Vec::new, |host| host.report.problems.clone()),
            abilities: observed.map(|host| host.report.inventory.abilities.clone()).unwrap_or_default(),
        }
    };
    catalog.hosts.iter().map(view).collect()
}

pub(super) fn gateways(state: &State) -> Vec<GatewayView> {
    let in_force = state.catalog.as_ref().map(|catalog| Digest::of(&catalog.gateway_config()));
    let view = |(name, gateway): (&Name, &denv_planner::GatewayObserved)| GatewayView {
        gateway: name.clone(),
        state: if gateway.connected { "connected" } else { "silent" }.to_owned(),
        last_seen: gateway.last_seen,
        version: gateway.version.clone(),
        in_rotation: gateway
            .report
            .units
            .iter()
            .filter(|(_, unit)| unit.in_rotation)
            .map(|(id, _)| id.clone())
            .collect(),
        up_to_date: gateway.report.config.is_some() && gateway.report.config == in_force,
    };
    state.observed.gateways.iter().map(view).collect()
}

pub(super) fn manifests(catalog: &Catalog, kind: Kind) -> Vec<ManifestView> {
    fn all<K: ToString, S: Serialize>(kind: Kind, specs: &BTreeMap<K, S>) -> Vec<ManifestView> {
        let view = |(name, spec): (&K, &S)| ManifestView {
            kind,
            name: name.to_string(),
            spec: serde_json::to_value(spec).expect("specs are plain data"),
        };
        specs.iter().map(view).collect()
    }
    match kind {
        Kind::Provider => all(kind, &catalog.providers),
        Kind::Fleet => all(kind, &catalog.fleets),
        Kind::Host => all(kind, &catalog.hosts),
        Kind::WeightCache => all(kind, &catalog.weight_caches),
        Kind::Engine => all(kind, &catalog.engines),
        Kind::Recipe => all(kind, &catalog.recipes),
        Kind::Release => all(kind, &catalog.releases),
        Kind::Environment => all(kind, &catalog.environments),
        Kind::Stage => all(kind, &catalog.stages),
        Kind::ParitySuite => all(kind, &catalog.parity_suites),
        Kind::Alarm => all(kind, &catalog.alarms),
        Kind::Endpoint => all(kind, &catalog.endpoints),
        Kind::Customer => all(kind, &catalog.customers),
        Kind::Key => all(kind, &catalog.keys),
        Kind::PriceList => all(kind, &catalog.price_lists),
        Kind::Access => all(kind, &catalog.access),
        Kind::Webhook => all(kind, &catalog.webhooks),
    }
}
