//! What survives when a process dies.

use std::time::Duration;

use denv_tests::process::{engines_below, kill_process};
use denv_tests::traffic::Traffic;
use denv_tests::until;

use crate::fixture::{Fixture, PATIENCE, STAGE};

#[tokio::test]
async fn a_killed_engine_comes_back_and_no_request_fails() {
    let fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 4, 20);
    let (pid, member) = engines_below(&fixture.layout.dir).into_iter().next().unwrap();
    kill_process(pid).unwrap();
    fixture
        .stage_until(STAGE, "the engine to come back", PATIENCE, |view| {
            view.ready == 2
                && view.units.iter().any(|unit| unit.member.as_str() == member && unit.restarts == 1)
        })
        .await
        .unwrap();
    let (answered, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(answered > 0);
}

/// The reconciler is killed at many moments of many rollouts. Each unit it started was started once, no request
/// failed, and each rollout came to its end.
#[tokio::test]
async fn a_reconciler_killed_at_any_moment_loses_nothing_and_repeats_nothing() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 2, 20);
    let mut random = u64::from(std::process::id()) | 1;
    let mut chance = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut kills = 0;
    for round in 0..4 {
        let (from, to) = if round % 2 == 0 { ("r1", "r2") } else { ("r2", "r1") };
        fixture
            .repository
            .edit("service.yaml", &format!("release: {from}\n"), &format!("release: {to}\n"))
            .unwrap();
        fixture.repository.commit(&format!("Move to {to}")).unwrap();
        for _ in 0..5 {
            fixture.reconciler.as_mut().unwrap().crash().unwrap();
            kills += 1;
            // At its start it looks at Git, so it needs no hook.
            fixture.start_reconciler().await.unwrap();
            tokio::time::sleep(Duration::from_millis(chance(900))).await;
        }
        fixture.ready(to).await;
    }
    let (_, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(kills, 20);
    for host in ["host-a", "host-b"] {
        for (member, starts) in fixture.starts(host) {
            assert_eq!(starts, 1, "{member} on {host} was started {starts} times");
        }
    }
}

#[tokio::test]
async fn a_lost_store_costs_no_engine_and_no_request() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 2, 20);
    let before = engines_below(&fixture.layout.dir);
    for round in 0..2 {
        fixture.reconciler.as_mut().unwrap().crash().unwrap();
        let state = fixture.layout.dir.join("reconciler");
        let files = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
        let of_store = |path: &std::path::PathBuf| path.to_string_lossy().contains("denv.db");
        let gone: Vec<_> = files.filter(of_store).collect();
        assert!(!gone.is_empty(), "no store in {}", state.display());
        gone.iter().for_each(|file| std::fs::remove_file(file).unwrap());
        fixture.start_reconciler().await.unwrap();
        fixture.ready("r1").await;
        assert_eq!(engines_below(&fixture.layout.dir), before, "round {round}");
    }
    // What was adopted is changed like anything else, and stops once a gateway that nobody knows any more would be dead.
    fixture.release("r1", "r2").await;
    fixture.ready_within(2 * PATIENCE, "r2").await;
    let (answered, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(answered > 0);
}

#[tokio::test]
async fn a_killed_denvd_finds_its_engines_again() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 2, 20);
    let mut before = engines_below(&fixture.layout.dir);
    fixture.hosts.get_mut("host-a").unwrap().crash().unwrap();
    until("the control plane to see host-a gone", PATIENCE, || async {
        let hosts = fixture.client()?.hosts().await?;
        Ok(hosts.iter().any(|host| host.host.as_str() == "host-a" && host.state == "silent").then_some(()))
    })
    .await
    .unwrap();
    fixture.start_host("host-a").await.unwrap();
    fixture.ready("r1").await;
    let mut after = engines_below(&fixture.layout.dir);
    before.sort();
    after.sort();
    assert_eq!(before, after, "the same processes, none new and none lost");
    let (_, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
}

#[tokio::test]
async fn usage_counts_once_over_crashes_of_gateway_and_reconciler() {
    let mut fixture = Fixture::start().await;
    let application = fixture.application();
    let tokens = 7;
    for round in 0..3 {
        for _ in 0..5 {
            application.ask("hello", tokens).await.unwrap();
        }
        match round {
            0 => {
                fixture.gateway.as_mut().unwrap().crash().unwrap();
                fixture.start_gateway().await.unwrap();
                // It serves from what it last knew, and what it last knew it checks again first.
                until("the gateway to route again", PATIENCE, || async {
                    let answered = fixture.application().ask("again?", 0).await;
                    Ok(answered.is_ok().then_some(()))
                })
                .await
                .unwrap();
            }
            1 => {
                fixture.reconciler.as_mut().unwrap().crash().unwrap();
                fixture.start_reconciler().await.unwrap();
            }
            _ => {}
        }
    }
    let expected = 15 * u64::from(tokens);
    until("usage to be collected", PATIENCE, || async {
        let usage = fixture.client()?.usage().await?;
        Ok(usage.iter().any(|row| row.tokens.output >= expected).then_some(()))
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let usage = fixture.client().unwrap().usage().await.unwrap();
    assert_eq!(usage.len(), 1);
    assert_eq!(usage[0].tokens.output, expected, "{usage:?}");
    assert_eq!(usage[0].customer.as_str(), "demo");
}

#[tokio::test]
async fn hosts_and_gateway_serve_on_without_the_control_plane() {
    let mut fixture = Fixture::start().await;
    fixture.reconciler.as_mut().unwrap().crash().unwrap();
    let application = fixture.application();
    application.ask("hello", 5).await.unwrap();
    // The gateway starts again from what it last knew, and an engine that dies is brought back by its denvd.
    fixture.gateway.as_mut().unwrap().crash().unwrap();
    fixture.start_gateway().await.unwrap();
    let (pid, _) = engines_below(&fixture.layout.dir).into_iter().next().unwrap();
    kill_process(pid).unwrap();
    until("answers without a control plane", PATIENCE, || async {
        Ok(application.ask("hello", 5).await.is_ok().then_some(()))
    })
    .await
    .unwrap();
    until("both engines", PATIENCE, || async {
        Ok((engines_below(&fixture.layout.dir).len() == 2).then_some(()))
    })
    .await
    .unwrap();
}
