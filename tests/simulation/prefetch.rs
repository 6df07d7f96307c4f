//! What hosts prepare before it is needed: how simulated hosts do it, and that nothing moves before.

use denv_planner::checker::{Violation, check};
use denv_planner::{Phase, Plan, Step};
use denv_schema::api::RolloutAction;
use denv_schema::wire::{Artifact, ArtifactReport, ArtifactState};
use jiff::{SignedDuration, Timestamp};

use crate::events::Event;
use crate::manifests::{Shape, stage_id};
use crate::world::Simulation;

/// What a denvd was asked to prepare. It forgets it with its process.
#[derive(Default)]
pub struct Preparing {
    /// What was asked on this stream.
    pub asked: Vec<Artifact>,
    reports: Vec<(ArtifactReport, Timestamp)>,
    /// Nothing can be prepared here.
    pub fails: bool,
    /// That is because of where it is fetched from.
    pub is_away: bool,
    /// How many seconds it takes to prepare something.
    pub takes: i64,
}

impl Preparing {
    pub fn want(&mut self, artifacts: Vec<Artifact>, now: Timestamp) {
        let mut before = std::mem::take(&mut self.reports);
        let due = now + SignedDuration::from_secs(self.takes);
        for artifact in &artifacts {
            let known = before.iter().position(|(report, _)| report.artifact == *artifact);
            let report =
                ArtifactReport { artifact: artifact.clone(), state: ArtifactState::Preparing, fetched: None };
            self.reports.push(known.map_or((report, due), |at| before.swap_remove(at)));
        }
        self.asked = artifacts;
    }

    /// A second passes; what failed is tried again.
    pub fn act(&mut self, now: Timestamp) {
        for (report, due) in self
            .reports
            .iter_mut()
            .filter(|(report, due)| report.state != ArtifactState::Ready && *due <= now)
        {
            report.state = match self.fails {
                true => ArtifactState::Failed { reason: "no such file".to_owned(), passing: self.is_away },
                false => ArtifactState::Ready,
            };
            *due = now + SignedDuration::from_secs(5);
        }
    }

    /// denvd ends.
    pub fn forget(&mut self) {
        self.asked.clear();
        self.reports.clear();
    }

    pub fn reports(&self) -> Vec<ArtifactReport> {
        self.reports.iter().map(|(report, _)| report.clone()).collect()
    }
}

fn at_rest() -> Simulation {
    let mut simulation = Simulation::new(Shape::simple(2, 1, true), 91);
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    simulation
}

fn phase(simulation: &Simulation) -> Phase {
    simulation.records.stages[&stage_id(0)].deployment.as_ref().unwrap().phase
}

#[test]
fn nothing_stops_before_what_comes_is_prepared() {
    let mut simulation = at_rest();
    simulation.hosts.iter_mut().for_each(|host| host.preparing.takes = 300);
    simulation.apply(Event::Release(0, 1));
    simulation.run(290);
    assert_eq!(phase(&simulation), Phase::Pending);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    let waiting = simulation.waiting();
    assert!(
        waiting.contains("0 of 2 hosts have prepared `chat-good-1`, and nothing moves before"),
        "{waiting}"
    );
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn it_is_prepared_while_a_person_is_waited_for() {
    let mut shape = Shape::simple(2, 1, true);
    shape.stages[0].when = Some("approval: required".to_owned());
    let mut simulation = Simulation::new(shape, 92);
    simulation.hosts.iter_mut().for_each(|host| host.preparing.takes = 60);
    simulation.run(100);
    simulation.ask(0, RolloutAction::Approve);
    simulation.run(1);
    assert!(matches!(phase(&simulation), Phase::Rolling { .. }), "{}", simulation.transcript());
}

#[test]
fn a_host_that_cannot_prepare_it_is_named_and_fails_no_release() {
    let mut simulation = at_rest();
    simulation.hosts[1].preparing.fails = true;
    simulation.apply(Event::Release(0, 1));
    simulation.run(100);
    assert_eq!(phase(&simulation), Phase::Pending);
    assert_eq!(simulation.ready(), 2);
    let waiting = simulation.waiting();
    let told = "1 of 2 hosts have prepared `chat-good-1`, and nothing moves before all have; `h01` cannot: no such file. Mend it";
    assert!(waiting.contains(told), "{waiting}");
    simulation.hosts[1].preparing.fails = false;
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn what_no_host_can_prepare_is_held_and_has_moved_nothing() {
    let mut simulation = at_rest();
    simulation.hosts.iter_mut().for_each(|host| host.preparing.fails = true);
    simulation.apply(Event::Release(0, 1));
    simulation.run(60);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    let hold = simulation.records.stages[&stage_id(0)].hold.as_ref().expect("held");
    assert_eq!(hold.reason, "none of 2 hosts can prepare it: `h00`: no such file");
    let started = simulation.log.iter().filter(|line| line.contains("start `chat-good-1`")).count();
    assert_eq!(started, 0);
    // Mended, and tried again: the failure of before is not held against it.
    simulation.hosts.iter_mut().for_each(|host| host.preparing.fails = false);
    simulation.ask(0, RolloutAction::Retry);
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn a_source_that_is_away_everywhere_holds_no_release() {
    let mut simulation = at_rest();
    let away = |simulation: &mut Simulation, is_away: bool| {
        simulation.hosts.iter_mut().for_each(|host| host.preparing.fails = is_away);
        simulation.hosts.iter_mut().for_each(|host| host.preparing.is_away = is_away);
    };
    away(&mut simulation, true);
    simulation.apply(Event::Release(0, 1));
    simulation.run(100);
    assert_eq!((phase(&simulation), simulation.ready()), (Phase::Pending, 2), "{}", simulation.transcript());
    assert!(simulation.waiting().contains("`h00` cannot: no such file"), "{}", simulation.waiting());
    away(&mut simulation, false);
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn a_restart_of_the_reconciler_or_of_an_agent_prepares_it_all_the_same() {
    let mut simulation = at_rest();
    simulation.hosts.iter_mut().for_each(|host| host.preparing.takes = 60);
    simulation.apply(Event::Release(0, 1));
    simulation.run(30);
    simulation.apply(Event::Restart(5));
    simulation.apply(Event::DenvdRestarts(0, 8));
    // The one that lived on needs only the rest.
    simulation.run(45);
    let waiting = simulation.waiting();
    assert!(waiting.contains("1 of 2 hosts have prepared"), "{waiting}");
    simulation.run(150);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn a_deployment_that_begins_unprepared_is_caught() {
    let mut simulation = at_rest();
    simulation.hosts.iter_mut().for_each(|host| host.preparing.takes = 300);
    simulation.apply(Event::Release(0, 1));
    simulation.run(20);
    let begin = |phase| Step::MoveDeployment { stage: stage_id(0), phase, reason: None, at: simulation.now };
    for phase in [Phase::Rolling { batch: 0 }, Phase::Gating] {
        let steps = vec![begin(phase)];
        let found = check(&simulation.world(), &Plan { steps, ..Plan::default() });
        assert!(found.contains(&Violation::BegunUnprepared { stage: stage_id(0) }), "{found:?}");
    }
}
