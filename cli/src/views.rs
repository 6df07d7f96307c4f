//! The columns of what the control plane observes and does.

use std::collections::BTreeSet;

use denv_schema::api::{
    AwaitingView, ConditionStatus, DeploymentView, EventView, GatewayView, HostView, Level, RefusedView,
    RevisionView, SourceState, SourceView, StageView, UnitView,
};

use crate::table::{Cell, Column, Tone};
use crate::text::{brief, counted};
use crate::time::{age, age_or};

/// Words in a table beyond this are cut; `describe` has them all.
const BRIEF: usize = 80;

pub(crate) const SOURCES: &[Column<SourceView>] = &[
    Column { title: "SOURCE", wide: false, cell: |source, _| Cell::plain(&source.name) },
    Column { title: "BRANCH", wide: false, cell: |source, _| Cell::plain(&source.branch) },
    Column { title: "STATE", wide: false, cell: |source, _| source_state(source) },
    Column {
        title: "REVISION",
        wide: false,
        cell: |source, _| {
            Cell::maybe(source.accepted.as_ref().map(|revision| short_commit(&revision.commit)))
        },
    },
    Column {
        title: "ACCEPTED",
        wide: false,
        cell: |source, now| {
            Cell::plain(age_or(source.accepted.as_ref().map(|revision| revision.at), now, "-"))
        },
    },
    Column {
        title: "FETCHED",
        wide: false,
        cell: |source, now| Cell::plain(age_or(source.fetched_at, now, "never")),
    },
    Column { title: "URL", wide: true, cell: |source, _| Cell::plain(&source.url) },
    Column { title: "CONDITIONS", wide: true, cell: |source, _| Cell::plain(conditions(source)) },
    Column {
        title: "MESSAGE",
        wide: false,
        cell: |source, _| Cell::words(source_message(source).as_deref(), BRIEF),
    },
];

pub(crate) const STAGES: &[Column<StageView>] = &[
    Column { title: "STAGE", wide: false, cell: |stage, _| Cell::plain(&stage.stage) },
    Column { title: "READY", wide: false, cell: |stage, _| ready(stage) },
    Column { title: "DESIRED", wide: false, cell: |stage, _| Cell::plain(&stage.desired) },
    Column { title: "GOOD", wide: false, cell: |stage, _| Cell::maybe(stage.good.as_ref()) },
    Column { title: "STATUS", wide: false, cell: |stage, _| stage_status(stage) },
    Column {
        title: "SINCE",
        wide: false,
        cell: |stage, now| {
            let since = match &stage.held {
                Some(held) => Some(held.since),
                None => stage.deployment.as_ref().map(|deployment| deployment.since),
            };
            Cell::plain(age_or(since, now, "-"))
        },
    },
    Column {
        title: "DEPLOYMENT",
        wide: true,
        cell: |stage, _| Cell::maybe(stage.deployment.as_ref().map(|deployment| deployment.number)),
    },
    Column { title: "WHY", wide: false, cell: |stage, _| Cell::words(stage_why(stage), BRIEF) },
];

pub(crate) const DEPLOYMENTS: &[Column<DeploymentView>] = &[
    Column {
        title: "DEPLOYMENT",
        wide: false,
        cell: |deployment, _| Cell::plain(format!("{}#{}", deployment.stage, deployment.number)),
    },
    Column { title: "FROM", wide: false, cell: |deployment, _| Cell::maybe(deployment.from.as_ref()) },
    Column { title: "TO", wide: false, cell: |deployment, _| Cell::plain(&deployment.to) },
    Column { title: "PHASE", wide: false, cell: |deployment, _| phase(deployment) },
    Column { title: "OPENED", wide: false, cell: |deployment, now| Cell::plain(age(deployment.opened, now)) },
    Column { title: "SINCE", wide: true, cell: |deployment, now| Cell::plain(age(deployment.since, now)) },
    Column {
        title: "REASON",
        wide: false,
        cell: |deployment, _| Cell::words(deployment.reason.as_deref(), BRIEF),
    },
];

