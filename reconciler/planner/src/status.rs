//! What a unit is: its record, held against what its host and the gateways say now.

use std::time::Duration;

use denv_schema::wire::MemberState;
use denv_schema::{Name, UnitId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::{MemberRecord, UnitPhase, UnitRecord};
use crate::world::{GatewayObserved, World, signed};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnitStatus {
    /// Its host has not taken the command up yet.
    Planned,
    Preparing,
    Starting,
    /// Healthy, and not yet to be routed to: its release has not passed its gate.
    Withheld,
    /// Healthy on its host; these gateways do not route to it yet.
    Checking {
        unrouted: Vec<Name>,
    },
    Ready,
    Unhealthy {
        reason: String,
    },
    /// It will not serve by waiting.
    Failed {
        reason: String,
        fault: Fault,
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

/// Whose fault it is that a unit failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// What it runs did not work.
    Release,
    /// That host, or its agent, did not do what it was told. The release may well be good.
    Host(Name),
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
            UnitStatus::Withheld => "withheld",
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

/// An engine that ends more often than this, without having been healthy for long in between, is not mended by starting it
/// there again.
const ENDS_MOST: u32 = 5;
/// So is a unit that denv starts again more often than this in a row.
const RESTARTS_MOST: u32 = 5;

/// When a unit that is not ready yet, and this instead, has failed. A control plane that was away meanwhile first hears
/// what has become of it.
pub(crate) fn start_deadline(world: &World<'_>, unit: &UnitRecord, status: &UnitStatus) -> Timestamp {
    // A host says when it can't fetch, and bounds by itself how long the engine then takes. One that has not even begun
    // fetches nothing.
    let fetch = unit.members.iter().map(|member| member.spec.fetch_timeout()).max();
    let fetching = fetch.filter(|_| *status != UnitStatus::Planned).unwrap_or_default();
    let deadline = unit.since + signed(unit.start_timeout().get() + START_GRACE);
    deadline.max(world.observed.since + signed(START_GRACE)) + signed(fetching)
}

/// When the absence of a wanted unit from its host's reports is drift.
pub(crate) fn report_deadline(unit: &UnitRecord) -> Timestamp {
    unit.since + signed(REPORT_GRACE)
}

pub fn status(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    match unit.phase {
        UnitPhase::Draining => UnitStatus::Draining,
        UnitPhase::Stopping if unit.members.iter().all(|member| is_gone(world, unit, member)) => {
            UnitStatus::Stopped
        }
        UnitPhase::Stopping => UnitStatus::Stopping,
        UnitPhase::Starting | UnitPhase::Ready => wanted(world, id, unit),
    }
}

/// Whether nothing is left of a member that was told to stop.
pub(crate) fn is_gone(world: &World<'_>, unit: &UnitRecord, member: &MemberRecord) -> bool {
    let report = world.member(member);
    match report.filter(|report| report.generation == unit.generation) {
        Some(report) if report.state == MemberState::Stopped => true,
        // A person removed the Host, and it is not heard of: it is gone with all that was on it.
        _ if !world.catalog.hosts.contains_key(&member.host) && world.is_silent(&member.host) => true,
        // The host answered the command and has nothing of it: it is gone, or never was there.
        None => {
            let runs_older = report.is_some_and(|report| report.state != MemberState::Stopped);
            world.is_connected(&member.host)
                && !world.records.pending.contains(&unit.command_id(member))
                && !runs_older
        }
        Some(_) => false,
    }
}

/// A unit that should be running. One that is not ready when its time is up has failed, whatever it waits on.
fn wanted(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    for member in &unit.members {
        if let Some(reason) = world.records.refused.get(&unit.command_id(member)) {
            let reason = format!("host `{}` refused it: {reason}", member.host);
            return UnitStatus::Failed { reason, fault: Fault::Host(member.host.clone()) };
        }
    }
    if let Some((host, _)) = world.silent_host(unit) {
        let since = world.host(host).map_or(world.observed.since, |observed| observed.last_seen);
        return UnitStatus::Silent { since };
    }
    let status = on_hosts(world, id, unit);
    if let UnitStatus::Drifted { reason } = &status {
        let fault = Fault::Host(laggard(world, unit).host.clone());
        // Gateways may still send to another of its members: it leaves as any unit does, and another takes its place.
        if unit.members.len() > 1 {
            return UnitStatus::Failed { reason: reason.clone(), fault };
        }
        if unit.restarts_in_a_row >= RESTARTS_MOST {
            let reason = format!("started {RESTARTS_MOST} times again in a row, and then: {reason}");
            return UnitStatus::Failed { reason, fault };
        }
    }
    if unit.phase == UnitPhase::Starting
        && world.now >= start_deadline(world, unit, &status)
        && let Some(fault) = fault_of_delay(world, unit, &status)
    {
        let (within, host) = (unit.start_timeout(), &laggard(world, unit).host);
        let reason = format!("not ready on `{host}` within {within}: it is still {}", status.as_str());
        return UnitStatus::Failed { reason, fault };
    }
    status
}

/// Whose fault it is that a unit is still not ready. None: it is, or has failed already, or those who keep it from it are
/// neither the release nor the host.
fn fault_of_delay(world: &World<'_>, unit: &UnitRecord, status: &UnitStatus) -> Option<Fault> {
    let host = || Fault::Host(laggard(world, unit).host.clone());
    match status {
        // The host did not even begin.
        UnitStatus::Planned => Some(host()),
        UnitStatus::Preparing | UnitStatus::Starting | UnitStatus::Unhealthy { .. } => Some(Fault::Release),
        // It is healthy, and no gateway reaches it there. Where only some do not, it is theirs.
        UnitStatus::Checking { unrouted } => {
            let connected = world.observed.gateways.values().filter(|gateway| gateway.connected).count();
            (connected > 0 && unrouted.len() == connected).then(host)
        }
        UnitStatus::Withheld
        | UnitStatus::Ready
        | UnitStatus::Failed { .. }
        | UnitStatus::Silent { .. }
        | UnitStatus::Drifted { .. }
        | UnitStatus::Draining
        | UnitStatus::Stopping
        | UnitStatus::Stopped => None,
    }
}

/// The unit is what the member is that is furthest from serving; all are needed.
fn on_hosts(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
    let worst = unit.members.iter().filter_map(|member| on_host(world, unit, member));
    worst.min_by_key(distance).unwrap_or_else(|| match unit.withheld {
        true => UnitStatus::Withheld,
        false => routed(world, id, unit),
    })
}

/// The member that is furthest from serving.
pub(crate) fn laggard<'u>(world: &World<'_>, unit: &'u UnitRecord) -> &'u MemberRecord {
    let key = |member: &&MemberRecord| on_host(world, unit, member).as_ref().map_or(u8::MAX, distance);
    unit.members.iter().min_by_key(key).expect("a unit has members")
}

/// The least is the furthest from serving.
fn distance(status: &UnitStatus) -> u8 {
    match status {
        UnitStatus::Failed { .. } => 0,
        UnitStatus::Drifted { .. } => 1,
        UnitStatus::Unhealthy { .. } => 2,
        UnitStatus::Planned => 3,
        UnitStatus::Preparing => 4,
        UnitStatus::Starting => 5,
        UnitStatus::Withheld
        | UnitStatus::Checking { .. }
        | UnitStatus::Ready
        | UnitStatus::Silent { .. }
        | UnitStatus::Draining
        | UnitStatus::Stopping
        | UnitStatus::Stopped => 6,
    }
}

/// What a member is by its host's word. None: healthy.
fn on_host(world: &World<'_>, unit: &UnitRecord, member: &MemberRecord) -> Option<UnitStatus> {
    let host = &member.host;
    let Some(report) = world.member(member).filter(|report| report.generation == unit.generation) else {
        let answered = !world.records.pending.contains(&unit.command_id(member));
        let late = world.now >= report_deadline(unit);
        if world.is_connected(host) && answered && late {
            return Some(UnitStatus::Drifted { reason: format!("host `{host}` does not know it any more") });
        }
        return Some(UnitStatus::Planned);
    };
    if report.spec != member.digest {
        return Some(UnitStatus::Drifted { reason: format!("host `{host}` runs another launch spec") });
    }
    let reason = || report.reason.clone().unwrap_or_else(|| "no reason was given".to_owned());
    match report.state {
        MemberState::Preparing => Some(UnitStatus::Preparing),
        MemberState::Starting => Some(UnitStatus::Starting),
        MemberState::Healthy | MemberState::Unhealthy
            if report.restarts > 0 && unit.phase == UnitPhase::Ready && is_group(unit, member) =>
        {
            let reason =
                format!("its engine ended on host `{host}`, and the others of its {} need it", member.pool);
            Some(UnitStatus::Failed { reason, fault: Fault::Release })
        }
        MemberState::Healthy => None,
        MemberState::Unhealthy if report.ends_in_a_row >= ENDS_MOST => {
            let (ends, reason) = (report.ends_in_a_row, reason());
            Some(UnitStatus::Failed {
                reason: format!("its engine has ended {ends} times in a row: {reason}"),
                fault: Fault::Release,
            })
        }
        MemberState::Unhealthy => Some(UnitStatus::Unhealthy { reason: reason() }),
        MemberState::Failed => Some(UnitStatus::Failed { reason: reason(), fault: Fault::Release }),
        MemberState::Stopping | MemberState::Stopped => {
            Some(UnitStatus::Drifted { reason: format!("it was stopped on host `{host}`") })
        }
    }
}

/// Whether the member's engine is one of several that work as one: when one ends, the others have lost it.
fn is_group(unit: &UnitRecord, member: &MemberRecord) -> bool {
    unit.members.iter().filter(|other| other.pool == member.pool).count() > 1
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

pub(crate) fn service(world: &World<'_>, id: &UnitId, unit: &UnitRecord, status: &UnitStatus) -> Service {
    let heard = world.all_connected(unit);
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
        // A denvd that was just started again has not asked the engine yet, and gateways go on sending to it.
        UnitStatus::Unhealthy { .. } if is_sent_to(world, id, unit) => Service::Perhaps,
        UnitStatus::Planned
        | UnitStatus::Preparing
        | UnitStatus::Starting
        | UnitStatus::Withheld
        | UnitStatus::Unhealthy { .. }
        | UnitStatus::Failed { .. }
        | UnitStatus::Drifted { .. }
        | UnitStatus::Draining
        | UnitStatus::Stopping
        | UnitStatus::Stopped => Service::Nobody,
    }
}

/// Whether a gateway that is heard has it in rotation.
fn is_sent_to(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> bool {
    let mut connected = world.observed.gateways.values().filter(|gateway| gateway.connected);
    connected.any(|gateway| routes_to(gateway, id, unit))
}

fn routes_to(gateway: &GatewayObserved, id: &UnitId, unit: &UnitRecord) -> bool {
    gateway.unit(id, unit.generation).is_some_and(|report| report.in_rotation)
}

/// Ready means that gateways can route to it. Where none was ever seen, healthy has to do.
fn routed(world: &World<'_>, id: &UnitId, unit: &UnitRecord) -> UnitStatus {
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
    let unrouted: Vec<Name> = connected
        .filter(|(_, gateway)| !routes_to(gateway, id, unit))
        .map(|(name, _)| name.clone())
        .collect();
    if unrouted.is_empty() { UnitStatus::Ready } else { UnitStatus::Checking { unrouted } }
}

#[cfg(test)]
mod tests {
    use denv_schema::Catalog;
    use serde_json::json;

    use super::*;
    use crate::records::Records;
    use crate::world::Observed;

    #[test]
    fn a_host_that_fetches_is_given_time_once_it_has_begun() {
        let (catalog, records, observed) = (Catalog::default(), Records::default(), Observed::default());
        let world =
            World { catalog: &catalog, records: &records, observed: &observed, now: Timestamp::UNIX_EPOCH };
        let minutes = |source: &str, status: UnitStatus| {
            let digest = denv_schema::Digest::from_bytes([0; 32]);
            let spec = json!({"model": "m", "argv": [], "env": {}, "startTimeout": "10m", "stopTimeout": "1s",
                "weights": {"source": source, "digest": digest}});
            let member = json!({"id": "chat.prod.1.replica-0", "pool": "replica", "host": "h", "cpuSlots": 1,
                "firstPort": 30000, "spec": spec, "digest": digest});
            let unit = json!({"stage": "chat/prod", "fleet": "f", "release": "r", "template": digest,
                "members": [member], "generation": 1, "phase": "starting", "since": Timestamp::UNIX_EPOCH,
                "created": Timestamp::UNIX_EPOCH});
            let unit: UnitRecord = serde_json::from_value(unit).unwrap();
            start_deadline(&world, &unit, &status).duration_since(Timestamp::UNIX_EPOCH).as_mins()
        };
        let elsewhere = "s3://models/m";
        assert_eq!(minutes("file:m", UnitStatus::Preparing), 10);
        assert_eq!(minutes(elsewhere, UnitStatus::Planned), 10);
        assert_eq!(minutes(elsewhere, UnitStatus::Preparing), 190);
        assert_eq!(minutes(elsewhere, UnitStatus::Starting), 190);
    }
}
