//! The store is lost with all its records, while engines run and gateways serve.

use std::collections::BTreeMap;

use denv_planner::UnitPhase;
use denv_schema::MemberId;
use denv_schema::wire::Generation;

use crate::events::Event;
use crate::manifests::{FleetShape, Needs, Shape, StageShape, stage_id};
use crate::world::Simulation;

/// How often each generation of each member was started, on all hosts.
fn starts(simulation: &Simulation) -> BTreeMap<(MemberId, Generation), u32> {
    simulation.hosts.iter().flat_map(|host| host.starts.clone()).collect()
}

/// Units that a gateway sends to.
fn served(simulation: &Simulation) -> usize {
    let sends = |gateway: &crate::gateway::Gateway| {
        let serving = simulation.serving();
        serving.iter().filter(|(member, generation)| gateway.sends_to(member, *generation)).count()
    };
    simulation.gateways.iter().map(sends).min().unwrap_or(0)
}

#[test]
fn what_runs_is_adopted_and_serves_on_without_a_start_or_a_rollout() {
    adopts(Needs::Wide(8));
    adopts(Needs::Pair(4));
}

fn adopts(needs: Needs) {
    let mut shape = Shape::simple(3, 0, false);
    shape.fleets = vec![FleetShape { domain: 2, ..FleetShape::of_gpus(6, 4) }];
    shape.stages = vec![StageShape { needs, ..shape.stages[0].clone() }];
    let mut simulation = Simulation::new(shape, 101);
    simulation.run(100);
    let before = (starts(&simulation), simulation.units());
    assert_eq!(before.1.len(), 2);
    // Both pools of a pair are asked.
    let leaders = if needs == Needs::Pair(4) { 4 } else { 2 };
    simulation.apply(Event::StoreLost);
    for _ in 0..100 {
        simulation.run(1);
        assert_eq!(served(&simulation), leaders, "{}", simulation.transcript());
    }
    assert_eq!((starts(&simulation), simulation.units()), before, "{}", simulation.transcript());
    let record = &simulation.records.stages[&stage_id(0)];
    assert_eq!(record.good.as_ref().unwrap().release.as_str(), "chat-good-0");
    assert!(record.deployment.is_none(), "{}", simulation.transcript());
    assert_eq!(simulation.ready(), 2);
}

#[test]
fn what_was_under_way_goes_on_from_where_it_was() {
    for seconds in 1..40 {
        let mut simulation = Simulation::simple(3, 2, false, 102);
        simulation.run(100);
        simulation.apply(Event::Release(0, 1));
        simulation.run(seconds);
        simulation.apply(Event::StoreLost);
        for _ in 0..250 {
            simulation.run(1);
            assert!(served(&simulation) >= 2, "after {seconds} s\n{}", simulation.transcript());
        }
        assert_eq!(
            simulation.running(),
            [("chat-good-1", 2)],
            "after {seconds} s\n{}",
            simulation.transcript()
        );
        assert_eq!(simulation.unsettled(), None);
    }
}

#[test]
fn a_host_that_was_away_then_keeps_its_unit_if_it_is_wanted() {
    let mut simulation = Simulation::simple(3, 1, false, 103);
    simulation.run(100);
    let away = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(away));
    simulation.run(5);
    simulation.apply(Event::StoreLost);
    simulation.run(20);
    simulation.apply(Event::HostReturns(away));
    let before = starts(&simulation);
    simulation.run(100);
    assert_eq!(starts(&simulation), before, "{}", simulation.transcript());
    assert_eq!(simulation.unsettled(), None);
}

#[test]
fn one_that_is_away_for_longer_is_replaced_and_one_of_each_stays() {
    let mut simulation = Simulation::simple(3, 1, false, 104);
    simulation.run(100);
    let away = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(away));
    simulation.apply(Event::StoreLost);
    simulation.run(200);
    assert_eq!(simulation.ready(), 2, "{}", simulation.transcript());
    simulation.apply(Event::HostReturns(away));
    simulation.run(100);
    assert_eq!(simulation.unsettled(), None);
}

