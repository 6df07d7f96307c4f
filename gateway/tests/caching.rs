//! Prompts go to where their beginning is cached, as long as that pays.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use denv_schema::wire::Rotation;
use tokio::sync::Semaphore;

use support::ingress::{Step, USUAL, respond};
use support::{ASK, World, until};

/// A conversation that begins as all with the same `topic` do, and goes on.
fn ask(topic: &str, turns: usize) -> String {
    let turn = |number: usize| {
        format!(r#"{{"role":"user","content":"{number} {}"}}"#, topic.repeat(2000 / topic.len()))
    };
    let messages: Vec<_> = (0..turns).map(turn).collect();
    format!(r#"{{"model":"small","messages":[{}]}}"#, messages.join(","))
}

/// How often each host was asked since the last time.
fn asked(world: &World) -> Vec<usize> {
    world.hosts.iter().map(|host| std::mem::take(&mut *host.engine.requests.lock().unwrap()).len()).collect()
}

async fn answered(world: &World, body: &str) {
    assert_eq!(world.chat(body).await.status, 200);
}

#[tokio::test]
async fn a_conversation_stays_where_it_began_and_others_go_elsewhere() {
    let world = World::with_units(2).await;
    for turns in 1..6 {
        answered(&world, &ask("cats", turns)).await;
        answered(&world, &ask("dogs", turns)).await;
    }
    assert_eq!(asked(&world), [5, 5]);
    for _ in 0..4 {
        answered(&world, &ask("cats", 6)).await;
    }
    assert!(asked(&world).contains(&4), "all at one");
    // What is too short to be worth it takes turns.
    for _ in 0..4 {
        answered(&world, ASK).await;
    }
    assert_eq!(asked(&world), [2, 2]);
    assert!(world.metric("denv_gateway_kv_index_blocks").await > 50.0);
    let expected = world.metric("denv_gateway_expected_cached_tokens_total{endpoint=\"public\"}").await;
    // The engine says that every prompt has 25 tokens.
    assert!(expected >= 25.0 * 11.0, "{expected}");
}

#[tokio::test]
async fn what_was_lost_is_forgotten_at_once() {
    let world = World::with_units(2).await;
    answered(&world, &ask("cats", 5)).await;
    let first = asked(&world).iter().position(|count| *count == 1).unwrap();
    let other = 1 - first;
    world.hosts[first].engine.healthy.store(false, Ordering::SeqCst);
    world.until_in_rotation(1).await;
    answered(&world, &ask("cats", 5)).await;
    assert_eq!(asked(&world)[other], 1, "it is read again");
    world.hosts[first].engine.healthy.store(true, Ordering::SeqCst);
    world.until_in_rotation(2).await;
    for _ in 0..3 {
        answered(&world, &ask("cats", 6)).await;
    }
    assert_eq!(asked(&world)[other], 3, "the one that is back has an empty cache");

    // A new generation is a new engine.
    let mut routes: Vec<_> = (0..2).map(|host| world.route(host, Rotation::In)).collect();
    routes[other].generation = 2;
    world.control_plane.heard.units.send_replace(routes);
    world.until_reported("the new generation", |reports| reports[other].1.generation == 2).await;
    world.until_in_rotation(2).await;
    for _ in 0..2 {
        answered(&world, &ask("cats", 6)).await;
    }
    assert_eq!(asked(&world).iter().max(), Some(&2));
    assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 0.0);
}

#[tokio::test]
async fn a_unit_that_is_busy_enough_is_spared() {
    let world = World::with_units(2).await;
    // To read its 31 blocks costs as much as two requests that are under way.
    answered(&world, &ask("cats", 4)).await;
    let first = asked(&world).iter().position(|count| *count == 1).unwrap();
    let go_on = Arc::new(Semaphore::new(0));
    for _ in 0..2 {
        world.hosts[first].engine.then([Step::Await(go_on.clone()), respond("200 OK", "", USUAL)]);
    }
    let body = ask("cats", 4);
    let asking: Vec<_> = (0..2).map(|_| world.begin(&body)).collect();
    let spared = async {
        until("two requests", || world.hosts[first].engine.asked().len() == 2).await;
        answered(&world, &body).await;
        assert_eq!(asked(&world), if first == 0 { [2, 1] } else { [1, 2] });
        go_on.add_permits(2);
    };
    tokio::join!(futures::future::join_all(asking), spared);
}
