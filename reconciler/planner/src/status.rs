//! What a unit is: its record, held against what its host and the gateways say now.

use std::time::Duration;

use denv_schema::wire::MemberState;
use denv_schema::{Name, UnitId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::{UnitPhase, UnitRecord};
use crate::world::{World, signed};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnitStatus {
    /// Its host has not taken the command up yet.
    Planned,
    Preparing,
    Starting,
    /// Healthy on its host; these gateways do not route to it yet.
    Checking {
        unrouted: Vec<Name>,
    },
    Ready,
    Unhealthy {
        reason: String,
    },
    /// Its host gave it up or refused it.
    Failed {
        reason: String,
    },
    /// Its host is silent since then.
    Silent {
        since: Timestamp,
    },
    /// Its host does not know it any more, or runs something else in its place.
    Drifted {
        reason: String,
    },
    Draining,
    Stopping,
    /// Seen gone.
    Stopped,
}

impl UnitStatus {
    /// Gateways route to it.
    pub fn is_ready(&self) -> bool {
        matches!(self, UnitStatus::Ready)
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            UnitStatus::Planned => "planned",
            UnitStatus::Preparing => "preparing",
            UnitStatus::Starting => "starting",
            UnitStatus::Checking { .. } => "checking",
            UnitStatus::Ready => "ready",
            UnitStatus::Unhealthy { .. } => "unhealthy",
            UnitStatus::Failed { .. } => "failed",
            UnitStatus::Silent { .. } => "silent",
            UnitStatus::Drifted { .. } => "drifted",
            UnitStatus::Draining => "draining",
            UnitStatus::Stopping => "stopping",
            UnitStatus::Stopped => "stopped",
        }
    }
}

/// A host that took a start command up reports its member within this; later, its absence is drift.
const REPORT_GRACE: Duration = Duration::from_secs(15);
/// What a start may take beyond its recipe's `startTimeout`, which the host counts from the start of the engine: the
/// command's way to the host, and the gateways' checks.
const START_GRACE: Duration = Duration::from_secs(30);

/// When a unit that is not ready yet has failed. A control plane that was away meanwhile first hears what has become
/// of it.
pub(crate) fn start_deadline(world: &World<'_>, unit: &UnitRecord) -> Timestamp {
    let deadline = unit.since + signed(unit.spec.start_timeout.get() + START_GRACE);
    deadline.max(world.observed.since + signed(START_GRACE))
}

/// When the absence of a wanted unit from its host's reports is drift.
pub(crate) fn report_deadline(unit: &UnitRecord) -> Timestamp {
    unit.since + signed(REPORT_GRACE)
}

pub fn status(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    let member = world.member(unit).filter(|member| member.generation == unit.generation);
    let connected = world.host(&unit.host).is_some_and(|host| host.connected);
    match unit.phase {
        UnitPhase::Draining => UnitStatus::Draining,
        UnitPhase::Stopping => match member {
            Some(member) if member.state == MemberState::Stopped => UnitStatus::Stopped,
            // A person removed the Host, and it is not heard of: it is gone with all that was on it.
            _ if !world.catalog.hosts.contains_key(&unit.host) && world.is_silent(&unit.host) => {
                UnitStatus::Stopped
            }
            // The host answered the command and has nothing of it: it is gone, or never was there.
            None if connected
                && !world.records.pending.contains(&unit.command_id())
                && !runs_older(world, unit) =>
            {
                UnitStatus::Stopped
            }
            _ => UnitStatus::Stopping,
        },
        UnitPhase::Starting | UnitPhase::Ready => wanted(world, id, unit),
    }
}

/// A unit that should be running. One that is not ready when its time is up has failed, whatever it waits on.
fn wanted(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    let host = &unit.host;
    if let Some(reason) = world.records.refused.get(&unit.command_id()) {
        return UnitStatus::Failed { reason: format!("host `{host}` refused it: {reason}") };
    }
    if world.is_silent(host) {
        let since = world.host(host).map_or(world.observed.since, |observed| observed.last_seen);
        return UnitStatus::Silent { since };
    }
    let status = on_host(world, id, unit);
    let late = unit.phase == UnitPhase::Starting && world.now >= start_deadline(world, unit);
    match status {
        UnitStatus::Planned
        | UnitStatus::Preparing
        | UnitStatus::Starting
        | UnitStatus::Checking { .. }
        | UnitStatus::Unhealthy { .. }
            if late =>
        {
            let within = unit.spec.start_timeout;
            let reason = format!("not ready on `{host}` within {within}: it is still {}", status.as_str());
            UnitStatus::Failed { reason }
        }
        UnitStatus::Planned
        | UnitStatus::Preparing
        | UnitStatus::Starting
        | UnitStatus::Checking { .. }
        | UnitStatus::Ready
        | UnitStatus::Unhealthy { .. }
        | UnitStatus::Failed { .. }
        | UnitStatus::Silent { .. }
        | UnitStatus::Drifted { .. }
        | UnitStatus::Draining
        | UnitStatus::Stopping
        | UnitStatus::Stopped => status,
    }
}

