//! When batches may begin: windows and freezes.

use denv_planner::{Phase, Plan, Step, checker};
use denv_schema::api::RolloutAction;

use crate::events::Event;
use crate::manifests::{Shape, stage_id};
use crate::world::Simulation;

/// Two units that run, and a release that waits for its window or for the end of a freeze.
fn waiting(when: &str) -> Simulation {
    let mut simulation = begun(when);
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    simulation.apply(Event::Release(0, 1));
    simulation.run(60);
    simulation
}

fn begun(when: &str) -> Simulation {
    let mut shape = Shape::simple(3, 2, false);
    shape.stages[0].when = Some(when.to_owned());
    Simulation::new(shape, 30)
}

fn phase(simulation: &Simulation) -> Phase {
    simulation.records.stages[&stage_id(0)].deployment.as_ref().unwrap().phase
}

#[test]
fn a_deployment_waits_for_its_window() {
    let mut simulation = waiting("windows: [{from: '08:00', to: '08:02'}, {from: '08:10', to: '08:30'}]");
    assert_eq!(phase(&simulation), Phase::Pending);
    let said = "outside its windows until 2027-01-15T08:10:00Z, when `every day 08:10 to 08:30 UTC` is open";
    assert!(simulation.waiting().contains(said), "{}", simulation.waiting());
    while simulation.second() < 599 {
        simulation.run(1);
        assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    }
    simulation.run(3);
    assert_eq!(phase(&simulation), Phase::Rolling { batch: 0 });
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn the_first_deployment_waits_too() {
    let mut simulation =
        begun("freezes: [{from: 2027-01-15T07:00:00Z, until: 2027-01-15T08:05:00Z, reason: moving}]");
    simulation.run(290);
    assert!(simulation.units().is_empty());
    let waiting = simulation.waiting();
    assert!(waiting.contains("frozen until 2027-01-15T08:05:00Z: moving"), "{waiting}");
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
}

#[test]
fn a_batch_that_has_begun_is_finished_and_the_next_waits() {
    let frozen = "freezes: [{from: 2027-01-15T08:03:25Z, until: 2027-01-15T08:10:00Z}]";
    let mut simulation = waiting(frozen);
    assert_eq!(phase(&simulation), Phase::Baking { batch: 0 }, "{}", simulation.transcript());
    assert_eq!(simulation.running(), [("chat-good-0", 1), ("chat-good-1", 1)]);
    assert!(simulation.waiting().contains("frozen until 2027-01-15T08:10:00Z"), "{}", simulation.waiting());
    // What fails or is lost meanwhile is replaced, of either release.
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.run(150);
    assert_eq!(simulation.ready(), 2, "{}", simulation.transcript());
    simulation.apply(Event::HostReturns(host));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn going_back_needs_no_window() {
    let frozen = "freezes: [{from: 2027-01-15T08:03:25Z, until: 2027-01-15T09:00:00Z}]";
    let mut simulation = waiting(frozen);
    assert_eq!(phase(&simulation), Phase::Baking { batch: 0 }, "{}", simulation.transcript());
    simulation.apply(Event::Action(0, RolloutAction::Abort));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    assert_eq!(phase(&simulation), Phase::RolledBack);
}

#[test]
fn more_and_fewer_units_need_no_window() {
    let mut simulation = begun("windows: [{from: '08:00', to: '08:02'}]");
    simulation.run(200);
    for units in [3, 1] {
        simulation.apply(Event::Scale(0, units));
        simulation.run(100);
        assert_eq!(simulation.ready(), units as usize, "{}", simulation.transcript());
    }
}

#[test]
fn a_batch_that_begins_in_a_freeze_is_caught() {
    let simulation = waiting("windows: [{from: '08:00', to: '08:02'}]");
    let step = Step::MoveDeployment {
        stage: stage_id(0),
        phase: Phase::Rolling { batch: 0 },
        reason: None,
        at: simulation.now,
    };
    let planned = Plan { steps: vec![step], ..Plan::default() };
    let stage = stage_id(0);
    assert_eq!(
        checker::check(&simulation.world(), &planned),
        [checker::Violation::BegunOutsideWindows { stage }]
    );
}