pub(crate) const UNITS: &[Column<UnitView>] = &[
    Column { title: "UNIT", wide: false, cell: |unit, _| Cell::plain(&unit.unit) },
    Column { title: "STATUS", wide: false, cell: |unit, _| unit_status(unit) },
    Column { title: "RELEASE", wide: false, cell: |unit, _| Cell::plain(&unit.release) },
    Column { title: "HOST", wide: false, cell: |unit, _| Cell::plain(hosts_shown(unit)) },
    Column { title: "FLEET", wide: true, cell: |unit, _| Cell::plain(&unit.fleet) },
    Column { title: "ON", wide: true, cell: |unit, _| Cell::plain(devices(unit)) },
    Column { title: "GENERATION", wide: true, cell: |unit, _| Cell::plain(unit.generation) },
    Column { title: "INFLIGHT", wide: false, cell: |unit, _| Cell::plain(unit.inflight) },
    Column { title: "RESTARTS", wide: false, cell: |unit, _| Cell::plain(unit.restarts) },
    Column { title: "SINCE", wide: false, cell: |unit, now| Cell::plain(age(unit.since, now)) },
    Column { title: "REASON", wide: false, cell: |unit, _| Cell::words(unit.reason.as_deref(), BRIEF) },
];

pub(crate) const HOSTS: &[Column<HostView>] = &[
    Column { title: "HOST", wide: false, cell: |host, _| Cell::plain(&host.host) },
    Column { title: "FLEET", wide: false, cell: |host, _| Cell::plain(&host.fleet) },
    Column { title: "STATE", wide: false, cell: |host, _| host_state(host) },
    Column { title: "USED", wide: false, cell: |host, _| Cell::plain(&host.used) },
    Column { title: "UNITS", wide: false, cell: |host, _| Cell::plain(host.units.len()) },
    Column {
        title: "SEEN",
        wide: false,
        cell: |host, now| Cell::plain(age_or(host.last_seen, now, "never")),
    },
    Column { title: "VERSION", wide: false, cell: |host, _| Cell::maybe(host.version.as_ref()) },
    Column { title: "INGRESS", wide: true, cell: |host, _| Cell::maybe(host.ingress.as_ref()) },
    Column {
        title: "PROBLEMS",
        wide: false,
        cell: |host, _| {
            let problems = (!host.problems.is_empty()).then(|| host.problems.join("; "));
            Cell::words(problems.as_deref(), BRIEF)
        },
    },
];

pub(crate) const GATEWAYS: &[Column<GatewayView>] = &[
    Column { title: "GATEWAY", wide: false, cell: |gateway, _| Cell::plain(&gateway.gateway) },
    Column {
        title: "STATE",
        wide: false,
        cell: |gateway, _| {
            let tone = if gateway.state == "connected" { Tone::Good } else { Tone::Bad };
            Cell::toned(&gateway.state, tone)
        },
    },
    Column {
        title: "CONFIGURATION",
        wide: false,
        cell: |gateway, _| match gateway.up_to_date {
            true => Cell::plain("up to date"),
            false => Cell::toned("behind", Tone::Change),
        },
    },
    Column { title: "UNITS", wide: false, cell: |gateway, _| Cell::plain(gateway.in_rotation.len()) },
    Column { title: "SEEN", wide: false, cell: |gateway, now| Cell::plain(age(gateway.last_seen, now)) },
    Column { title: "VERSION", wide: false, cell: |gateway, _| Cell::plain(&gateway.version) },
    Column {
        title: "IN ROTATION",
        wide: true,
        cell: |gateway, _| {
            let units: Vec<&str> = gateway.in_rotation.iter().map(|unit| unit.as_str()).collect();
            Cell::maybe((!units.is_empty()).then(|| units.join(", ")))
        },
    },
];

pub(crate) const EVENTS: &[Column<EventView>] = &[
    Column { title: "ID", wide: true, cell: |event, _| Cell::plain(event.id) },
    Column { title: "AGE", wide: false, cell: |event, now| Cell::plain(age(event.at, now)) },
    Column { title: "SUBJECT", wide: false, cell: |event, _| Cell::plain(&event.subject) },
    Column {
        title: "MESSAGE",
        wide: false,
        cell: |event, _| Cell::toned(brief(&event.message, 200), level(event.level)),
    },
];

pub(crate) fn level(level: Level) -> Tone {
    match level {
        Level::Normal => Tone::Plain,
        Level::Warning => Tone::Change,
    }
}

pub(crate) fn short_commit(commit: &str) -> String {
    commit.chars().take(10).collect()
}

pub(crate) fn revision(revision: &RevisionView) -> String {
    format!(
        "{} {} ({})",
        short_commit(&revision.commit),
        brief(&revision.summary, BRIEF),
        brief(&revision.author, 60)
    )
}

