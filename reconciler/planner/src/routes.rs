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
            UnitPhase::Ready if healthy => Rotation::In,
            // A silent host's engines run on; gateways see for themselves whether they answer.
            UnitPhase::Ready if !host.connected => Rotation::In,
            UnitPhase::Ready | UnitPhase::Draining => Rotation::Out,
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
