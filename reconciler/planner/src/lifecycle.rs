//! A unit's own steps, whatever its stage is doing: ready when seen ready, stopped when drained, forgotten when gone,
//! started again when its host lost it.

use denv_schema::manifest::Rollout;
use denv_schema::wire::Rotation;
use denv_schema::{Name, UnitId};

use crate::pass::{Pass, Unit};
use crate::plan::{Step, Subject};
use crate::records::{MemberRecord, StageRecord, UnitPhase, UnitRecord};
use crate::status::{UnitStatus, is_gone, laggard, start_deadline};
use crate::waiting::WaitingOn;
use crate::world::{World, signed};

pub(crate) fn advance(pass: &mut Pass<'_>, unit: &Unit<'_>, rollout: &Rollout) {
    let (id, record, now) = (unit.id.clone(), unit.record, pass.world.now);
    match (&unit.status, record.phase) {
        (UnitStatus::Ready, UnitPhase::Starting) => pass.step(Step::MarkReady { unit: id, at: now }),
        (UnitStatus::Ready, _) => {}
        (UnitStatus::Draining, _) => match drained(pass.world, unit.id, record, rollout) {
            Ok(()) => pass.step(Step::StopUnit { unit: id, at: now }),
            Err(waiting) => pass.wait(Subject::Unit(id), waiting),
        },
        (UnitStatus::Stopping, _) => {
            pass.wait(Subject::Unit(id), WaitingOn::Stop { host: stopping(pass.world, record).host.clone() });
        }
        (UnitStatus::Stopped, _) => pass.step(Step::ForgetUnit { unit: id }),
        (UnitStatus::Drifted { reason }, _) => {
            let (generation, reason) = (record.generation + 1, reason.clone());
            pass.step(Step::RestartUnit { unit: id, generation, reason, at: now });
        }
        (UnitStatus::Planned, _) => start(pass, unit, "waiting for the host to take it up"),
        (UnitStatus::Preparing, _) => start(pass, unit, "preparing weights"),
        (UnitStatus::Starting, _) => start(pass, unit, "starting the engine"),
        (UnitStatus::Withheld, _) => pass.wait(Subject::Unit(id), WaitingOn::Gate),
        (UnitStatus::Checking { unrouted }, _) => {
            let until = start_deadline(pass.world, record, &unit.status);
            pass.wait(Subject::Unit(id), WaitingOn::Gateways { gateways: unrouted.clone(), until });
        }
        (UnitStatus::Unhealthy { reason } | UnitStatus::Failed { reason, .. }, _) => {
            let waiting = WaitingOn::Unhealthy {
                host: laggard(pass.world, record).host.clone(),
                reason: reason.clone(),
            };
            pass.wait(Subject::Unit(id), waiting);
        }
        // Whether it is replaced is the stage's decision.
        (UnitStatus::Silent { .. }, _) => {}
    }
}

/// A member that is not gone yet.
fn stopping<'u>(world: &World<'_>, unit: &'u UnitRecord) -> &'u MemberRecord {
    unit.members.iter().find(|member| !is_gone(world, unit, member)).unwrap_or_else(|| unit.front())
}

fn start(pass: &mut Pass<'_>, unit: &Unit<'_>, doing: &str) {
    let (host, until) = (
        laggard(pass.world, unit.record).host.clone(),
        start_deadline(pass.world, unit.record, &unit.status),
    );
    pass.wait(Subject::Unit(unit.id.clone()), WaitingOn::Start { host, doing: doing.to_owned(), until });
}

/// Every gateway that is alive has confirmed that the unit left rotation, and its requests finished or their time is
/// up.
pub(crate) fn drained(
    world: &World<'_>,
    id: &UnitId,
    unit: &UnitRecord,
    rollout: &Rollout,
) -> Result<(), WaitingOn> {
    let heard = world.records.stages.get(&unit.stage).and_then(StageRecord::gateways_heard);
    if let Some(until) = heard.filter(|until| world.now < *until) {
        return Err(WaitingOn::Recovery { until });
    }
    let until = unit.since + signed(rollout.drain_timeout.get());
    let mut inflight = 0;
    let mut unconfirmed: Vec<Name> = Vec::new();
    for (name, gateway) in world.live_gateways() {
        match gateway.unit(id, unit.generation) {
            Some(report) if report.rotation == Rotation::Out && !report.in_rotation => {
                inflight += report.inflight;
            }
            _ => unconfirmed.push(name.clone()),
        }
    }
    if unconfirmed.is_empty() && (inflight == 0 || world.now >= until) {
        return Ok(());
    }
    Err(WaitingOn::Drain { inflight, unconfirmed, until })
}
