//! Units of two members: one reads the prompt, the other writes the answer, and either may fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use denv_schema::launch::HandOver;
use denv_schema::wire::RequestOutcome;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use support::ingress::{Engine, STREAM_HEAD, Step, USUAL, chunk, framed, respond};
use support::{ASK, ASK_STREAM, World};

const VLLM: HandOver = HandOver::Vllm {};
/// What the prefill member answers: 20 of 25 tokens were in its cache.
const READ: &str = concat!(
    r#"{"choices":[{"index":0,"message":{"content":"h"},"finish_reason":"length"}],"#,
    r#""usage":{"prompt_tokens":25,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":20}},"#,
    r#""kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":"a","remote_block_ids":[1,2]}}"#
);
/// It asks for more than there is.
const TOO_LONG: &str = r#"{"error":{"message":"the prompt is too long","code":400}}"#;

fn sglang() -> HandOver {
    HandOver::Sglang { bootstrap_host: "10.0.0.1".to_owned(), bootstrap_port: 8998 }
}

fn reads(engine: &Engine, times: usize) {
    for _ in 0..times {
        engine.then([respond("200 OK", "", READ)]);
    }
}

/// What an engine was asked, as JSON.
fn asked(engine: &Engine) -> Vec<Value> {
    engine.asked().iter().map(|(_, body)| serde_json::from_str(body).unwrap()).collect()
}

async fn until_left(engine: &Engine, times: u32) {
    let mut left = engine.left.subscribe();
    let seen = left.wait_for(|left| *left == times);
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("the client's leaving is seen").unwrap();
}

