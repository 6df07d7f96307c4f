//! What goes wrong in systems like this one, one row of the table at a time.

use denv_planner::{Phase, UnitPhase};
use denv_schema::wire::CommandOutcome;

use crate::events::Event;
use crate::manifests::{FleetShape, Needs, Shape, StageShape};
use crate::world::Simulation;

/// One stage with two units in each of two fleets of GPUs, the second for bursts.
fn two_fleets(more: u32) -> Shape {
    let mut shape = Shape::simple(3, 0, false);
    shape.fleets = vec![FleetShape::of_gpus(3, 4), FleetShape::of_gpus(4, 4)];
    let stage = StageShape { needs: Needs::Gpus(4), fleets: vec![0, 1], more, ..shape.stages[0].clone() };
    shape.stages = vec![stage];
    shape
}

fn in_fleet(simulation: &Simulation, fleet: &str) -> usize {
    let active = simulation.records.units.values().filter(|unit| unit.is_active());
    active.filter(|unit| unit.fleet.as_str() == fleet).count()
}

fn phase(simulation: &Simulation) -> Phase {
    simulation.records.stages.values().next().unwrap().deployment.as_ref().unwrap().phase
}

#[test]
fn a_broken_release_that_was_good_does_not_stand_in_the_way_of_the_next() {
    let mut simulation = Simulation::simple(3, 2, false, 21);
    simulation.run(100);
    // Its engines end again and again, wherever they are.
    for second in 0..300 {
        let now = simulation.now;
        simulation.hosts.iter_mut().for_each(|host| host.crash_release("chat-good-0", now));
        simulation.run(1);
        if second == 60 {
            assert_eq!(simulation.ready(), 0, "{}", simulation.transcript());
            simulation.apply(Event::Release(0, 1));
        }
    }
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

/// Two racks of two hosts with a unit each, and two units may be out at once.
#[test]
fn no_failure_domain_loses_more_than_its_share_of_a_batch() {
    let mut shape = Shape::simple(4, 1, true);
    shape.fleets[0].domain = 2;
    shape.stages[0].max_unavailable = 2;
    shape.stages[0].when = Some("stripe: failure-domain".to_owned());
    let mut simulation = Simulation::new(shape, 27);
    // By age, the second and the third to leave are of one rack.
    for (open, units) in [(None, 2), (Some(3), 3), (Some(1), 4)] {
        match open {
            None => [1, 3].map(|host| simulation.apply(Event::HostCordoned(host))),
            Some(host) => [simulation.apply(Event::HostUncordoned(host)), ()],
        };
        simulation.apply(Event::Scale(0, units));
        simulation.run(100);
    }
    assert_eq!(simulation.ready(), 4, "{}", simulation.transcript());
    simulation.apply(Event::Release(0, 1));
    let mut most = 0;
    for _ in 0..200 {
        simulation.run(1);
        let serving: Vec<_> = simulation.serving().into_iter().map(|(member, _)| member).collect();
        let units = simulation.records.units.values();
        let hosts = units.filter(|unit| serving.contains(&unit.front().id)).map(|unit| &unit.front().host);
        let hosts: Vec<&str> = hosts.map(|host| host.as_str()).collect();
        for rack in [["h00", "h01"], ["h02", "h03"]] {
            assert!(rack.iter().any(|host| hosts.contains(host)), "{hosts:?}\n{}", simulation.transcript());
        }
        most = most.max(4 - hosts.len());
    }
    assert_eq!(most, 2, "{}", simulation.transcript());
    assert_eq!(simulation.running(), [("chat-good-1", 4)], "{}", simulation.transcript());
}

#[test]
fn what_a_deposed_leader_adds_is_refused() {
    let mut simulation = Simulation::simple(2, 2, false, 22);
    simulation.run(100);
    let unit = simulation.records.units.values().next().unwrap().clone();
    let host = simulation.hosts.iter().position(|host| unit.is_on(&host.name)).unwrap();
    // A stop that nobody of now asked for, in the term of before.
    let mut late = (*unit).clone();
    late.phase = UnitPhase::Stopping;
    let (_, mut command) = late.commands().next().unwrap();
    command.term = 1;
    simulation.restart(2);
    simulation.run(5);
    let now = simulation.now;
    let ended = simulation.hosts[host].take_up(command, now);
    assert_eq!(ended, None);
    let answers = simulation.hosts[host].take_answers();
    let [answer] = answers.as_slice() else { panic!("{answers:?}") };
    let CommandOutcome::Refused { reason } = &answer.outcome else { panic!("{answer:?}") };
    assert_eq!(reason, "term 1 is over: this host has seen term 1800000102; the sender leads no more");
}

#[test]
fn going_back_is_one_wave_and_not_the_canary_again() {
    let mut shape = Shape::simple(6, 2, false);
    shape.stages[0].bake = 60;
    let mut simulation = Simulation::new(shape, 23);
    simulation.apply(Event::Scale(0, 4));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-0", 4)]);
    // It works for as long as nobody looks, and fails in the last batch.
    simulation.apply(Event::Release(0, 4));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-0", 4)], "{}", simulation.transcript());
    assert_eq!(phase(&simulation), Phase::RolledBack);
    let record = simulation.records.stages.values().next().unwrap();
    assert!(record.hold.is_some());
    let back = simulation.log.iter().filter(|line| line.contains("start `chat-good-0`")).count();
    assert!(back <= 4 + 2, "what still runs is kept\n{}", simulation.transcript());
}

#[test]
fn a_host_that_refuses_again_and_again_is_set_aside_and_the_release_goes_on_elsewhere() {
    let mut simulation = Simulation::simple(3, 1, false, 24);
    simulation.run(100);
    simulation.apply(Event::Scale(0, 3));
    // The only place left is on a host that refuses whatever it is told.
    let free = simulation.hosts.iter().position(|host| host.engines.is_empty()).unwrap();
    for _ in 0..60 {
        simulation.apply(Event::HostRefuses(free));
        simulation.run(1);
    }
    let waiting = simulation.waiting();
    assert!(waiting.contains("1 set aside for what they did not do"), "{waiting}");
    assert_eq!(simulation.ready(), 2, "the others are left alone");
    let tried = simulation.log.iter().filter(|line| line.contains("not today")).count();
    assert_eq!(tried, 3, "{}", simulation.transcript());
    // It is tried again, and mended by then.
    simulation.hosts[free].refuses = false;
    simulation.run(2_000);
    assert_eq!(simulation.ready(), 3, "{}", simulation.transcript());
}

#[test]
fn a_refusal_is_not_the_fault_of_the_release() {
    let mut simulation = Simulation::simple(4, 1, false, 25);
    simulation.run(100);
    for host in 0..4 {
        simulation.apply(Event::HostRefuses(host));
    }
    simulation.apply(Event::Release(0, 1));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn what_is_healthy_and_not_routed_to_is_not_ready() {
    let mut shape = Shape::simple(2, 2, false);
    shape.gateways = 2;
    let mut simulation = Simulation::new(shape, 26);
    simulation.run(100);
    // It is connected, and hears nothing of what is new.
    simulation.gateways[1].deaf = true;
    simulation.apply(Event::Release(0, 1));
    simulation.run(200);
    let old = simulation.running().iter().find(|(release, _)| *release == "chat-good-0").map(|it| it.1);
    assert_eq!(old, Some(2), "nothing old leaves\n{}", simulation.transcript());
    assert!(
        simulation.waiting().contains("gateway `g1` does not route to it yet"),
        "{}",
        simulation.waiting()
    );
    simulation.gateways[1].deaf = false;
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn a_whole_fleet_that_is_taken_back_is_made_up_for_by_the_other_in_one_wave() {
    let mut simulation = Simulation::new(two_fleets(2), 27);
    simulation.apply(Event::Scale(0, 1));
    simulation.run(200);
    assert_eq!((in_fleet(&simulation, "f0"), in_fleet(&simulation, "f1")), (1, 1));
    (3..7).for_each(|host| simulation.apply(Event::HostReclaimed(host)));
    let before = simulation.steps;
    simulation.run(60);
    assert_eq!(
        (in_fleet(&simulation, "f0"), in_fleet(&simulation, "f1")),
        (2, 0),
        "{}",
        simulation.waiting()
    );
    assert_eq!(simulation.ready(), 2, "{}", simulation.transcript());
    assert!(simulation.steps - before < 12, "{}", simulation.transcript());
    // The fleet is back, and has its unit back.
    (3..7).for_each(|host| simulation.hosts[host].reclaim = None);
    (3..7).for_each(|host| simulation.apply(Event::HostReturns(host)));
    simulation.run(300);
    assert_eq!(
        (in_fleet(&simulation, "f0"), in_fleet(&simulation, "f1")),
        (1, 1),
        "{}",
        simulation.transcript()
    );
    assert_eq!(simulation.ready(), 2);
}

#[test]
fn bursts_come_last_and_go_first() {
    let mut simulation = Simulation::new(two_fleets(1), 28);
    simulation.apply(Event::Scale(0, 1));
    simulation.run(200);
    simulation.apply(Event::ScaledBy(0, Some(1)));
    simulation.run(100);
    assert_eq!((in_fleet(&simulation, "f0"), in_fleet(&simulation, "f1")), (2, 1));
    simulation.apply(Event::ScaledBy(0, Some(2)));
    simulation.run(100);
    assert_eq!((in_fleet(&simulation, "f0"), in_fleet(&simulation, "f1")), (2, 2));
    simulation.apply(Event::ScaledBy(0, Some(1)));
    simulation.run(100);
    assert_eq!((in_fleet(&simulation, "f0"), in_fleet(&simulation, "f1")), (2, 1));
    assert_eq!(simulation.ready(), 3);
}

#[test]
fn a_batch_that_takes_too_long_fails_as_its_deadline_says() {
    let mut shape = Shape::simple(2, 2, false);
    shape.gateways = 2;
    shape.stages[0].when = Some("deadlines: {batch: 40s}".to_owned());
    let mut simulation = Simulation::new(shape, 29);
    simulation.run(100);
    simulation.gateways[1].deaf = true;
    simulation.apply(Event::Release(0, 1));
    simulation.run(30);
    assert_eq!(phase(&simulation), Phase::Rolling { batch: 0 });
    simulation.run(30);
    assert_eq!(phase(&simulation), Phase::RollingBack, "{}", simulation.transcript());
    simulation.gateways[1].deaf = false;
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)]);
    assert!(simulation.waiting().contains("batch 1 was not done in time"), "{}", simulation.waiting());
}

#[test]
fn an_engine_that_ends_again_and_again_is_replaced() {
    let mut simulation = Simulation::simple(2, 2, false, 30);
    simulation.run(100);
    let before = simulation.units();
    let host = simulation.host_of_a_unit();
    for _ in 0..80 {
        simulation.apply(Event::EngineCrashes(host));
        simulation.run(2);
    }
    simulation.run(200);
    assert_ne!(simulation.units(), before, "{}", simulation.transcript());
    assert_eq!(simulation.ready(), 2, "{}", simulation.transcript());
}
