//! The planner in a simulated world: random fleets, changes and faults in virtual time. What really runs and what
//! gateways really route to is kept beside what the planner believes, and the invariants are held against it. After
//! every plan the checker must find nothing; planning when nothing would have woken the loop must give nothing; and a
//! world that is left alone must come to rest with what is desired.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod control;
mod desired;
mod events;
mod failures;
mod gates;
mod gateway;
mod host;
mod manifests;
mod messages;
mod mutations;
mod operator;
mod prefetch;
mod recovery;
mod saved;
mod script;
mod scripts;
mod seeds;
mod truth;
mod views;
mod when;
mod wishes;
mod world;

use denv_schema::api::RolloutAction;
use events::Event;
use manifests::{FleetShape, GateShape, Needs, RELEASES, Shape, StageShape};
use proptest::prelude::*;
use world::Simulation;

fn event() -> impl Strategy<Value = Event> {
    let host = 0usize..12;
    let action = prop_oneof![
        1 => Just(RolloutAction::Pause),
        2 => Just(RolloutAction::Resume),
        1 => Just(RolloutAction::Abort),
        1 => Just(RolloutAction::Retry),
        2 => Just(RolloutAction::Approve),
    ];
    prop_oneof![
        6 => (0usize..2, 0..RELEASES).prop_map(|(stage, number)| Event::Release(stage, number)),
        2 => (0usize..2, 1u32..4).prop_map(|(stage, units)| Event::Scale(stage, units)),
        1 => (0usize..2).prop_map(Event::StageRemoved),
        2 => (0usize..2).prop_map(Event::StageAdded),
        3 => host.clone().prop_map(Event::HostVanishes),
        4 => host.clone().prop_map(Event::HostReturns),
        2 => host.clone().prop_map(Event::HostLosesState),
        1 => host.clone().prop_map(Event::HostRefuses),
        1 => (host.clone(), any::<bool>()).prop_map(|(host, fails)| Event::HostUnprepared(host, fails)),
        1 => host.clone().prop_map(Event::HostReclaimed),
        2 => (0usize..2, prop::option::weighted(0.8, 1u32..6)).prop_map(|(stage, units)| Event::ScaledBy(stage, units)),
        1 => host.clone().prop_map(Event::HostRemoved),
        2 => host.clone().prop_map(Event::HostAdded),
        1 => host.clone().prop_map(Event::HostCordoned),
        1 => host.clone().prop_map(Event::HostUncordoned),
        3 => (host.clone(), 0usize..50).prop_map(|(host, which)| Event::CommandAgain(host, which)),
        2 => host.clone().prop_map(Event::StreamBreaks),
        4 => (0usize..24).prop_map(Event::EngineCrashes),
        2 => (0usize..2).prop_map(Event::GatewayVanishes),
        1 => (0usize..2).prop_map(Event::GatewayDies),
        4 => (0usize..2).prop_map(Event::GatewayReturns),
        1 => (0u8..90).prop_map(Event::Restart),
        2 => (0u8..6).prop_map(Event::DiesAfter),
        1 => Just(Event::StoreLost),
        2 => (host.clone(), 1u8..30).prop_map(|(host, seconds)| Event::DenvdRestarts(host, seconds)),
        3 => (0usize..2, action).prop_map(|(stage, action)| Event::Action(stage, action)),
        2 => any::<bool>().prop_map(Event::Traffic),
        3 => (0usize..2, 0u8..4).prop_map(|(stage, says)| Event::AlarmSays(stage, says)),
        2 => any::<bool>().prop_map(Event::Deaf),
        14 => (1u16..90).prop_map(Event::Wait),
    ]
}

/// When a stage's batches may begin: at any time, outside some minutes of the world's life, when a person agrees.
fn when() -> impl Strategy<Value = Option<String>> {
    (prop::option::of(closed()), prop::bool::weighted(0.3)).prop_map(|(closed, asks)| match (closed, asks) {
        (closed, false) => closed,
        (None, true) => Some("approval: required".to_owned()),
        (Some(closed), true) => Some(format!("{closed}, approval: required")),
    })
}

fn gates() -> impl Strategy<Value = GateShape> {
    let alarm = prop::option::weighted(0.4, prop_oneof![Just("pass"), Just("fail"), Just("pause")]);
    let deadline = prop::option::weighted(0.3, 20u32..90);
    (any::<bool>(), deadline, alarm).prop_map(|(parity, deadline, alarm)| GateShape {
        parity,
        beside: false,
        deadline,
        alarm,
    })
}

