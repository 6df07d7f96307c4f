//! What is said of units to the control plane, by which alarms judge releases.

mod support;

use std::sync::Arc;
use std::time::Duration;

use denv_schema::measures::UnitMeasures;
use tokio::sync::Semaphore;

use support::ingress::{STREAM_HEAD, Step, chunk, framed, respond, usage_chunk};
use support::{ASK, ASK_STREAM, World, unit};

/// What was counted of the only unit, once it is as `wanted`.
async fn measured(world: &World, wanted: impl Fn(&UnitMeasures) -> bool) -> UnitMeasures {
    let mut measures = world.control_plane.heard.measures.subscribe();
    let found = measures.wait_for(|units| units.get(&unit(0)).is_some_and(&wanted));
    let found = tokio::time::timeout(Duration::from_secs(15), found).await.expect("it is said in time");
    found.expect("the control plane listens")[&unit(0)].clone()
}

#[tokio::test]
async fn a_units_requests_tokens_and_times_are_counted() {
    let world = World::with_units(1).await;
    assert_eq!(world.chat(ASK).await.status, 200);
    let pause = Arc::new(Semaphore::new(0));
    let token = |text: &str, end: &str| framed(&chunk(&format!("\"content\":\"{text}\""), end));
    world.hosts[0].engine.then([
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk("\"role\":\"assistant\",\"content\":\"\"", "null")),
        Step::Await(pause.clone()),
        token("one", "null"),
        token("two", "null"),
        token("three", "\"stop\""),
        framed(&usage_chunk()),
        framed("data: [DONE]\n\n"),
        framed(""),
    ]);
    let (streamed, ()) = tokio::join!(world.chat(ASK_STREAM), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        pause.add_permits(1);
    });
    assert_eq!(streamed.status, 200);

    let counted = measured(&world, |unit| unit.requests == 2).await;
    assert_eq!((counted.generation, counted.failed, counted.unreached), (1, 0, 0));
    assert_eq!((counted.prompt_tokens, counted.cached_tokens, counted.output_tokens), (50, 5, 10));
    assert_eq!((counted.whole.count(), counted.first_token.count(), counted.inter_token.count()), (2, 1, 2));
    let first = counted.first_token.percentile(50).unwrap();
    assert!(first >= Duration::from_millis(250), "an empty beginning is no token: {first:?}");
}

#[tokio::test]
async fn failures_are_the_engines_the_hosts_or_the_clients() {
    let mut world = World::with_units(1).await;
    world.hosts[0].engine.then([respond("400 Bad Request", "", "{}")]);
    assert_eq!(world.chat(ASK).await.status, 400);
    world.hosts[0].engine.then([respond("500 Internal Server Error", "", "{}")]);
    assert_eq!(world.chat(ASK).await.status, 500);
    world.hosts[0].engine.then([
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk("\"content\":\"one\"", "null")),
        Step::Close,
    ]);
    assert_eq!(world.chat(ASK_STREAM).await.status, 200);
    world.hosts[0].kill().await;
    assert_eq!(world.chat(ASK).await.status, 503);

    let counted = measured(&world, |unit| unit.unreached > 0).await;
    assert_eq!((counted.requests, counted.failed), (2, 2), "{counted:?}");
}