pub(crate) fn source_state(source: &SourceView) -> Cell {
    match source.state {
        SourceState::Starting => Cell::toned("starting", Tone::Change),
        SourceState::Ready => Cell::toned("ready", Tone::Good),
        SourceState::Refused => Cell::toned("refused", Tone::Bad),
        SourceState::AwaitingApproval => Cell::toned("awaiting approval", Tone::Bad),
        SourceState::Unreachable => Cell::toned("unreachable", Tone::Bad),
    }
}

/// Those that hold: `Ready`, or `Reconciling`.
fn conditions(source: &SourceView) -> String {
    let hold = source.conditions.iter().filter(|condition| condition.status == ConditionStatus::True);
    let words: Vec<String> = hold.map(|condition| format!("{:?}", condition.kind)).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

fn source_message(source: &SourceView) -> Option<String> {
    let refused = |RefusedView { revision, reason, .. }: &RefusedView| {
        format!("{} refused: {reason}", short_commit(&revision.commit))
    };
    let awaiting = |AwaitingView { revision, reason, .. }: &AwaitingView| {
        format!("{} would delete {reason}", short_commit(&revision.commit))
    };
    let held_back = || source.refused.as_ref().map(refused).or(source.awaiting.as_ref().map(awaiting));
    source.problem.clone().or_else(held_back)
}

fn ready(stage: &StageView) -> Cell {
    let tone = match stage.ready {
        ready if ready >= stage.wanted => Tone::Good,
        0 => Tone::Bad,
        _ => Tone::Change,
    };
    Cell::toned(format!("{}/{}", stage.ready, stage.wanted), tone)
}

pub(crate) fn stage_status(stage: &StageView) -> Cell {
    match (&stage.held, &stage.deployment) {
        (Some(_), Some(deployment)) if !deployment.over => phase(deployment),
        (Some(_), _) => Cell::toned("held", Tone::Bad),
        (None, Some(deployment)) => phase(deployment),
        (None, None) => Cell::plain("-"),
    }
}

fn stage_why(stage: &StageView) -> Option<&str> {
    let subject = format!("stage {}", stage.stage);
    let waiting = stage.waiting.iter().find(|waiting| waiting.subject == subject).or(stage.waiting.first());
    match &stage.held {
        Some(held) => Some(held.reason.as_str()),
        None => waiting.map(|waiting| waiting.on.as_str()),
    }
}

pub(crate) fn phase(deployment: &DeploymentView) -> Cell {
    let tone = match (deployment.over, deployment.succeeded) {
        (true, true) => Tone::Good,
        (true, false) => Tone::Bad,
        (false, _) => Tone::Change,
    };
    match deployment.paused {
        true => Cell::toned(format!("paused, {}", deployment.phase), Tone::Change),
        false => Cell::toned(&deployment.phase, tone),
    }
}

pub(crate) fn unit_status(unit: &UnitView) -> Cell {
    let tone = match unit.status.as_str() {
        "ready" => Tone::Good,
        "unhealthy" | "failed" | "silent" | "drifted" => Tone::Bad,
        _ => Tone::Change,
    };
    Cell::toned(&unit.status, tone)
}

/// `GPU 0,1`; of several members `64 GPUs of 16 hosts`.
pub(crate) fn devices(unit: &UnitView) -> String {
    let [only] = unit.members.as_slice() else {
        let gpus: usize = unit.members.iter().map(|member| member.gpus.len()).sum();
        return format!("{} of {}", counted(gpus, "GPU"), counted(hosts(unit), "host"));
    };
    match (only.gpus.as_slice(), only.cpu_slots) {
        ([], slots) => counted(slots as usize, "CPU slot"),
        (gpus, _) => {
            let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
            format!("GPU {}", gpus.join(","))
        }
    }
}

/// `host-a`; of several `host-a +3`.
pub(crate) fn hosts_shown(unit: &UnitView) -> String {
    match hosts(unit) {
        0 | 1 => unit.host.to_string(),
        many => format!("{} +{}", unit.host, many - 1),
    }
}

fn hosts(unit: &UnitView) -> usize {
    unit.members.iter().map(|member| &member.host).collect::<BTreeSet<_>>().len()
}

pub(crate) fn host_state(host: &HostView) -> Cell {
    let tone = match host.state.as_str() {
        "connected" => Tone::Good,
        "never-joined" => Tone::Change,
        _ => Tone::Bad,
    };
    match host.cordoned {
        true => Cell::toned(format!("{}, cordoned", host.state), tone),
        false => Cell::toned(&host.state, tone),
    }
}

#[cfg(test)]
mod tests;
