//! Hosts that fall silent: behind a partition, where connections hang and engines run on, or for good.

use std::time::Duration;

use denv_tests::process::{engines_below, kill_process};
use denv_tests::traffic::Traffic;

use crate::fixture::{Fixture, PATIENCE, STAGE};

/// The fixture's stage is patient for 15 s.
const LOST: Duration = Duration::from_secs(30);

async fn until_state(fixture: &Fixture, host: &str, state: &str) {
    denv_tests::until(&format!("{host} to be {state}"), LOST, || async {
        let hosts = fixture.client()?.hosts().await?;
        Ok(hosts.iter().any(|it| it.host.as_str() == host && it.state == state).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn behind_a_partition_shorter_than_patience_nothing_is_replaced_and_nobody_notices() {
    let fixture = Fixture::start().await;
    let before = fixture.client().unwrap().stage(STAGE).await.unwrap().units;
    let traffic = Traffic::start(&fixture.application(), 4, 5);
    fixture.hosts["host-a"].freeze().unwrap();
    until_state(&fixture, "host-a", "silent").await;
    let answered = traffic.answered();
    fixture.application().ask("is anybody there?", 3).await.unwrap();
    fixture.hosts["host-a"].thaw().unwrap();
    until_state(&fixture, "host-a", "connected").await;
    fixture.ready("r1").await;
    let units = |units: &[denv_schema::api::UnitView]| {
        units.iter().map(|unit| (unit.unit.clone(), unit.generation, unit.restarts)).collect::<Vec<_>>()
    };
    let after = fixture.client().unwrap().stage(STAGE).await.unwrap().units;
    assert_eq!(units(&before), units(&after));
    let (all, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(all > answered);
}

#[tokio::test]
async fn a_host_that_is_lost_is_replaced_and_when_it_returns_two_units_stay() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 2, 5);
    fixture.hosts.get_mut("host-a").unwrap().crash().unwrap();
    for (pid, _) in engines_below(&fixture.layout.dir.join("host-a")) {
        kill_process(pid).unwrap();
    }
    fixture
        .stage_until(STAGE, "two ready units on the other host", PATIENCE, |view| {
            view.units.iter().filter(|unit| unit.status == "ready" && unit.host.as_str() == "host-b").count()
                == 2
        })
        .await
        .unwrap();
    fixture.start_host("host-a").await.unwrap();
    until_state(&fixture, "host-a", "connected").await;
    fixture.ready("r1").await;
    denv_tests::until("two engines, and no more", PATIENCE, || async {
        Ok((engines_below(&fixture.layout.dir).len() == 2).then_some(()))
    })
    .await
    .unwrap();
    let (_, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
}

/// Connections to the frozen host break only when it is thawed, so who waits for it must be told otherwise.
#[tokio::test]
async fn a_partition_longer_than_patience_holds_nobody_up_and_ends_with_two_units() {
    let mut fixture =
        Fixture::start_with(&["--sim-token-delay", "20"], &[("lostAfter: 15s", "lostAfter: 12s")]).await;
    let streams = (0..2).map(|_| {
        let application = fixture.application();
        tokio::spawn(async move { application.ask_streaming("an endless story", 100_000, |_| {}).await })
    });
    let streams: Vec<_> = streams.collect();
    // Before other traffic, which could put both on one engine.
    denv_tests::until("a stream on each engine", PATIENCE, || async {
        Ok((fixture.running_by_engine().await == [1.0, 1.0]).then_some(()))
    })
    .await
    .unwrap();
    let traffic = Traffic::start(&fixture.application(), 4, 5);
    denv_tests::until("traffic", PATIENCE, || async { Ok((traffic.answered() > 4).then_some(())) })
        .await
        .unwrap();
    fixture.hosts["host-a"].freeze().unwrap();
    // Who starts with a host away takes up what it finds.
    fixture.reconciler.as_mut().unwrap().crash().unwrap();
    fixture.start_reconciler().await.unwrap();
    fixture
        .stage_until(STAGE, "two ready units on the other host", PATIENCE, |view| {
            view.units.iter().filter(|unit| unit.status == "ready" && unit.host.as_str() == "host-b").count()
                == 2
        })
        .await
        .unwrap();
    denv_tests::until("the stream from the frozen host to be given up", PATIENCE, || async {
        Ok(streams.iter().any(tokio::task::JoinHandle::is_finished).then_some(()))
    })
    .await
    .unwrap();
    let stopping = tokio::time::timeout(PATIENCE, traffic.stop());
    let (_, failures) = stopping.await.expect("nobody waits for the frozen host");
    // Half of the clients stream: those that were in the middle of an answer must ask again, and are told so.
    assert!(failures.len() <= 2, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.contains("the request may be sent again")), "{failures:?}");
    for stream in streams {
        if stream.is_finished() {
            let error = format!("{:#}", stream.await.unwrap().unwrap_err());
            assert!(error.contains("the request may be sent again"), "{error}");
        } else {
            stream.abort();
        }
    }

    fixture.hosts["host-a"].thaw().unwrap();
    until_state(&fixture, "host-a", "connected").await;
    fixture.ready("first").await;
    denv_tests::until("two engines, and no more", PATIENCE, || async {
        Ok((engines_below(&fixture.layout.dir).len() == 2).then_some(()))
    })
    .await
    .unwrap();
}
