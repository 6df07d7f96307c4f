//! What the control plane relies on while it moves units, and what goes on without it.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use denv_gateway::Files;
use denv_schema::Digest;
use denv_schema::wire::{Rotation, UnitReport};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use support::ingress::{STREAM_HEAD, Step, chunk, framed};
use support::{ASK, ASK_STREAM, World, config, read, unit, until};

fn stream_that_waits(go_on: &Arc<Semaphore>) -> Vec<Step> {
    vec![
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk(r#""content":"a""#, "null")),
        Step::Await(go_on.clone()),
        framed(&chunk(r#""content":"b""#, "\"stop\"")),
        framed("data: [DONE]\n\n"),
        framed(""),
    ]
}

#[tokio::test]
async fn a_unit_leaves_rotation_is_confirmed_and_finishes_its_requests() {
    let world = World::with_units(2).await;
    let go_on = Arc::new(Semaphore::new(0));
    world.hosts[0].engine.then(stream_that_waits(&go_on));
    world.set_units(&[Rotation::In, Rotation::Out]);
    world.until_in_rotation(1).await;
    let open = world.begin(ASK_STREAM).await;
    world.set_units(&[Rotation::Out, Rotation::In]);
    world
        .until_reported("unit 0 out with one in flight", |units| {
            units.iter().any(|(id, report)| {
                *id == unit(0)
                    && report.rotation == Rotation::Out
                    && !report.in_rotation
                    && report.inflight == 1
            })
        })
        .await;
    world.until_in_rotation(1).await;
    let asked = world.hosts[0].engine.asked().len();
    for _ in 0..4 {
        assert_eq!(world.chat(ASK).await.status, 200);
    }
    assert_eq!(world.hosts[0].engine.asked().len(), asked, "it takes no new requests");

    go_on.add_permits(1);
    let answered = read(open).await;
    assert!(answered.text.ends_with("data: [DONE]\n\n"), "{}", answered.text);
    world
        .until_reported("unit 0 drained", |units| {
            units.iter().any(|(id, report)| *id == unit(0) && !report.in_rotation && report.inflight == 0)
        })
        .await;
    world.control_plane.heard.units.send_replace(vec![world.route(1, Rotation::In)]);
    world.until_reported("unit 0 gone", |units| units.iter().all(|(id, _)| *id == unit(1))).await;
}

#[tokio::test]
async fn a_unit_is_in_rotation_only_once_it_was_reached() {
    let mut world = World::new(1).await;
    world.hosts[0].engine.healthy.store(false, Ordering::SeqCst);
    world.start(Arc::new(Files)).await;
    world.set_units(&[Rotation::In]);
    world.until_reported("it is known", |units| units.len() == 1 && !units[0].1.in_rotation).await;
    assert_eq!(world.chat(ASK).await.status, 503);
    world.hosts[0].engine.healthy.store(true, Ordering::SeqCst);
    world.until_in_rotation(1).await;
    assert_eq!(world.chat(ASK).await.status, 200);
}

#[tokio::test]
async fn a_host_with_another_name_is_not_the_host() {
    let world = World::with_units(1).await;
    let mut route = world.route(0, Rotation::In);
    route.at.host = "host-9".parse().unwrap();
    route.generation = 2;
    world.control_plane.heard.units.send_replace(vec![route]);
    world
        .until_reported("generation 2 out", |units| units[0].1.generation == 2 && !units[0].1.in_rotation)
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.chat(ASK).await.status, 503);
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_ends() {
    let mut world = World::new(1).await;
    world.control_plane.heard.lifetime.store(3, Ordering::SeqCst);
    world.start(Arc::new(Files)).await;
    world.set_units(&[Rotation::In]);
    world.until_in_rotation(1).await;
    tokio::time::sleep(Duration::from_millis(3500)).await;
    // Another generation is reached over another connection.
    let mut route = world.route(0, Rotation::In);
    route.generation = 2;
    world.control_plane.heard.units.send_replace(vec![route]);
    let ready = |report: &UnitReport| report.generation == 2 && report.in_rotation;
    world.until_reported("generation 2 in", |units| units.iter().any(|(_, report)| ready(report))).await;
    assert_eq!(world.chat(ASK).await.status, 200);
}

#[tokio::test]
async fn a_new_configuration_is_in_force_at_once_and_drops_nothing() {
    let world = World::with_units(1).await;
    let go_on = Arc::new(Semaphore::new(0));
    world.hosts[0].engine.then(stream_that_waits(&go_on));
    let mut open = world.begin(ASK_STREAM).await.into_body();
    assert!(open.frame().await.unwrap().is_ok());

    let mut changed = config();
    let key = changed.keys.values_mut().next().unwrap();
    key.hash = Digest::of_bytes(b"sk-denv-next");
    world.control_plane.heard.config.send_replace(Some(changed.clone()));
    let report = world.control_plane.heard.report.subscribe();
    until("the new configuration in force", || {
        report.borrow().as_ref().is_some_and(|report| report.config == Some(Digest::of(&changed)))
    })
    .await;
    assert_eq!(world.chat(ASK).await.status, 401, "the old key is gone");
    let next = [("authorization", "Bearer sk-denv-next")];
    let answered = read(world.request("POST", "/v1/chat/completions", &next, ASK).await).await;
    assert_eq!(answered.status, 200);

    go_on.add_permits(1);
    let rest = open.collect().await.unwrap().to_bytes();
    assert!(rest.ends_with(b"data: [DONE]\n\n"));
    world.records(2).await;
}

#[tokio::test]
async fn without_a_control_plane_a_restarted_gateway_serves_by_what_it_knew() {
    let mut world = World::with_units(1).await;
    assert_eq!(world.chat(ASK).await.status, 200);
    world.records(1).await;
    let known = world.state.path().join("last-known.json");
    until("it is kept", || std::fs::read_to_string(&known).is_ok_and(|text| text.contains("chat.prod.0")))
        .await;

    world.control_plane.stop();
    assert_eq!(world.chat(ASK).await.status, 200, "it serves on without");
    world.stop_gateway().await;
    world.start(Arc::new(Files)).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while world.chat(ASK).await.status != 200 {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    world.control_plane.restart();
    world.until_in_rotation(1).await;
    let records = world.records(3).await;
    assert_eq!(records.len(), 3, "what was served meanwhile is told");
}
