//! The planner in a simulated world: random fleets, changes and faults in virtual time. After every plan the checker
//! must find nothing, and a world that is left alone must come to rest with what is desired.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod world;

use proptest::prelude::*;
use world::{Event, Simulation};

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0u8..4).prop_map(Event::Release),
        3 => (0usize..6).prop_map(Event::HostVanishes),
        4 => (0usize..6).prop_map(Event::HostReturns),
        2 => (0usize..6).prop_map(Event::HostLosesState),
        4 => (0usize..8).prop_map(Event::EngineCrashes),
        2 => Just(Event::GatewayVanishes),
        3 => Just(Event::GatewayReturns),
        1 => Just(Event::Pause),
        2 => Just(Event::Resume),
        1 => Just(Event::Abort),
        1 => Just(Event::Retry),
        2 => (1u32..4).prop_map(Event::Scale),
        3 => any::<bool>().prop_map(Event::Traffic),
        12 => (1u16..120).prop_map(Event::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn plans_keep_the_invariants_and_worlds_converge(
        hosts in 2u32..6,
        slots in 1u32..4,
        replace in any::<bool>(),
        seed in any::<u64>(),
        events in prop::collection::vec(event(), 0..40),
    ) {
        let mut simulation = Simulation::new(hosts, slots, replace, seed);
        for event in events {
            simulation.apply(event);
            simulation.run(3);
        }
        simulation.heal();
        let trouble = simulation.settle();
        prop_assert!(trouble.is_none(), "{}\n{}", trouble.unwrap_or_default(), simulation.transcript());
    }

    #[test]
    fn the_same_world_gives_the_same_plan(seed in any::<u64>(), events in prop::collection::vec(event(), 0..6)) {
        let mut simulation = Simulation::new(3, 2, false, seed);
        for event in events {
            simulation.apply(event);
            simulation.run(5);
            prop_assert_eq!(simulation.plan(), simulation.plan());
        }
    }
}

#[test]
fn a_release_rolls_batch_by_batch_without_losing_a_ready_unit() {
    let mut simulation = Simulation::new(2, 2, false, 1);
    simulation.run(200);
    assert_eq!(simulation.running(), [("good-0", 2)]);
    simulation.apply(Event::Release(1));
    for _ in 0..300 {
        simulation.run(1);
        assert!(simulation.ready() >= 2, "{}", simulation.transcript());
    }
    assert_eq!(simulation.running(), [("good-1", 2)]);
}

#[test]
fn a_release_that_cannot_start_is_rolled_back_and_held() {
    let mut simulation = Simulation::new(2, 2, false, 2);
    simulation.run(200);
    simulation.apply(Event::Release(3));
    simulation.run(300);
    assert_eq!(simulation.running(), [("good-0", 2)]);
    let waiting = simulation.waiting();
    assert!(waiting.contains("held at `good-0`, because `bad-3` failed"), "{waiting}");
    // It stays held, and a newer release goes through at once.
    simulation.run(300);
    assert_eq!(simulation.running(), [("good-0", 2)]);
    simulation.apply(Event::Release(1));
    simulation.run(300);
    assert_eq!(simulation.running(), [("good-1", 2)]);
}

#[test]
fn without_room_a_surge_waits_and_says_what_would_help() {
    let mut simulation = Simulation::new(2, 1, false, 3);
    simulation.run(200);
    simulation.apply(Event::Release(1));
    simulation.run(100);
    assert_eq!(simulation.running(), [("good-0", 2)]);
    let waiting = simulation.waiting();
    assert!(
        waiting.contains("needs 1 CPU slot free on one host of fleet `local`; the most free is 0"),
        "{waiting}"
    );
}

#[test]
fn many_hosts_silent_at_once_move_nothing() {
    let mut simulation = Simulation::new(5, 2, false, 4);
    simulation.run(200);
    let before = simulation.units();
    for host in 0..3 {
        simulation.apply(Event::HostVanishes(host));
    }
    simulation.run(900);
    assert_eq!(simulation.units(), before, "{}", simulation.transcript());
    assert!(simulation.waiting().contains("hosts are silent at once"), "{}", simulation.waiting());
}

#[test]
fn a_lost_host_is_replaced_and_exactly_one_unit_stays_when_it_returns() {
    let mut simulation = Simulation::new(3, 2, false, 5);
    simulation.run(200);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.run(20);
    assert_eq!(simulation.units().len(), 2, "patience first");
    simulation.run(200);
    assert_eq!(simulation.units().len(), 3, "{}", simulation.transcript());
    simulation.apply(Event::HostReturns(host));
    simulation.run(200);
    assert_eq!(simulation.units().len(), 2, "{}", simulation.transcript());
    assert_eq!(simulation.ready(), 2);
}

#[test]
fn a_release_that_differs_in_name_alone_restarts_nothing() {
    let mut simulation = Simulation::new(2, 2, false, 6);
    simulation.run(200);
    let before = simulation.units();
    simulation.apply(Event::Release(4));
    simulation.run(200);
    assert_eq!(simulation.running(), [("good-0-again", 2)]);
    assert_eq!(simulation.units(), before);
}