/// Some minutes in which no batch may begin, by windows or by a freeze.
fn closed() -> impl Strategy<Value = String> {
    (any::<bool>(), 0u32..20, 1u32..6).prop_map(|(freeze, from, length)| {
        let to = from + length;
        if freeze {
            format!("freezes: [{{from: 2027-01-15T08:{from:02}:30Z, until: 2027-01-15T08:{to:02}:00Z}}]")
        } else {
            format!("windows: [{{from: '08:{to:02}', to: '08:{from:02}'}}]")
        }
    })
}

/// Three fleets: two of GPUs, one of CPU slots. Two stages in two environments, which may share a fleet.
fn shape() -> impl Strategy<Value = Shape> {
    let stage = || {
        let bake = prop_oneof![Just(0u32), Just(5), Just(20)];
        let more = prop_oneof![2 => Just(0u32), 1 => Just(1), 1 => Just(2)];
        (any::<bool>(), any::<bool>(), 0u32..2, bake, any::<bool>(), when(), (more, gates())).prop_map(
            |(replace, auto, max_unavailable, bake, pauses, when, (more, gates))| StageShape {
                auto,
                needs: Needs::Slots(1),
                fleets: vec![1],
                more,
                replace: replace && max_unavailable > 0,
                max_unavailable,
                bake,
                pauses,
                when,
                gates,
            },
        )
    };
    let stages = (stage(), stage(), 1u32..5, 0u32..5);
    let over_hosts =
        prop_oneof![7 => Just(None), 2 => Just(Some(Needs::Wide(8))), 1 => Just(Some(Needs::Pair(4)))];
    (stages, 3u32..5, 2u32..4, 1u32..3, 0u64..5, over_hosts).prop_map(
        |((mut chat, mut code, gpus, more), first, second, slots, lag, over_hosts)| {
            (chat.needs, chat.fleets) = (Needs::Gpus(gpus), vec![0, 2]);
            if more > 0 {
                (code.needs, code.fleets) = (Needs::Gpus(more), vec![0]);
            }
            let mut fleets = vec![
                FleetShape::of_gpus(first, 4),
                FleetShape::of_slots(second, slots),
                FleetShape::of_gpus(second, 4),
            ];
            if let Some(needs) = over_hosts {
                chat.needs = needs;
                fleets[0] = FleetShape { domain: 2, ..FleetShape::of_gpus(6, 4) };
                fleets[2] = FleetShape { domain: 2, ..FleetShape::of_gpus(4, 4) };
            }
            Shape { fleets, stages: vec![chat, code], gateways: 2, lag }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_world_gives_the_same_plan(
        shape in shape(),
        seed in any::<u64>(),
        events in prop::collection::vec(event(), 0..4),
    ) {
        let mut simulation = Simulation::new(shape, seed);
        for event in events {
            simulation.apply(event);
            simulation.run(5);
            prop_assert_eq!(simulation.plan(), simulation.plan());
        }
    }
}

#[test]
fn a_release_rolls_batch_by_batch_without_losing_a_ready_unit() {
    let mut simulation = Simulation::simple(2, 2, false, 1);
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-0", 2)]);
    simulation.apply(Event::Release(0, 1));
    for _ in 0..300 {
        simulation.run(1);
        assert!(simulation.ready() >= 2, "{}", simulation.transcript());
    }
    assert_eq!(simulation.running(), [("chat-good-1", 2)]);
}

#[test]
fn a_release_that_cannot_start_is_rolled_back_and_held() {
    let mut simulation = Simulation::simple(2, 2, false, 2);
    simulation.run(200);
    simulation.apply(Event::Release(0, 2));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-0", 2)]);
    let waiting = simulation.waiting();
    assert!(waiting.contains("held at `chat-good-0`, because `chat-bad-2` failed"), "{waiting}");
    // It stays held, and a newer release goes through at once.
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-0", 2)]);
    simulation.apply(Event::Release(0, 1));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-1", 2)]);
}

#[test]
fn without_room_a_surge_waits_and_says_what_would_help() {
    let mut simulation = Simulation::simple(2, 1, false, 3);
    simulation.run(200);
    simulation.apply(Event::Release(0, 1));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)]);
    let waiting = simulation.waiting();
    assert!(
        waiting.contains("needs 1 CPU slot free on one host of fleet `f0`; the most free is 0"),
        "{waiting}"
    );
}

#[test]
fn without_room_auto_replaces_within_its_budget() {
    let mut shape = Shape::simple(2, 1, false);
    (shape.stages[0].auto, shape.stages[0].max_unavailable) = (true, 1);
    let mut simulation = Simulation::new(shape, 3);
    simulation.run(200);
    simulation.apply(Event::Release(0, 1));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.waiting());
}

