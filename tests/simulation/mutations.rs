//! Plans that a planner with a fault would make. Each is a sound world's plan with one step that should not be in it,
//! and the checker must say which invariant it breaks.

use std::sync::Arc;

use denv_planner::checker::{Violation, check};
use denv_planner::{Plan, Step, UnitPhase, UnitRecord};
use denv_schema::UnitId;
use denv_schema::wire::MemberState;

use crate::events::Event;
use crate::manifests::{FleetShape, Needs, Shape, StageShape};
use crate::world::Simulation;

/// At rest, with two units on CPU slots.
fn at_rest(hosts: u32, slots: u32) -> Simulation {
    let mut simulation = Simulation::simple(hosts, slots, false, 1);
    simulation.run(100);
    simulation
}

/// At rest, with two units of two GPUs each.
fn on_gpus(max_unavailable: u32) -> Simulation {
    let mut shape = Shape::simple(3, 0, false);
    shape.fleets = vec![FleetShape::of_gpus(3, 4)];
    shape.stages = vec![StageShape { needs: Needs::Gpus(2), max_unavailable, ..shape.stages[0].clone() }];
    let mut simulation = Simulation::new(shape, 1);
    simulation.run(100);
    assert_eq!(simulation.ready(), 2);
    simulation
}

fn unit(simulation: &Simulation, index: usize) -> (UnitId, UnitRecord) {
    let (id, record) = simulation.records.units.iter().nth(index).unwrap();
    (id.clone(), (**record).clone())
}

/// What the checker finds in a plan that also has `steps`, and would not have found without.
fn found(simulation: &Simulation, steps: Vec<Step>) -> Vec<Violation> {
    let mut planned = simulation.plan();
    assert_eq!(check(&simulation.world(), &planned), []);
    planned.steps.extend(steps);
    check(&simulation.world(), &planned)
}

fn drain(simulation: &Simulation, unit: &UnitId) -> Step {
    Step::DrainUnit {
        unit: unit.clone(),
        reason: String::new(),
        repair_at: None,
        blame: None,
        at: simulation.now,
    }
}

fn stop(simulation: &Simulation, unit: &UnitId) -> Step {
    Step::StopUnit { unit: unit.clone(), at: simulation.now }
}

/// A new unit in the place of `like`.
fn start(like: UnitRecord) -> Step {
    Step::StartUnit { unit: UnitId::new(&like.stage, 99), record: like }
}

#[test]
fn a_stop_without_a_drain_is_caught() {
    let simulation = at_rest(2, 2);
    let (id, _) = unit(&simulation, 0);
    let violations = found(&simulation, vec![stop(&simulation, &id)]);
    assert!(violations.contains(&Violation::StoppedUndrained { unit: id }), "{violations:?}");
}

#[test]
fn a_stop_in_the_middle_of_a_drain_is_caught() {
    let mut simulation = at_rest(2, 2);
    simulation.apply(Event::Traffic(true));
    simulation.apply(Event::Scale(0, 1));
    simulation.run(3);
    let draining = simulation.records.units.iter().find(|(_, unit)| unit.phase == UnitPhase::Draining);
    let id = draining.unwrap().0.clone();
    let violations = found(&simulation, vec![stop(&simulation, &id)]);
    assert_eq!(violations, [Violation::StoppedUndrained { unit: id }]);
}

#[test]
fn one_drain_too_many_is_caught() {
    let simulation = on_gpus(1);
    let (first, second) = (unit(&simulation, 0).0, unit(&simulation, 1).0);
    assert_eq!(found(&simulation, vec![drain(&simulation, &first)]), []);
    let violations = found(&simulation, vec![drain(&simulation, &first), drain(&simulation, &second)]);
    assert!(matches!(violations[..], [Violation::BelowFloor { left: 0, floor: 1, .. }]), "{violations:?}");
}

#[test]
fn a_drain_of_what_may_be_serving_is_caught() {
    let mut simulation = on_gpus(0);
    // A gateway comes back, and has not said yet what it routes to.
    simulation.observed.gateways.values_mut().for_each(|gateway| gateway.report = Default::default());
    let (id, _) = unit(&simulation, 0);
    let violations = found(&simulation, vec![drain(&simulation, &id)]);
    assert!(matches!(violations[..], [Violation::BelowFloor { left: 0, floor: 2, .. }]), "{violations:?}");
}

/// As a denvd says that was just started again.
#[test]
fn a_drain_of_what_gateways_send_to_and_its_host_has_not_checked_is_caught() {
    let mut simulation = on_gpus(0);
    let (id, record) = unit(&simulation, 0);
    let host = simulation.observed.hosts.get_mut(&record.front().host).unwrap();
    let report = Arc::make_mut(&mut host.report);
    report.members.get_mut(&record.front().id).unwrap().state = MemberState::Unhealthy;
    let violations = found(&simulation, vec![drain(&simulation, &id)]);
    assert!(matches!(violations[..], [Violation::BelowFloor { left: 1, floor: 2, .. }]), "{violations:?}");
}

