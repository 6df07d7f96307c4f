//! When to plan again even if nothing is heard: every time at which the passing of time alone changes what is decided.

use denv_schema::wire::SILENCE;
use jiff::Timestamp;

use crate::deployment::deadline;
use crate::records::{HostFaults, UnitPhase};
use crate::status::{UnitStatus, report_deadline, start_deadline};
use crate::world::{GATEWAY_LOST_AFTER, World, signed};

/// The next of these times, apart from those that a pass knows itself. One too many costs a pass that finds nothing to do; one too few, and something waits for
/// ever.
pub(crate) fn wake_at(world: &World<'_>) -> Option<Timestamp> {
    let mut next = Next { now: world.now, at: None };
    for host in world.observed.hosts.values().filter(|host| !host.connected) {
        next.consider(host.last_seen.max(world.observed.since) + signed(SILENCE));
    }
    for gateway in world.observed.gateways.values().filter(|gateway| !gateway.connected) {
        next.consider(gateway.last_seen.max(world.observed.since) + signed(GATEWAY_LOST_AFTER));
    }
    world.deaf_until().into_iter().for_each(|at| next.consider(at));
    for unit in world.records.units.values() {
        for member in unit.members.iter().filter(|member| !world.is_connected(&member.host)) {
            let since = world.silent_since(&member.host);
            next.consider(since + signed(SILENCE));
            if let Some(stage) = world.catalog.stages.get(&unit.stage) {
                next.consider(since + signed(stage.lost_after.get()));
            }
        }
        if unit.is_active() {
            next.consider(report_deadline(unit));
        }
        if unit.phase == UnitPhase::Starting {
            for status in [UnitStatus::Planned, UnitStatus::Starting] {
                next.consider(start_deadline(world, unit, &status));
            }
        }
    }
    let set_aside = world.records.hosts.values().filter_map(HostFaults::set_aside_until);
    set_aside.for_each(|at| next.consider(at));
    for (id, stage) in &world.records.stages {
        if let (Some(spec), Some(deployment)) = (world.catalog.stages.get(id), &stage.deployment) {
            deadline(&spec.rollout, deployment).into_iter().for_each(|at| next.consider(at));
        }
        stage.repairs.not_before.into_iter().for_each(|at| next.consider(at));
    }
    next.at
}

struct Next {
    now: Timestamp,
    at: Option<Timestamp>,
}

impl Next {
    fn consider(&mut self, at: Timestamp) {
        if at > self.now {
            self.at = Some(self.at.map_or(at, |before| before.min(at)));
        }
    }
}
