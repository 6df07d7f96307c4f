//! What other systems of this kind get wrong about desired state: each test is one such report, turned round.

use denv_planner::{Deployment, Plan, Step, Subject, UnitRecord, vet};
use denv_schema::UnitId;
use denv_schema::api::RolloutAction;

use crate::events::Event;
use crate::manifests::{FleetShape, GateShape, Needs, Shape, StageShape, stage_id};
use crate::world::Simulation;

/// Two stages that share nothing but the plan.
fn two_stages(pauses: bool) -> Shape {
    let stage = |fleet| StageShape {
        needs: Needs::Slots(1),
        fleets: vec![fleet],
        more: 0,
        replace: false,
        auto: false,
        max_unavailable: 0,
        bake: 5,
        pauses,
        when: None,
        gates: GateShape::default(),
    };
    let fleet = FleetShape::of_slots(2, 2);
    Shape { fleets: vec![fleet.clone(), fleet], stages: vec![stage(0), stage(1)], gateways: 1, lag: 0 }
}

/// The first stage's last deployment.
fn deployment(simulation: &Simulation) -> Option<&Deployment> {
    simulation.records.stages.get(&stage_id(0))?.deployment.as_ref()
}

/// The release of each unit of a stage.
fn released(simulation: &Simulation, stage: usize) -> Vec<&str> {
    let units = simulation.records.units.values().filter(|unit| unit.stage == stage_id(stage));
    units.map(|unit| unit.release.as_str()).collect()
}

/// Retries stay pinned to a broken revision elsewhere; here a newer one takes its place in the same pass.
#[test]
fn a_newer_revision_supersedes_a_broken_one_within_one_pass() {
    for broken in [2, 3, 4] {
        let mut simulation = Simulation::simple(2, 2, false, 20);
        simulation.run(100);
        simulation.apply(Event::Release(0, broken));
        simulation.run(3);
        simulation.apply(Event::Release(0, 1));
        simulation.run(1);
        let deployment = deployment(&simulation).unwrap();
        assert_eq!(deployment.to.as_str(), "chat-good-1", "{}", simulation.transcript());
        simulation.run(200);
        assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
    }
}

/// A rolled-back release is applied again by the next sync elsewhere; here it is held until the stage's inputs change.
#[test]
fn what_was_rolled_back_is_not_tried_again_for_a_change_elsewhere() {
    let mut simulation = Simulation::new(two_stages(false), 21);
    simulation.run(100);
    simulation.apply(Event::Release(0, 2));
    simulation.run(300);
    let before = deployment(&simulation).unwrap().number;
    simulation.apply(Event::Release(1, 1));
    simulation.run(300);
    assert_eq!(deployment(&simulation).unwrap().number, before, "{}", simulation.transcript());
}

/// Waiting for health blocks the fix elsewhere; here every wait ends at once when a person or a newer revision says so.
#[test]
fn any_wait_is_cancelled_at_any_point() {
    for seconds in 1..40 {
        // Release 3 never becomes healthy; before that it waits for its start, with room or without.
        for slots in [1, 2] {
            let mut simulation = Simulation::simple(2, slots, false, 22);
            simulation.run(100);
            simulation.apply(Event::Release(0, 3));
            simulation.run(seconds);
            simulation.apply(Event::Action(0, RolloutAction::Abort));
            simulation.run(120);
            assert_eq!(
                simulation.running(),
                [("chat-good-0", 2)],
                "{seconds} s\n{}",
                simulation.transcript()
            );
            let open = deployment(&simulation).is_some_and(|deployment| !deployment.phase.is_over());
            assert!(!open, "after {seconds} s: {}", simulation.waiting());
        }
    }
}

/// Failing objects slow the healthy ones elsewhere; here one stage's trouble delays no other.
#[test]
fn one_stage_s_trouble_delays_no_other() {
    let alone = |trouble: Option<u8>| {
        let mut simulation = Simulation::new(two_stages(true), 23);
        simulation.run(100);
        if let Some(release) = trouble {
            simulation.apply(Event::Release(0, release));
            simulation.run(30);
        }
        simulation.apply(Event::Release(1, 1));
        let begun = simulation.second();
        while released(&simulation, 1) != ["code-good-1"; 2] {
            simulation.run(1);
            assert!(simulation.second() - begun < 600, "{}", simulation.transcript());
        }
        simulation.second() - begun
    };
    let untroubled = alone(None);
    for trouble in [2, 3, 4] {
        assert_eq!(alone(Some(trouble)), untroubled, "beside release {trouble}");
    }
}

/// A denied prune is forgotten elsewhere; here what should go stays on the books until it is seen gone.
#[test]
fn what_should_go_stays_on_the_books_until_it_is_seen_gone() {
    let mut simulation = Simulation::simple(2, 2, false, 24);
    simulation.run(100);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.apply(Event::StageRemoved(0));
    simulation.run(20);
    assert!(!simulation.units().is_empty(), "what is not seen gone is not forgotten");
    simulation.apply(Event::HostReturns(host));
    simulation.run(200);
    assert!(simulation.units().is_empty(), "{}", simulation.transcript());
    assert!(simulation.hosts.iter().all(|host| host.leftovers().is_empty()), "{}", simulation.transcript());
}

/// Even where the planner itself errs about one stage, which stands still then, and says so.
#[test]
fn what_would_break_one_stages_invariants_stops_no_other() {
    let mut simulation = Simulation::new(two_stages(false), 27);
    simulation.run(100);
    simulation.apply(Event::Scale(1, 3));
    let sound = simulation.plan();
    assert!(!sound.steps.is_empty());
    let of_first = simulation.records.units.iter().find(|(_, unit)| unit.stage == stage_id(0)).unwrap().0;
    let mut planned = sound.clone();
    planned.steps.insert(0, Step::StopUnit { unit: of_first.clone(), at: simulation.now });
    let vetted = vet(&simulation.world(), planned);
    assert_eq!(vetted.steps, sound.steps);
    let said = vetted.waiting[&Subject::Stage(stage_id(0))].to_string();
    assert!(said.contains(&format!("`{of_first}` would stop while gateways may use it")), "{said}");
    assert_eq!(vetted.waiting.get(&Subject::Stage(stage_id(1))), None);
    // Where each is sound by itself, and not beside the other, neither is trusted.
    let start = |stage: usize| {
        let like = simulation.records.units.values().find(|unit| unit.stage == stage_id(1)).unwrap();
        let unit = UnitId::new(&stage_id(stage), 90);
        Step::StartUnit { unit, record: UnitRecord { stage: stage_id(stage), ..(**like).clone() } }
    };
    let vetted = vet(&simulation.world(), Plan { steps: vec![start(0), start(1)], ..Plan::default() });
    assert_eq!((vetted.steps, vetted.waiting.len()), (Vec::new(), 2));
}
