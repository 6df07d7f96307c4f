//! The runner with engines that start, serve, crash, hang and refuse to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use denv_agent::journal::store::{Disk, JournalFile};
use denv_schema::Digest;
use denv_schema::manifest::Weights;
use denv_schema::quantity::Period;
use denv_schema::wire::{CommandOutcome, MemberState};
use nix::sys::signal::Signal;

use crate::bench::*;

#[tokio::test]
async fn an_engine_starts_serves_and_stops() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&[]))).await;
    let healthy = until_state(&runner, MemberState::Healthy).await;
    assert_eq!((healthy.report.generation, healthy.report.restarts), (1, 0));
    assert_eq!(healthy.report.spec, spec(&[]).digest());

    let seen = engine(&healthy).await;
    assert_eq!(seen["env"]["TINY_PORT"], healthy.port.unwrap().to_string());
    assert!(seen["env"]["PATH"].as_str().unwrap().contains(engine_dir().to_str().unwrap()));
    assert_eq!(
        seen["env"]["CARGO_MANIFEST_DIR"],
        serde_json::Value::Null,
        "denvd's own environment stays its own"
    );

    accepted(&runner, stop(1, 1)).await;
    until_state(&runner, MemberState::Stopped).await;
    assert_eq!(host.processes(), Vec::<i32>::new());
    assert!(host.state_dir().join("logs").join(format!("{MEMBER}.log")).exists());
    // Asked again, it is shown and answered again, and nothing starts.
    accepted(&runner, stop(1, 1)).await;
    accepted(&runner, start(1, 1, spec(&[]))).await;
    assert_eq!(host.processes(), Vec::<i32>::new());
}

#[tokio::test]
async fn commands_are_done_once_and_fenced() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(3, 2, spec(&[]))).await;
    let first = pid(&until_state(&runner, MemberState::Healthy).await).await;
    accepted(&runner, start(3, 2, spec(&[]))).await;
    let refused = async |command, words: &str| match ask(&runner, command).await {
        CommandOutcome::Refused { reason } => assert!(reason.contains(words), "{reason}"),
        CommandOutcome::Accepted => panic!("accepted, but should say: {words}"),
    };
    refused(start(3, 2, spec(&["--stubborn"])), "another launch spec").await;
    refused(start(3, 1, spec(&[])), "generation 1 of").await;
    refused(stop(2, 2), "term 2 is over").await;
    assert_eq!(pid(&until_state(&runner, MemberState::Healthy).await).await, first);
}

#[tokio::test]
async fn a_killed_engine_comes_back_on_its_port() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&["--children"]))).await;
    let before = until_state(&runner, MemberState::Healthy).await;
    let first = host.processes();
    assert_eq!(first.len(), 3);
    send(pid(&before).await, Signal::SIGKILL);
    let ended = until_state(&runner, MemberState::Unhealthy).await;
    assert!(ended.report.reason.unwrap().starts_with("killed by SIGKILL; restarted in 0.5 s"));
    let after = until_state(&runner, MemberState::Healthy).await;
    assert_eq!((after.report.restarts, after.port), (1, before.port));
    assert!(!host.processes().iter().any(|pid| first.contains(pid)), "a child outlived its engine");
}

#[tokio::test]
async fn an_engine_that_only_crashes_is_given_up_with_its_last_words() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&["--exit", "2"]))).await;
    let failed = until_state(&runner, MemberState::Failed).await;
    assert_eq!(failed.report.restarts, 2);
    assert_eq!(failed.report.reason.unwrap(), "exited with status 2: starting\nfatal: no such flag");
    // It stays so over a restart of denvd, and a stop ends it.
    runner.halt().await;
    let runner = host.runner().await;
    until_state(&runner, MemberState::Failed).await;
    accepted(&runner, stop(1, 1)).await;
    until_state(&runner, MemberState::Stopped).await;
}

