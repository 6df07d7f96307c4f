//! What becomes of requests when units fail under them.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use denv_schema::wire::{RequestOutcome, Rotation};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use support::ingress::{FakeIngress, STREAM_HEAD, Step, USUAL, chunk, framed, respond};
use support::{ASK, ASK_STREAM, World, read, until};

/// Answers of as many requests as touch each of two idle units.
async fn ask_both(world: &World) {
    for _ in 0..4 {
        let answered = world.chat(ASK).await;
        assert_eq!((answered.status, answered.text.as_str()), (200, USUAL));
    }
}

#[tokio::test]
async fn requests_go_elsewhere_when_a_host_is_gone_and_come_back_with_it() {
    let mut world = World::with_units(2).await;
    ask_both(&world).await;
    assert!(world.hosts.iter().all(|host| host.engine.asked().len() == 2), "idle units take turns");

    let address = world.hosts[0].address;
    world.hosts[0].kill().await;
    ask_both(&world).await;
    world.until_in_rotation(1).await;

    let authority = &world.control_plane.heard.authority;
    world.hosts[0] = FakeIngress::start_at(address, authority, "host-0").await;
    world.until_in_rotation(2).await;
    ask_both(&world).await;
    assert!(!world.hosts[0].engine.asked().is_empty());
    world.records(12).await;
}

#[tokio::test]
async fn an_engine_that_dies_before_it_answers_costs_the_client_nothing() {
    let world = World::with_units(2).await;
    world.set_units(&[Rotation::In, Rotation::Out]);
    world.until_in_rotation(1).await;
    // A kept connection that breaks says little, so the only unit gets another try; a new one says enough.
    for _ in 0..3 {
        world.hosts[0].engine.then([Step::Close]);
    }
    assert_eq!(world.chat(ASK).await.status, 502, "there is no other unit");
    world.hosts[0].engine.script.lock().unwrap().clear();
    world.set_units(&[Rotation::In, Rotation::In]);
    world.until_in_rotation(2).await;

    // It dies after it has the request, in the head of its answer, and in the body.
    for partial in
        ["", "HTTP/1.1 200 OK\r\ncontent-type: app", "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"]
    {
        for host in &world.hosts {
            host.engine.then([Step::Write(partial.to_owned()), Step::Close]);
        }
        world.hosts[1].engine.script.lock().unwrap().clear();
        for _ in 0..2 {
            let answered = world.chat(ASK).await;
            assert_eq!((answered.status, answered.text.as_str()), (200, USUAL), "{partial}");
        }
        world.until_in_rotation(2).await;
    }
    assert!(world.metric("denv_gateway_retries_total{reason=\"ended-early\"}").await >= 3.0);
    world.records(6).await;
}

#[tokio::test]
async fn what_an_ingress_says_was_not_begun_is_tried_elsewhere() {
    let world = World::with_units(2).await;
    world.hosts[0].engine.healthy.store(false, Ordering::SeqCst);
    for _ in 0..4 {
        world.hosts[0].engine.then([respond("502 Bad Gateway", "x-denv-not-begun: 1\r\n", "{}")]);
    }
    ask_both(&world).await;
    world.until_in_rotation(1).await;
    world.hosts[0].engine.healthy.store(true, Ordering::SeqCst);
    world.until_in_rotation(2).await;

    // A refusal that is not a failure says nothing against the unit.
    world.hosts[0].engine.script.lock().unwrap().clear();
    world.hosts[0].engine.then([respond("404 Not Found", "x-denv-not-begun: 1\r\n", "{}")]);
    ask_both(&world).await;
    world.until_in_rotation(2).await;
}