#[test]
fn a_drain_that_nothing_replaces_yet_is_caught() {
    let mut simulation = on_gpus(1);
    simulation.apply(Event::Release(0, 1));
    simulation.run(2);
    let (id, _) = unit(&simulation, 0);
    let violations = found(&simulation, vec![drain(&simulation, &id)]);
    assert!(matches!(violations[..], [Violation::NotReplaced { .. }]), "{violations:?}");
}

#[test]
fn a_drain_for_silence_under_the_brake_is_caught() {
    let mut simulation = at_rest(4, 1);
    simulation.apply(Event::HostVanishes(0));
    simulation.apply(Event::HostVanishes(1));
    simulation.run(20);
    let (id, _) = unit(&simulation, 0);
    let violations = found(&simulation, vec![drain(&simulation, &id)]);
    assert!(violations.contains(&Violation::RemovedWhileBlind { unit: id }), "{violations:?}");
}

#[test]
fn a_place_on_a_cordoned_host_is_caught() {
    let mut simulation = at_rest(3, 2);
    let (_, like) = unit(&simulation, 0);
    assert_eq!(found(&simulation, vec![start(like.clone())]), []);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostCordoned(host));
    let violations = found(&simulation, vec![start(like.clone())]);
    assert!(matches!(violations[..], [Violation::OutOfPlace { .. }]), "{violations:?}");
    simulation.apply(Event::HostUncordoned(host));
    simulation.apply(Event::HostRemoved(host));
    let violations = found(&simulation, vec![start(like)]);
    assert!(
        violations.iter().any(|violation| matches!(violation, Violation::OutOfPlace { .. })),
        "{violations:?}"
    );
}

#[test]
fn a_gpu_or_slot_given_twice_is_caught() {
    let simulation = on_gpus(0);
    let (_, like) = unit(&simulation, 0);
    let violations = found(&simulation, vec![start(like)]);
    assert!(
        matches!(violations[..], [Violation::GpuTakenTwice { .. }, Violation::GpuTakenTwice { .. }]),
        "{violations:?}"
    );
    let simulation = at_rest(3, 1);
    let (_, like) = unit(&simulation, 0);
    let violations = found(&simulation, vec![start(like)]);
    assert!(
        matches!(violations[..], [Violation::SlotsOvercommitted { taken: 2, of: 1, .. }]),
        "{violations:?}"
    );
}

#[test]
fn a_generation_used_again_is_caught() {
    let mut simulation = at_rest(2, 2);
    let (id, like) = unit(&simulation, 0);
    let violations = found(&simulation, vec![Step::StartUnit { unit: id.clone(), record: like.clone() }]);
    assert!(violations.contains(&Violation::GenerationRepeated { unit: id.clone() }), "{violations:?}");
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostLosesState(host));
    // The planner itself starts it again as the next generation, once that is heard.
    for _ in 0..10 {
        let again = |generation| Step::RestartUnit {
            unit: id.clone(),
            generation,
            reason: String::new(),
            at: simulation.now,
        };
        let violations = found(&simulation, vec![again(simulation.records.units[&id].generation)]);
        assert!(violations.contains(&Violation::GenerationRepeated { unit: id.clone() }), "{violations:?}");
        simulation.run(1);
    }
}

#[test]
fn a_restart_of_what_serves_is_caught() {
    let simulation = at_rest(2, 2);
    let (id, record) = unit(&simulation, 0);
    let generation = record.generation + 1;
    let restart =
        Step::RestartUnit { unit: id.clone(), generation, reason: String::new(), at: simulation.now };
    assert_eq!(found(&simulation, vec![restart]), [Violation::RestartedServing { unit: id }]);
}

#[test]
fn forgetting_what_still_runs_is_caught() {
    let mut simulation = at_rest(2, 2);
    simulation.apply(Event::Scale(0, 1));
    for _ in 0..20 {
        simulation.run(1);
        let stopping = simulation.records.units.iter().find(|(_, unit)| unit.phase == UnitPhase::Stopping);
        if let Some((id, _)) = stopping {
            let forget = Step::ForgetUnit { unit: id.clone() };
            assert_eq!(found(&simulation, vec![forget]), [Violation::ForgottenRunning { unit: id.clone() }]);
            return;
        }
    }
    panic!("nothing stopped\n{}", simulation.transcript());
}

#[test]
fn an_empty_plan_breaks_nothing() {
    assert_eq!(check(&at_rest(2, 2).world(), &Plan::default()), []);
}