#[tokio::test]
async fn an_engine_that_never_answers_is_given_up_and_gone() {
    let host = Host::new();
    let runner = host.runner().await;
    // Longer than it takes to say its first words, on a busy machine too.
    let deaf = denv_schema::launch::LaunchSpec { start_timeout: Period::from_secs(4), ..spec(&["--deaf"]) };
    accepted(&runner, start(1, 1, deaf)).await;
    let failed = until_state(&runner, MemberState::Failed).await;
    let reason = failed.report.reason.unwrap();
    assert!(reason.starts_with("not healthy within 4s: GET /health failed: cannot connect"), "{reason}");
    assert!(reason.ends_with("loading"), "{reason}");
    assert_eq!(host.processes(), Vec::<i32>::new());
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let host = Host::new();
    let runner = host.runner().await;
    let mut nowhere = spec(&[]);
    nowhere.argv[0] = "no-such-engine".to_owned();
    accepted(&runner, start(1, 1, nowhere)).await;
    let failed = until_state(&runner, MemberState::Failed).await.report.reason.unwrap();
    assert!(failed.contains("no program `no-such-engine`") && failed.contains("tests/denvd"), "{failed}");

    fs::write(host.state_dir().join("tiny.gguf"), "other weights").unwrap();
    let weights = |content: &[u8]| {
        Some(Weights { source: "file:tiny.gguf".to_owned(), digest: Digest::of_bytes(content) })
    };
    let mut bad = spec(&["--weights", "${weights}"]);
    bad.weights = weights(b"the weights");
    accepted(&runner, start(1, 2, bad.clone())).await;
    let failed =
        until(&runner, |member| member.report.generation == 2 && member.report.state == MemberState::Failed);
    let failed = failed.await.report.reason.unwrap();
    assert!(failed.contains(&format!("expected {}", Digest::of_bytes(b"the weights"))), "{failed}");
    assert!(failed.contains(&format!("found {}", Digest::of_bytes(b"other weights"))), "{failed}");

    bad.weights = weights(b"other weights");
    accepted(&runner, start(1, 3, bad)).await;
    let healthy = until_state(&runner, MemberState::Healthy).await;
    assert_eq!(engine(&healthy).await["weights"], host.state_dir().join("tiny.gguf").to_str().unwrap());
}

#[tokio::test]
async fn an_engine_that_ignores_sigterm_is_killed_after_its_bound() {
    let host = Host::new();
    let runner = host.runner().await;
    let mut stubborn = spec(&["--stubborn"]);
    stubborn.stop_timeout = Period::from_millis(400);
    accepted(&runner, start(1, 1, stubborn)).await;
    until_state(&runner, MemberState::Healthy).await;
    let began = std::time::Instant::now();
    accepted(&runner, stop(1, 1)).await;
    until_state(&runner, MemberState::Stopping).await;
    until_state(&runner, MemberState::Stopped).await;
    assert!(began.elapsed() >= std::time::Duration::from_millis(400));
    assert_eq!(host.processes(), Vec::<i32>::new());
}

#[tokio::test]
async fn a_hung_engine_is_unhealthy_then_replaced() {
    let host = Host::new();
    let runner = host.runner().await;
    let hang = host.state_dir().join("hang");
    let mut hanging = spec(&["--hang", hang.to_str().unwrap()]);
    hanging.probe.as_mut().unwrap().timeout = Period::from_millis(60);
    accepted(&runner, start(1, 1, hanging)).await;
    let first = pid(&until_state(&runner, MemberState::Healthy).await).await;
    fs::write(&hang, "").unwrap();
    let unhealthy = until_state(&runner, MemberState::Unhealthy).await;
    let reason = unhealthy.report.reason.unwrap();
    assert!(reason.contains("3 checks in a row failed: GET /health gave no answer within 60 ms"), "{reason}");
    until(&runner, |member| member.report.restarts == 1).await;
    fs::remove_file(&hang).unwrap();
    assert_ne!(pid(&until_state(&runner, MemberState::Healthy).await).await, first);
}

