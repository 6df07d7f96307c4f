//! The binary itself: what it says when it can't start, and that SIGKILL costs no record.

// When a helper breaks, so does the test.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use denv_schema::wire::Rotation;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use support::control_plane::FakeControlPlane;
use support::{ASK, KEY, World, read, request, until};

fn gateway(control_plane: &FakeControlPlane, state: &Path, listen: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_denv-gateway"));
    command
        .args([
            "--server",
            &control_plane.address.to_string(),
            "--listen",
            &listen.to_string(),
            "--state-dir",
        ])
        .arg(state)
        .env_remove("DENV_JOIN_TOKEN")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

/// An address that nobody listens on.
async fn free_address() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn refusal(mut command: Command) -> String {
    let output = tokio::time::timeout(Duration::from_secs(10), command.output()).await.unwrap().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn what_keeps_it_from_starting_is_said_with_the_remedy() {
    denv_link::install_tls_provider();
    let control_plane = FakeControlPlane::start();
    let dir = tempfile::tempdir().unwrap();
    let listen = free_address().await;
    let command = |name: &str| gateway(&control_plane, &dir.path().join(name), listen);

    let said = refusal(command("no-token")).await;
    assert!(said.contains("--token"), "{said}");

    let mut unread = command("malformed");
    unread.args(["--token", "abc"]);
    assert!(refusal(unread).await.contains("not a join token"));

    let mut wrong = command("wrong");
    let token = control_plane.token().to_string().replace("once", "twice");
    wrong.args(["--token", &token]);
    let said = refusal(wrong).await;
    assert!(said.contains("the control plane refused") && said.contains("unknown or used"), "{said}");

    let mut stranger = command("stranger");
    let (begins, _) = token.rsplit_once('.').unwrap();
    stranger.args(["--token", &format!("{begins}.{}", "0".repeat(64))]);
    let said = refusal(stranger).await;
    assert!(said.contains("is not the denv control plane"), "{said}");

    let taken = tokio::net::TcpListener::bind(listen).await.unwrap();
    let said = refusal(command("taken")).await;
    assert!(said.contains("cannot listen") && said.contains("--listen"), "{said}");
    drop(taken);

    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let said = refusal(gateway(&control_plane, &file.join("state"), listen)).await;
    assert!(said.contains("state folder") && said.contains("--state-dir"), "{said}");

    let mut token_file = command("token-file");
    token_file.args(["--token-file", "/nonexistent/token"]);
    assert!(refusal(token_file).await.contains("cannot read the join token"));
}

async fn until_listening(listen: SocketAddr) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(listen).await.is_err() {
        assert!(std::time::Instant::now() < deadline, "it does not listen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_certificate_that_ended_is_said_to_have() {
    let world = World::new(0).await;
    world.control_plane.heard.lifetime.store(1, Ordering::SeqCst);
    world.control_plane.heard.renews.store(false, Ordering::SeqCst);
    let listen = free_address().await;
    let mut command = gateway(&world.control_plane, world.state.path(), listen);
    command.args(["--token", &world.control_plane.token().to_string()]).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    until("it joined", || world.state.path().join("credentials/credentials.pem").exists()).await;
    running.kill().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let said = refusal(gateway(&world.control_plane, world.state.path(), listen)).await;
    assert!(said.contains("ended at") && said.contains("join again with a new token"), "{said}");
}

#[tokio::test]
async fn it_stops_when_told_and_one_state_folder_is_for_one_gateway() {
    let world = World::new(1).await;
    let listen = free_address().await;
    let spawn = |listen| {
        let mut command = gateway(&world.control_plane, world.state.path(), listen);
        command.args(["--token", &world.control_plane.token().to_string()]);
        command
    };
    let mut running = spawn(listen).stderr(Stdio::null()).spawn().unwrap();
    world.set_units(&[Rotation::In]);
    world.until_in_rotation(1).await;
    let mode = std::fs::metadata(world.state.path().join("credentials/credentials.pem"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0);

    let said = refusal(spawn(free_address().await)).await;
    assert!(said.contains("another gateway uses the state folder"), "{said}");

    let pid = nix::unistd::Pid::from_raw(running.id().unwrap() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = tokio::time::timeout(Duration::from_secs(10), running.wait()).await.unwrap().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn sigkill_loses_no_record_of_what_was_answered_and_repeats_none() {
    let world = World::new(1).await;
    world.set_units(&[Rotation::In]);
    world.takes_records(false);
    let listen = free_address().await;
    let spawn = || -> Child {
        let mut command = gateway(&world.control_plane, world.state.path(), listen);
        command.args(["--token", &world.control_plane.token().to_string()]).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let answered = Arc::new(Mutex::new(Vec::new()));
    for round in 0..3 {
        world.control_plane.heard.report.send_replace(None);
        let mut running = spawn();
        until_listening(listen).await;
        world.until_in_rotation(1).await;
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (stop, answered) = (stop.clone(), answered.clone());
                tokio::spawn(async move {
                    for count in 0.. {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        let id = format!("r{round}-{client}-{count}");
                        let bearer = format!("Bearer {KEY}");
                        let headers = [("authorization", bearer.as_str()), ("x-request-id", id.as_str())];
                        let response = request(listen, "POST", "/v1/chat/completions", &headers, ASK).await;
                        if read(response).await.status == 200 {
                            answered.lock().unwrap().push(id);
                        }
                    }
                })
            })
            .collect();
        let enough = answered.lock().unwrap().len() + 40;
        until("some answers", || answered.lock().unwrap().len() >= enough).await;
        running.kill().await.unwrap();
        stop.store(true, Ordering::SeqCst);
        for client in clients {
            // Those that were under way found the gateway gone.
            let _ = client.await;
        }
        world.takes_records(round > 0);
    }
    let _running = spawn();
    let heard = &world.control_plane.heard;
    until("all records", || {
        let records = heard.records.lock().unwrap();
        let ids: std::collections::HashSet<_> =
            records.values().map(|record| record.request.clone()).collect();
        answered.lock().unwrap().iter().all(|id| ids.contains(id))
    })
    .await;
    let records = heard.records.lock().unwrap();
    let ids: std::collections::HashSet<_> = records.values().map(|record| record.request.as_str()).collect();
    assert_eq!(ids.len(), records.len(), "each request is recorded once");
}