/// What ends at once may end before another is asked, who then never hears of it.
async fn until_asked(engine: &Engine, times: usize) {
    while engine.asked().len() < times {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn one_member_reads_and_the_other_answers() {
    let world = World::with_pairs(1, VLLM).await;
    let [prefill, decode] = [&world.hosts[0].engine, &world.hosts[1].engine];
    reads(prefill, 2);
    let answered = world.chat(ASK).await;
    assert_eq!((answered.status, answered.text.as_str()), (200, USUAL));
    let first = &asked(prefill)[0];
    assert_eq!((&first["max_tokens"], &first["stream"]), (&json!(1), &json!(false)));
    assert_eq!(first["kv_transfer_params"], json!({"do_remote_decode": true, "do_remote_prefill": false}));
    let second = &asked(decode)[0];
    let handed: Value = serde_json::from_str::<Value>(READ).unwrap()["kv_transfer_params"].clone();
    assert_eq!((&second["kv_transfer_params"], &second["max_tokens"]), (&handed, &Value::Null));

    // A stream is read for as well, in one piece.
    let whole = [chunk(r#""content":"a""#, "\"stop\""), support::ingress::usage_chunk()].concat();
    decode.then([
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&whole),
        framed("data: [DONE]\n\n"),
        framed(""),
    ]);
    let answered = world.chat(ASK_STREAM).await;
    assert!(answered.text.ends_with("[DONE]\n\n"), "{}", answered.text);
    assert_eq!(asked(prefill)[1]["stream"], json!(false));
    assert_eq!(asked(decode)[1]["stream"], json!(true));

    // What the prefill had in its cache is billed as such, whatever the decode makes of what it was handed.
    for record in world.records(2).await {
        assert_eq!((record.tokens.input, record.tokens.cached_input), (5, 20), "{record:?}");
    }
}

#[tokio::test]
async fn a_prefill_member_that_dies_costs_the_client_nothing_and_its_unit_waits_until_it_is_back() {
    let mut world = World::with_pairs(2, VLLM).await;
    for unit in 0..2 {
        reads(&world.hosts[2 * unit].engine, 4);
    }
    // With the prompt, before it answers; in its head, in its body; and with an answer that hands nothing over.
    let useless = respond("200 OK", "", "<html>");
    let torn = Step::Write("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_owned());
    for steps in [vec![Step::Close], vec![torn, Step::Close], vec![useless]] {
        let answers = asked(&world.hosts[1].engine).len() + asked(&world.hosts[3].engine).len();
        world.hosts[0].engine.script.lock().unwrap().push_front(steps);
        for _ in 0..2 {
            let answered = world.chat(ASK).await;
            assert_eq!((answered.status, answered.text.as_str()), (200, USUAL));
            reads(&world.hosts[0].engine, 1);
            reads(&world.hosts[2].engine, 1);
        }
        let after = asked(&world.hosts[1].engine).len() + asked(&world.hosts[3].engine).len();
        assert_eq!(after, answers + 2, "nothing is written that was not read");
        world.until_in_rotation(2).await;
    }
    assert!(world.metric("denv_gateway_retries_total{reason=\"ended-early\"}").await >= 3.0);

    let address = world.hosts[0].address;
    world.hosts[0].kill().await;
    world.until_in_rotation(1).await;
    let answers = asked(&world.hosts[1].engine).len();
    for _ in 0..3 {
        assert_eq!(world.chat(ASK).await.status, 200);
    }
    assert_eq!(asked(&world.hosts[1].engine).len(), answers, "what can't be read for is not asked");
    let authority = &world.control_plane.heard.authority;
    world.hosts[0] = support::ingress::FakeIngress::start_at(address, authority, "host-0").await;
    world.until_in_rotation(2).await;
    world.records(9).await;
}

#[tokio::test]
async fn a_unit_whose_prefill_member_is_unwell_is_out_of_rotation() {
    let world = World::with_pairs(2, VLLM).await;
    world.hosts[2].engine.healthy.store(false, Ordering::SeqCst);
    world.until_in_rotation(1).await;
    world.hosts[2].engine.healthy.store(true, Ordering::SeqCst);
    world.until_in_rotation(2).await;
}

/// The other pool never hears of it, or is told to give up.
#[tokio::test]
async fn what_the_prefill_member_refuses_reaches_the_client_at_once() {
    for (hand_over, writes) in [(VLLM, 0), (sglang(), 1)] {
        let world = World::with_pairs(1, hand_over).await;
        let [prefill, decode] = [&world.hosts[0].engine, &world.hosts[1].engine];
        let goes_on = Arc::new(Semaphore::new(0));
        prefill.then([Step::Await(Arc::clone(&goes_on)), respond("400 Bad Request", "", TOO_LONG)]);
        decode.then([Step::UntilLeft]);
        let (answered, ()) = tokio::join!(world.chat(ASK), async {
            until_asked(decode, writes).await;
            goes_on.add_permits(1);
        });
        assert_eq!((answered.status, answered.text.as_str()), (400, TOO_LONG));
        if writes > 0 {
            until_left(decode, 1).await;
        }
        assert_eq!(decode.asked().len(), writes);
        world.until_in_rotation(1).await;
        assert!(world.records(0).await.is_empty());
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_forgotten_by_both() {
    let world = World::with_pairs(1, VLLM).await;
    let [prefill, decode] = [&world.hosts[0].engine, &world.hosts[1].engine];
    let leave = async || {
        let asking = tokio::time::timeout(Duration::from_millis(200), world.begin(ASK)).await;
        assert!(asking.is_err());
    };
    prefill.then([Step::UntilLeft]);
    leave().await;
    until_left(prefill, 1).await;
    assert!(decode.asked().is_empty());
    reads(prefill, 1);
    decode.then([Step::UntilLeft]);
    leave().await;
    until_left(decode, 1).await;
    let records = world.records(2).await;
    assert!(records.iter().all(|record| record.outcome == RequestOutcome::ClientLeft));
    assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 0.0);

    let world = World::with_pairs(1, sglang()).await;
    for host in &world.hosts {
        host.engine.then([Step::UntilLeft]);
    }
    assert!(tokio::time::timeout(Duration::from_millis(200), world.begin(ASK)).await.is_err());
    for host in &world.hosts {
        until_left(&host.engine, 1).await;
    }
}

#[tokio::test]
async fn both_are_asked_at_once_and_a_prefill_member_that_dies_ends_the_others_wait() {
    let world = World::with_pairs(2, sglang()).await;
    for _ in 0..2 {
        let answered = world.chat(ASK).await;
        assert_eq!((answered.status, answered.text.as_str()), (200, USUAL));
    }
    for unit in 0..2 {
        let [prefill, decode] = [0, 1].map(|member| asked(&world.hosts[2 * unit + member].engine));
        assert_eq!(prefill, decode, "the same");
        assert_eq!(prefill[0]["bootstrap_port"], json!(8998));
    }
    let room = |host: usize| asked(&world.hosts[host].engine)[0]["bootstrap_room"].as_u64().unwrap();
    assert!(room(0) != room(2) && room(0) < 1 << 63);

    let goes_on = Arc::new(Semaphore::new(0));
    let decode = &world.hosts[1].engine;
    let times = decode.asked().len() + 1;
    world.hosts[0].engine.then([Step::Await(Arc::clone(&goes_on)), Step::Close]);
    decode.then([Step::UntilLeft]);
    let (answers, ()) = tokio::join!(async { [world.chat(ASK).await, world.chat(ASK).await] }, async {
        until_asked(decode, times).await;
        goes_on.add_permits(1);
    });
    for answered in answers {
        assert_eq!((answered.status, answered.text.as_str()), (200, USUAL));
    }
    until_left(decode, 1).await;
    world.records(4).await;
}

#[tokio::test]
async fn a_decode_member_that_dies_ends_its_streams_with_an_error_to_retry() {
    let world = World::with_pairs(2, VLLM).await;
    for unit in 0..2 {
        reads(&world.hosts[2 * unit].engine, 2);
        let begins =
            [Step::Write(STREAM_HEAD.to_owned()), framed(&chunk(r#""content":"a""#, "null")), Step::Close];
        world.hosts[2 * unit + 1].engine.then(begins);
    }
    let answered = world.chat(ASK_STREAM).await;
    assert!(answered.text.contains(r#""code":"retryable""#), "{}", answered.text);
    let record = world.records(1).await.remove(0);
    assert_eq!((record.outcome, record.tokens.output), (RequestOutcome::EngineFailed, 1));
}