/// As members are whose pool has another one that serves.
#[tokio::test]
async fn an_engine_without_a_server_is_healthy_while_it_lives() {
    let host = Host::new();
    let runner = host.runner().await;
    let mut silent = spec(&["--deaf"]);
    silent.probe = None;
    silent.start_timeout = Period::from_secs(4);
    accepted(&runner, start(1, 1, silent.clone())).await;
    until_state(&runner, MemberState::Starting).await;
    until_state(&runner, MemberState::Healthy).await;
    runner.halt().await;

    // A denvd that adopts it need not wait: it has lived long enough.
    let runner = host.runner().await;
    let view = runner.handle().view().borrow().clone();
    assert_eq!(view.members[&MEMBER.into()].report.state, MemberState::Healthy);
    host.processes().into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
    until_state(&runner, MemberState::Unhealthy).await;
    assert_eq!(until_state(&runner, MemberState::Healthy).await.report.restarts, 1);

    // One that can't start is given up, as any other.
    silent.argv = spec(&["--exit", "3"]).argv;
    accepted(&runner, start(1, 2, silent)).await;
    let failed = until_state(&runner, MemberState::Failed).await;
    assert!(failed.report.reason.unwrap().contains("fatal: no such flag"));
}

#[tokio::test]
async fn a_newer_generation_takes_the_place_of_the_older() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&[]))).await;
    let first = pid(&until_state(&runner, MemberState::Healthy).await).await;
    let mut next = spec(&[]);
    next.env.insert("NEXT".to_owned(), "1".to_owned());
    accepted(&runner, start(1, 2, next.clone())).await;
    let healthy = until(&runner, |member| {
        // It is never called healthy on the older engine's account.
        member.report.generation == 2 && member.report.state == MemberState::Healthy
    });
    let healthy = healthy.await;
    assert_eq!(healthy.report.spec, next.digest());
    assert_eq!(engine(&healthy).await["env"]["NEXT"], "1");
    assert!(!host.processes().contains(&first));
}

#[tokio::test]
async fn denvd_adopts_what_runs_after_its_own_restart() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&["--children"]))).await;
    let before = until_state(&runner, MemberState::Healthy).await;
    let processes = host.processes();
    let first = pid(&before).await;
    runner.halt().await;

    let runner = host.runner().await;
    // Its health is known before anybody can ask.
    let view = runner.handle().view().borrow().clone();
    let adopted = view.members[&MEMBER.into()].clone();
    assert_eq!((adopted.report.state, adopted.port), (MemberState::Healthy, before.port));
    assert_eq!((pid(&adopted).await, host.processes()), (first, processes));
    // And its end is noticed.
    send(first, Signal::SIGKILL);
    until_state(&runner, MemberState::Unhealthy).await;
    let after = until_state(&runner, MemberState::Healthy).await;
    assert_eq!(after.report.restarts, 1);
    accepted(&runner, stop(1, 1)).await;
    until_state(&runner, MemberState::Stopped).await;
    assert_eq!(host.processes(), Vec::<i32>::new());
}

#[tokio::test]
async fn denvd_restarts_what_ended_while_it_was_away() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&["--children"]))).await;
    let first = pid(&until_state(&runner, MemberState::Healthy).await).await;
    let before = host.processes();
    // Until the pid and the health are in the journal.
    eventually("the journal knows", || {
        fs::read_to_string(host.journal()).unwrap().contains("\"wasHealthy\":true")
    })
    .await;
    runner.halt().await;
    send(first, Signal::SIGKILL);

    let runner = host.runner().await;
    let healthy = until_state(&runner, MemberState::Healthy).await;
    assert_eq!(healthy.report.restarts, 1);
    let now = host.processes();
    assert!(!before.iter().any(|pid| now.contains(pid)), "children of the dead engine were left");
}