#[tokio::test]
async fn an_ingress_that_lost_its_engine_is_believed() {
    let world = World::with_units(2).await;
    world.hosts[0].engine.then([respond("502 Bad Gateway", "", r#"{"error":{"type":"unit_failed"}}"#)]);
    ask_both(&world).await;
    assert!(world.hosts[0].engine.script.lock().unwrap().is_empty());
    world.records(4).await;
}

#[tokio::test]
async fn an_engines_error_is_tried_on_one_other_unit_and_then_passed_on() {
    let world = World::with_units(2).await;
    let error = r#"{"error":{"message":"engine is shutting down"}}"#;
    for host in &world.hosts {
        host.engine.then([respond("500 Internal Server Error", "", error)]);
    }
    let answered = world.chat(ASK).await;
    assert_eq!((answered.status, answered.text.as_str()), (500, error));
    assert!(world.hosts.iter().all(|host| host.engine.asked().len() == 1));

    world.hosts[0].engine.then([respond("500 Internal Server Error", "", error)]);
    for _ in 0..2 {
        assert_eq!(world.chat(ASK).await.status, 200);
    }
    world.records(2).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_so_and_is_never_run_again() {
    let world = World::with_units(2).await;
    let torn = r#"data: {"choices":[{"index":0,"delta":{"cont"#;
    for ending in
        [vec![framed(torn), Step::Close], vec![framed("data: [DONE]\n\n"), framed("")], vec![framed("")]]
    {
        let begins = [Step::Write(STREAM_HEAD.to_owned()), framed(&chunk(r#""content":"a""#, "null"))];
        let steps: Vec<_> = begins.into_iter().chain(ending).collect();
        let asked: usize = world.hosts.iter().map(|host| host.engine.asked().len()).sum();
        for host in &world.hosts {
            host.engine.then(steps.clone());
        }
        let answered = world.chat(ASK_STREAM).await;
        for host in &world.hosts {
            host.engine.script.lock().unwrap().clear();
        }
        assert_eq!(answered.status, 200);
        let rest = answered.text.strip_prefix(chunk(r#""content":"a""#, "null").as_str()).unwrap();
        let error: serde_json::Value = serde_json::from_str(rest.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(
            (&error["error"]["type"], &error["error"]["code"]),
            (&"engine_failed".into(), &"retryable".into())
        );
        let asked_after: usize = world.hosts.iter().map(|host| host.engine.asked().len()).sum();
        assert_eq!(asked_after, asked + 1, "after the first byte nothing is run again");
        world.until_in_rotation(2).await;
    }
    for record in world.records(3).await {
        assert_eq!((record.outcome, record.tokens.output), (RequestOutcome::EngineFailed, 1));
    }
}

#[tokio::test]
async fn a_stream_that_dies_before_its_first_byte_is_run_again() {
    let world = World::with_units(2).await;
    let whole = [chunk(r#""content":"a""#, "\"stop\""), "data: [DONE]\n\n".to_owned()].concat();
    for host in &world.hosts {
        host.engine.then([Step::Write(STREAM_HEAD.to_owned()), Step::Close]);
        host.engine.then([Step::Write(STREAM_HEAD.to_owned()), framed(&whole), framed("")]);
    }
    // The first try takes the first step of one unit; the second try takes the first step of the other.
    world.hosts[1].engine.script.lock().unwrap().pop_front();
    for _ in 0..2 {
        let answered = world.chat(ASK_STREAM).await;
        assert_eq!((answered.status, answered.text.as_str()), (200, whole.as_str()));
        world.until_in_rotation(2).await;
        if world.hosts[1].engine.script.lock().unwrap().is_empty() {
            world.hosts[1].engine.then([Step::Write(STREAM_HEAD.to_owned()), framed(&whole), framed("")]);
        }
    }
}

#[tokio::test]
async fn a_unit_is_given_no_more_than_its_limit() {
    let world = World::with_units(1).await;
    let go_on = Arc::new(Semaphore::new(0));
    let mut waiting = Vec::new();
    for _ in 0..4 {
        world.hosts[0].engine.then([Step::Await(go_on.clone()), respond("200 OK", "", USUAL)]);
    }
    let asking: Vec<_> = (0..4).map(|_| world.begin(ASK)).collect();
    let full = async {
        until("four requests", || world.hosts[0].engine.asked().len() == 4).await;
        let answered = world.chat(ASK).await;
        assert_eq!(answered.status, 429);
        assert_eq!(answered.headers["retry-after"], "1");
        assert!(answered.text.contains("rate_limit_error"), "{}", answered.text);
        assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 4.0);
        go_on.add_permits(4);
    };
    let (answers, ()) = tokio::join!(futures::future::join_all(asking), full);
    waiting.extend(answers);
    for answer in waiting {
        assert_eq!(read(answer).await.status, 200);
    }
    assert_eq!(world.chat(ASK).await.status, 200);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_engine_and_pays_for_what_was_generated() {
    let world = World::with_units(1).await;
    let engine = &world.hosts[0].engine;
    engine.then([
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk(r#""content":"a""#, "null")),
        framed(&chunk(r#""content":"b""#, "null")),
        Step::UntilLeft,
    ]);
    let mut answer = world.begin(ASK_STREAM).await.into_body();
    let mut seen = String::new();
    while seen.matches("data:").count() < 2 {
        let frame = answer.frame().await.unwrap().unwrap();
        seen.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    drop(answer);
    let mut left = engine.left.subscribe();
    tokio::time::timeout(std::time::Duration::from_secs(10), left.wait_for(|left| *left == 1))
        .await
        .unwrap()
        .unwrap();
    let record = world.records(1).await.remove(0);
    assert_eq!(record.outcome, RequestOutcome::ClientLeft);
    assert_eq!((record.tokens.input, record.tokens.output), (6, 2));

    // Also before anything came back.
    engine.then([Step::UntilLeft]);
    let asking = tokio::time::timeout(std::time::Duration::from_millis(200), world.begin(ASK)).await;
    assert!(asking.is_err());
    tokio::time::timeout(std::time::Duration::from_secs(10), left.wait_for(|left| *left == 2))
        .await
        .unwrap()
        .unwrap();
    let records = world.records(2).await;
    assert!(records.iter().all(|record| record.outcome == RequestOutcome::ClientLeft));
    assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 0.0);
}

/// Nobody asks it anything, and it would answer.
#[tokio::test]
async fn a_unit_that_becomes_unwell_leaves_rotation_and_comes_back() {
    let world = World::with_units(2).await;
    world.hosts[0].engine.healthy.store(false, Ordering::SeqCst);
    world.until_in_rotation(1).await;
    ask_both(&world).await;
    assert!(world.hosts[0].engine.asked().is_empty());
    world.hosts[0].engine.healthy.store(true, Ordering::SeqCst);
    world.until_in_rotation(2).await;
}

#[tokio::test]
async fn an_engine_that_hangs_is_given_up() {
    let world = World::with_units(1).await;
    world.hosts[0].engine.then([Step::UntilLeft]);
    let answered = world.chat(ASK).await;
    assert_eq!(answered.status, 504);
    world.hosts[0].engine.then([
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk(r#""content":"a""#, "null")),
        Step::UntilLeft,
    ]);
    let answered = world.chat(ASK_STREAM).await;
    assert!(answered.text.contains("engine_failed"), "{}", answered.text);
    assert_eq!(world.records(1).await[0].outcome, RequestOutcome::EngineFailed);
}