fn on_host(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    let host = &unit.host;
    let Some(member) = world.member(unit).filter(|member| member.generation == unit.generation) else {
        let connected = world.host(host).is_some_and(|host| host.connected);
        let answered = !world.records.pending.contains(&unit.command_id());
        let late = world.now >= report_deadline(unit);
        if connected && answered && late {
            return UnitStatus::Drifted { reason: format!("host `{host}` does not know it any more") };
        }
        return UnitStatus::Planned;
    };
    if member.spec != unit.digest {
        return UnitStatus::Drifted { reason: format!("host `{host}` runs another launch spec") };
    }
    let reason = || member.reason.clone().unwrap_or_else(|| "no reason was given".to_owned());
    match member.state {
        MemberState::Preparing => UnitStatus::Preparing,
        MemberState::Starting => UnitStatus::Starting,
        MemberState::Healthy => routed(world, id, unit),
        MemberState::Unhealthy => UnitStatus::Unhealthy { reason: reason() },
        MemberState::Failed => UnitStatus::Failed { reason: reason() },
        MemberState::Stopping | MemberState::Stopped => {
            UnitStatus::Drifted { reason: format!("it was stopped on host `{host}`") }
        }
    }
}

/// Whether requests go to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Nobody,
    /// They did, and who could say whether they still do has not been heard yet: a gateway that has just come back, a
    /// host that is out of reach. It is not counted on, and not taken away as if it were nothing.
    Perhaps,
    /// Its host and the gateways say so now.
    Sure,
}

pub(crate) fn service(world: &World<'_>, unit: &UnitRecord, status: &UnitStatus) -> Service {
    let heard = world.is_connected(&unit.host);
    let gateways = || world.observed.gateways.values().filter(|gateway| gateway.connected).count();
    match status {
        // It is in rotation already, though the records do not say so yet.
        UnitStatus::Ready if unit.phase == UnitPhase::Starting => Service::Perhaps,
        UnitStatus::Checking { unrouted }
            if unit.phase == UnitPhase::Starting && unrouted.len() < gateways() =>
        {
            Service::Perhaps
        }
        _ if unit.phase != UnitPhase::Ready => Service::Nobody,
        UnitStatus::Ready if heard && world.deaf_until().is_none() => Service::Sure,
        UnitStatus::Ready | UnitStatus::Checking { .. } | UnitStatus::Silent { .. } => Service::Perhaps,
        UnitStatus::Unhealthy { .. } if !heard => Service::Perhaps,
        UnitStatus::Planned
        | UnitStatus::Preparing
        | UnitStatus::Starting
        | UnitStatus::Unhealthy { .. }
        | UnitStatus::Failed { .. }
        | UnitStatus::Drifted { .. }
        | UnitStatus::Draining
        | UnitStatus::Stopping
        | UnitStatus::Stopped => Service::Nobody,
    }
}

fn runs_older(world: &World<'_>, unit: &UnitRecord) -> bool {
    world.member(unit).is_some_and(|member| member.state != MemberState::Stopped)
}

/// Ready means that gateways can route to it. Where none was ever seen, healthy has to do.
fn routed(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    let routes = |gateway: &crate::GatewayObserved| {
        let report = gateway.report.units.get(id);
        report.is_some_and(|report| report.generation == unit.generation && report.in_rotation)
    };
    let mut connected = world.observed.gateways.iter().filter(|(_, gateway)| gateway.connected).peekable();
    if connected.peek().is_none() && world.live_gateways().next().is_some() {
        // A gateway is there, and can't be asked at the moment. A unit that was ready stays so in its eyes.
        return match unit.phase {
            UnitPhase::Ready => UnitStatus::Ready,
            UnitPhase::Starting | UnitPhase::Draining | UnitPhase::Stopping => {
                UnitStatus::Checking { unrouted: Vec::new() }
            }
        };
    }
    let unrouted: Vec<Name> =
        connected.filter(|(_, gateway)| !routes(gateway)).map(|(name, _)| name.clone()).collect();
    if unrouted.is_empty() { UnitStatus::Ready } else { UnitStatus::Checking { unrouted } }
}
