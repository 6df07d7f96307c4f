//! What gateways are told of units.

use denv_schema::wire::{MemberState, Rotation, UnitRoute};

use crate::records::UnitPhase;
use crate::world::World;

/// Every unit that gateways must know, in or out of rotation.
pub fn routes(world: &World<'_>) -> Vec<UnitRoute> {
    let route = |(id, unit): (&denv_schema::UnitId, &crate::UnitRecord)| {
        let host = world.host(&unit.host)?;
        let member = world.member(unit).filter(|member| member.generation == unit.generation);
        let healthy = member.is_some_and(|member| member.state == MemberState::Healthy);
        let rotation = match unit.phase {
            UnitPhase::Starting if healthy => Rotation::In,
            // Gateways see for themselves whether it answers, sooner than denv does. So out of rotation has one
            // meaning, for good, and no gateway's word of it can be of an earlier time than the drain it confirms.
            UnitPhase::Ready => Rotation::In,
            UnitPhase::Draining => Rotation::Out,
            UnitPhase::Starting | UnitPhase::Stopping => return None,
        };
        Some(UnitRoute {
            unit: id.clone(),
            generation: unit.generation,
            stage: unit.stage.clone(),
            release: unit.release.clone(),
            model: unit.spec.model.clone(),
            host: unit.host.clone(),
            ingress: host.ingress.clone(),
            member: unit.member.clone(),
            rotation,
        })
    };
    world.records.units.iter().filter_map(route).collect()
}
