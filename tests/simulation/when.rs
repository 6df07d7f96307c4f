//! When batches may begin: windows, freezes and approvals.

use denv_planner::actions::{Refusal, act};
use denv_planner::{Deployment, Phase, Plan, Step, checker};
use denv_schema::api::{RolloutAction, RolloutRequest};

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

fn deployment(simulation: &Simulation) -> &Deployment {
    simulation.records.stages[&stage_id(0)].deployment.as_ref().unwrap()
}

fn phase(simulation: &Simulation) -> Phase {
    deployment(simulation).phase
}

fn approve(simulation: &Simulation, release: Option<&str>) -> Result<Vec<Step>, Refusal> {
    let release = release.map(|release| release.parse().unwrap());
    let request = RolloutRequest { action: RolloutAction::Approve, release };
    act(&simulation.records, &stage_id(0), &request, "ada", simulation.now)
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

const ASKS: &str = "a person is to approve it: `denv rollout approve chat/prod --release chat-good-";

#[test]
fn a_deployment_waits_for_a_person() {
    let mut simulation = begun("approval: required");
    simulation.run(200);
    assert!(simulation.units().is_empty(), "the first too\n{}", simulation.transcript());
    assert!(simulation.waiting().contains(&format!("{ASKS}0`")), "{}", simulation.waiting());
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    let approved = deployment(&simulation).approved.clone().unwrap();
    assert_eq!(approved.by, "someone");

    // The next asks anew, and what runs is kept meanwhile.
    simulation.apply(Event::Release(0, 1));
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.run(200);
    simulation.apply(Event::HostReturns(host));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    assert!(simulation.waiting().contains(&format!("{ASKS}1`")), "{}", simulation.waiting());
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn an_approval_is_of_one_deployment() {
    let mut simulation = begun("approval: required");
    simulation.run(5);
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    simulation.run(100);
    simulation.apply(Event::Release(0, 2));
    simulation.run(5);
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    simulation.run(200);
    // It failed, and going back needed nobody.
    assert_eq!(phase(&simulation), Phase::RolledBack, "{}", simulation.transcript());
    simulation.apply(Event::Action(0, RolloutAction::Retry));
    simulation.run(100);
    assert_eq!(phase(&simulation), Phase::Pending, "a retry asks again\n{}", simulation.transcript());
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    simulation.apply(Event::Release(0, 1));
    simulation.run(100);
    assert_eq!((phase(&simulation), deployment(&simulation).approved.clone()), (Phase::Pending, None));
    simulation.apply(Event::Release(0, 0));
    simulation.run(100);
    assert_eq!(phase(&simulation), Phase::Superseded, "what runs needs no approval");
}

#[test]
fn an_approval_opens_no_window() {
    let mut simulation = begun("approval: required, windows: [{from: '09:00', to: '10:00'}]");
    simulation.run(60);
    assert!(simulation.units().is_empty());
    assert!(simulation.waiting().contains(ASKS), "who may approve learns of it before the window opens");
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    simulation.run(100);
    assert!(simulation.units().is_empty());
    assert!(simulation.waiting().contains("outside its windows until 2027-01-15T09:00:00Z"));
}

#[test]
fn what_cannot_be_approved_is_refused_in_words() {
    let mut simulation = begun("approval: required");
    let refused = |simulation: &Simulation, release| approve(simulation, release).unwrap_err().to_string();
    let mut said = vec![refused(&simulation, None)];
    simulation.run(5);
    said.push(refused(&simulation, Some("chat-good-1")));
    simulation.apply(Event::Action(0, RolloutAction::Approve));
    said.push(refused(&simulation, Some("chat-good-0")));
    simulation.run(2);
    said.push(refused(&simulation, None));
    simulation.run(100);
    said.push(refused(&simulation, None));
    insta::assert_snapshot!(said.join("\n"), @"
    there is no stage `chat/prod` with a deployment yet
    the deployment of `chat/prod` is to `chat-good-0`, and not to `chat-good-1`
    the deployment of `chat/prod` is approved already, by someone
    the deployment of `chat/prod` has begun; there is nothing to approve
    the last deployment of `chat/prod` is over: it succeeded; nothing to approve
    ");
}

#[test]
fn a_deployment_that_begins_unapproved_is_caught() {
    let mut simulation = begun("approval: required");
    simulation.run(5);
    let stage = stage_id(0);
    let (phase, at) = (Phase::Rolling { batch: 0 }, simulation.now);
    let begin = Step::MoveDeployment { stage: stage.clone(), phase, reason: None, at };
    let check = |steps| checker::check(&simulation.world(), &Plan { steps, ..Plan::default() });
    assert_eq!(check(vec![begin.clone()]), [checker::Violation::BegunUnapproved { stage }]);
    let approval = approve(&simulation, None).unwrap();
    assert_eq!(check([approval, vec![begin]].concat()), []);
}

#[test]
fn a_deployment_of_before_there_were_approvals_is_read() {
    let mut simulation = begun("approval: required");
    simulation.run(5);
    let mut kept = serde_json::to_value(deployment(&simulation)).unwrap();
    kept.as_object_mut().unwrap().remove("approved").unwrap();
    let read: Deployment = serde_json::from_value(kept).unwrap();
    assert_eq!(read, *deployment(&simulation));
}