#[tokio::test]
async fn denvd_finishes_a_stop_after_its_own_restart() {
    let host = Host::new();
    let runner = host.runner().await;
    let mut stubborn = spec(&["--stubborn"]);
    stubborn.stop_timeout = Period::from_millis(700);
    accepted(&runner, start(1, 1, stubborn)).await;
    until_state(&runner, MemberState::Healthy).await;
    accepted(&runner, stop(1, 1)).await;
    until_state(&runner, MemberState::Stopping).await;
    runner.halt().await;

    let runner = host.runner().await;
    until_state(&runner, MemberState::Stopped).await;
    assert_eq!(host.processes(), Vec::<i32>::new());
}

#[tokio::test]
async fn an_engine_that_the_journal_does_not_know_is_adopted_or_ended() {
    let host = Host::new();
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec(&[]))).await;
    let first = pid(&until_state(&runner, MemberState::Healthy).await).await;
    eventually("the journal knows", || {
        fs::read_to_string(host.journal()).unwrap().contains("\"wasHealthy\":true")
    })
    .await;
    runner.halt().await;

    // As if denvd had been killed between starting it and writing that down.
    let mut journal: serde_json::Value = serde_json::from_slice(&fs::read(host.journal()).unwrap()).unwrap();
    journal["members"][MEMBER]["facts"]["engine"] = serde_json::Value::Null;
    fs::write(host.journal(), journal.to_string()).unwrap();
    let runner = host.runner().await;
    assert_eq!(pid(&until_state(&runner, MemberState::Healthy).await).await, first);
    // A write that is under way would come after the test's own.
    eventually("the journal knows again", || {
        let written: serde_json::Value = serde_json::from_slice(&fs::read(host.journal()).unwrap()).unwrap();
        written["members"][MEMBER]["facts"]["engine"].is_object()
    })
    .await;
    runner.halt().await;

    journal["members"] = serde_json::json!({});
    fs::write(host.journal(), journal.to_string()).unwrap();
    let _runner = host.runner().await;
    eventually("the stray is ended", || host.processes().is_empty()).await;
}

/// A disk that can be full.
struct TestDisk {
    file: JournalFile,
    full: AtomicBool,
}

impl Disk for TestDisk {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        self.file.read()
    }
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.replace(bytes)
    }
    fn path(&self) -> &std::path::Path {
        self.file.path()
    }
}

#[tokio::test]
async fn on_a_full_disk_commands_wait_unanswered_and_engines_run_on() {
    let host = Host::new();
    let disk = Arc::new(TestDisk { file: JournalFile::new(host.journal()), full: AtomicBool::new(false) });
    let runner = host.runner_on(disk.clone()).await;
    accepted(&runner, start(1, 1, spec(&[]))).await;
    let healthy = until_state(&runner, MemberState::Healthy).await;

    disk.full.store(true, Ordering::Relaxed);
    runner.handle().command(stop(1, 1)).await;
    let mut view = runner.handle().view();
    let told = view.wait_for(|view| view.problems.iter().any(|problem| problem.contains("no space left")));
    let problems = tokio::time::timeout(DEADLINE, told).await.unwrap().unwrap().problems.clone();
    assert!(problems[0].starts_with("cannot write `"), "{problems:?}");
    let answers = runner.handle().answers();
    let answered = answers.borrow().after(0).map(|(_, id, _)| id.0.clone());
    assert_eq!(answered.as_deref(), Some("chat.prod.1.0@1/start"), "only the start is answered");
    // A crash is mended even now.
    send(pid(&healthy).await, Signal::SIGKILL);
    until_state(&runner, MemberState::Unhealthy).await;
    let again = until_state(&runner, MemberState::Healthy).await;
    assert_eq!(again.report.restarts, 1);

    disk.full.store(false, Ordering::Relaxed);
    until_state(&runner, MemberState::Stopped).await;
    assert_eq!(ask(&runner, stop(1, 1)).await, CommandOutcome::Accepted);
    assert!(runner.handle().view().borrow().problems.is_empty());
}