#[test]
fn many_hosts_silent_at_once_move_nothing() {
    let mut simulation = Simulation::simple(5, 2, false, 4);
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
    let mut simulation = Simulation::simple(3, 2, false, 5);
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
    let mut simulation = Simulation::simple(2, 2, false, 6);
    simulation.run(200);
    let before = simulation.units();
    simulation.apply(Event::Release(0, 5));
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-0-again", 2)]);
    assert_eq!(simulation.units(), before);
}

#[test]
fn what_a_host_still_runs_that_was_given_up_with_it_ends_when_it_returns() {
    let mut simulation = Simulation::simple(3, 1, false, 7);
    simulation.run(200);
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.apply(Event::HostRemoved(host));
    simulation.run(200);
    assert_eq!(simulation.ready(), 2, "{}", simulation.transcript());
    assert_eq!(simulation.units().len(), 2, "it is forgotten");
    assert_eq!(simulation.hosts[host].leftovers().len(), 1, "and runs on");
    // Its slot is not free before that has ended.
    simulation.apply(Event::HostAdded(host));
    simulation.apply(Event::Scale(0, 3));
    simulation.apply(Event::HostReturns(host));
    simulation.run(200);
    assert_eq!(simulation.ready(), 3, "{}", simulation.transcript());
    assert_eq!(simulation.unsettled(), None);
}

#[test]
fn a_release_that_never_worked_does_not_stand_in_the_way_of_the_next() {
    // Room for just one more beside the first try, which takes it.
    let mut simulation = Simulation::simple(1, 2, false, 8);
    simulation.apply(Event::Release(0, 3));
    simulation.apply(Event::Scale(0, 2));
    simulation.run(4);
    simulation.apply(Event::Release(0, 4));
    simulation.run(4);
    simulation.apply(Event::Scale(0, 1));
    simulation.apply(Event::Release(0, 1));
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 1)], "{}", simulation.transcript());
}

#[test]
fn a_pause_for_a_failure_can_be_resumed() {
    let mut shape = Shape::simple(2, 2, false);
    shape.stages[0].pauses = true;
    let mut simulation = Simulation::new(shape, 9);
    simulation.run(100);
    simulation.apply(Event::Release(0, 2));
    simulation.run(60);
    assert!(simulation.waiting().contains("paused: unit `chat.prod.2`"), "{}", simulation.waiting());
    assert_eq!(simulation.units().len(), 2, "what failed has left");
    simulation.apply(Event::Action(0, RolloutAction::Resume));
    simulation.run(60);
    assert!(simulation.waiting().contains("paused: unit `chat.prod.3`"), "{}", simulation.waiting());
}

#[test]
fn what_is_lost_during_a_pause_is_replaced_with_what_is_good() {
    let mut shape = Shape::simple(4, 1, false);
    shape.stages[0].bake = 60;
    let mut simulation = Simulation::new(shape, 26);
    simulation.run(200);
    simulation.apply(Event::Release(0, 1));
    simulation.run(40);
    simulation.apply(Event::Action(0, RolloutAction::Pause));
    assert_eq!(simulation.running(), [("chat-good-0", 1), ("chat-good-1", 1)], "{}", simulation.transcript());
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.run(200);
    assert!(simulation.waiting().contains("paused"), "{}", simulation.waiting());
    let running = [("chat-good-0", 2), ("chat-good-1", 1)];
    assert_eq!(simulation.running(), running, "one of them is out of reach\n{}", simulation.transcript());
    assert_eq!(simulation.ready(), 2, "{}", simulation.transcript());
    // It moves on where it was.
    simulation.apply(Event::Action(0, RolloutAction::Resume));
    simulation.apply(Event::HostReturns(host));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn with_no_gateway_heard_nothing_that_may_serve_leaves() {
    let mut simulation = Simulation::simple(2, 2, false, 10);
    simulation.run(100);
    let before = simulation.units();
    simulation.apply(Event::GatewayVanishes(0));
    simulation.run(100);
    simulation.apply(Event::Release(0, 1));
    simulation.run(300);
    assert!(before.iter().all(|unit| simulation.units().contains(unit)), "{}", simulation.transcript());
    assert!(simulation.waiting().contains("bring `g0` back"), "{}", simulation.waiting());
    simulation.apply(Event::GatewayReturns(0));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn a_start_is_not_judged_by_time_in_which_nobody_listened() {
    let mut shape = Shape::simple(2, 2, false);
    shape.lag = 1;
    let mut simulation = Simulation::new(shape, 11);
    simulation.run(2);
    simulation.apply(Event::Restart(200));
    simulation.run(300);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
}