#[test]
fn what_was_on_its_way_out_goes_out() {
    let mut simulation = Simulation::simple(3, 2, false, 105);
    simulation.run(100);
    simulation.busy = true;
    simulation.apply(Event::Scale(0, 1));
    simulation.run(5);
    let draining = |simulation: &Simulation| {
        let mut units = simulation.records.units.values();
        units.any(|unit| unit.phase == UnitPhase::Draining)
    };
    assert!(draining(&simulation), "{}", simulation.transcript());
    simulation.apply(Event::StoreLost);
    simulation.run(80);
    assert_eq!(simulation.records.units.len(), 1, "{}", simulation.transcript());
    simulation.busy = false;
    simulation.run(100);
    assert_eq!(simulation.unsettled(), None);
}

/// A gateway that nobody knows of any more serves on from what it last knew.
#[test]
fn what_a_gateway_may_send_to_that_is_not_known_any_more_does_not_stop() {
    let mut shape = Shape::simple(3, 2, false);
    shape.gateways = 2;
    let mut simulation = Simulation::new(shape, 106);
    simulation.run(100);
    let before = simulation.units();
    simulation.apply(Event::GatewayVanishes(1));
    simulation.run(5);
    simulation.apply(Event::StoreLost);
    simulation.apply(Event::Release(0, 1));
    simulation.run(50);
    // Those that leave are out of the rotation of the gateway that is heard, and run on for the other.
    let running = simulation.serving();
    assert!(
        before.iter().all(|unit| running.contains(&(MemberId::new(unit, 0), 1))),
        "{}",
        simulation.transcript()
    );
    assert!(simulation.waiting().contains("gateways that may send to it"), "{}", simulation.waiting());
    // It is taken for dead in the end, and is as if new when it returns.
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
    simulation.apply(Event::GatewayReturns(1));
    simulation.run(50);
    assert_eq!(simulation.unsettled(), None);
}

#[test]
fn where_no_gateway_is_known_any_more_nothing_that_serves_leaves() {
    let mut simulation = Simulation::simple(3, 2, false, 107);
    simulation.run(100);
    let before = simulation.units();
    simulation.apply(Event::GatewayVanishes(0));
    simulation.run(5);
    simulation.apply(Event::StoreLost);
    simulation.apply(Event::Release(0, 1));
    simulation.run(300);
    assert!(before.iter().all(|unit| simulation.units().contains(unit)), "{}", simulation.transcript());
    assert!(simulation.waiting().contains("connect those there are"), "{}", simulation.waiting());
    simulation.apply(Event::GatewayReturns(0));
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
    assert_eq!(simulation.unsettled(), None);
}

/// What cannot be adopted is ended only once no gateway sends to it, whatever is started beside it meanwhile.
#[test]
fn what_no_host_of_the_manifests_runs_serves_on_until_no_gateway_sends_to_it() {
    let mut simulation = Simulation::simple(4, 1, false, 108);
    simulation.run(100);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::StoreLost);
    simulation.apply(Event::HostRemoved(host));
    // That it is stopped while a gateway sends to it is caught at each step.
    simulation.run(300);
    assert_eq!(simulation.hosts[host].leftovers().len(), 0, "{}", simulation.transcript());
    assert_eq!(simulation.unsettled(), None);
}

/// A gateway that was taken away since then holds nothing up.
#[test]
fn what_can_not_be_adopted_ends_also_when_a_gateway_is_gone_for_good() {
    let mut shape = Shape::simple(4, 1, false);
    shape.gateways = 2;
    let mut simulation = Simulation::new(shape, 110);
    simulation.run(100);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::StoreLost);
    simulation.apply(Event::HostRemoved(host));
    simulation.run(10);
    simulation.apply(Event::GatewayDies(1));
    simulation.run(300);
    assert_eq!(simulation.hosts[host].leftovers().len(), 0, "{}", simulation.transcript());
}

/// A name that a host was heard to run, and that is away just now, is not given again.
#[test]
fn a_name_is_not_given_again_while_its_host_is_away() {
    let mut simulation = Simulation::simple(3, 1, false, 109);
    simulation.run(3);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::StoreLost);
    simulation.run(6);
    simulation.apply(Event::DenvdRestarts(host, 8));
    simulation.run(200);
    assert_eq!(simulation.unsettled(), None);
    for host in &simulation.hosts {
        assert!(host.starts.values().all(|starts| *starts == 1), "{}", simulation.transcript());
    }
}
