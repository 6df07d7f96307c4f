//! What gateways are told of units.

use std::sync::Arc;

use denv_schema::UnitId;
use denv_schema::wire::{MemberRoute, MemberState, PrefillRoute, Rotation, UnitReport, UnitRoute};

use crate::records::{MemberRecord, UnitPhase};
use crate::strangers::{all_heard, is_orphan};
use crate::world::World;

/// Whether the records know every unit that gateways send to. Where records were lost they do not yet, and gateways that were
/// told of what they know would drop the rest. A process that has listened for long knows all that there is to know.
pub fn knows_what_serves(world: &World<'_>) -> bool {
    let is_known = |(id, report): (&UnitId, &UnitReport)| {
        let orphan = || id.parts().is_some_and(|(stage, number)| is_orphan(world.records, &stage, number));
        !report.in_rotation || world.records.units.contains_key(id) || !orphan()
    };
    let mut gateways = world.observed.gateways.values().filter(|gateway| gateway.connected).peekable();
    // What is told before one is heard would be told to the first that dials in, whatever that one sends to.
    let is_heard = gateways.peek().is_some();
    world.now >= all_heard(world)
        || is_heard && gateways.all(|gateway| gateway.report.units.iter().all(is_known))
}

/// Every unit that gateways must know, in or out of rotation.
pub fn routes(world: &World<'_>) -> Vec<UnitRoute> {
    let place = |member: &MemberRecord| {
        let ingress = world.host(&member.host)?.ingress.clone();
        let health = member.spec.probe.as_ref().map(|probe| probe.path.clone())?;
        Some(MemberRoute { host: member.host.clone(), ingress, member: member.id.clone(), health })
    };
    let route = |(id, unit): (&denv_schema::UnitId, &Arc<crate::UnitRecord>)| {
        let healthy = unit.members.iter().all(|member| {
            let report = world.member(member).filter(|report| report.generation == unit.generation);
            report.is_some_and(|report| report.state == MemberState::Healthy)
        });
        let rotation = match unit.phase {
            UnitPhase::Starting if healthy && !unit.withheld => Rotation::In,
            // Gateways see for themselves whether it answers, sooner than denv does. So out of rotation has one
            // meaning, for good, and no gateway's word of it can be of an earlier time than the drain it confirms.
            UnitPhase::Ready => Rotation::In,
            UnitPhase::Draining => Rotation::Out,
            UnitPhase::Starting | UnitPhase::Stopping => return None,
        };
        let front = unit.front();
        Some(UnitRoute {
            unit: id.clone(),
            generation: unit.generation,
            stage: unit.stage.clone(),
            release: unit.release.clone(),
            model: unit.model().to_owned(),
            at: place(front)?,
            prefill: match unit.prefill() {
                Some((member, hand_over)) => {
                    Some(PrefillRoute { at: place(member)?, hand_over: hand_over.clone() })
                }
                None => None,
            },
            rotation,
        })
    };
    world.records.units.iter().filter_map(route).collect()
}
