//! The program, as a person starts it: what it says when it can't.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn arguments(dir: &Path, api: &str, link: &str) -> Vec<String> {
    let state = dir.join("state").display().to_string();
    let source = dir.join("config").display().to_string();
    ["--state-dir", &state, "--source", &source, "--api-listen", api, "--link-listen", link]
        .map(str::to_owned)
        .to_vec()
}

fn run(arguments: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_denv-reconciler")).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn refused(arguments: &[String], expected: &str) {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(expected), "missing `{expected}` in\n{said}");
}

#[test]
fn a_port_in_use_is_named_with_the_flag_that_chooses_another() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&arguments(dir.path(), &address, "127.0.0.1:0"), "choose another with --api-listen");
    refused(&arguments(dir.path(), "127.0.0.1:0", &address), "choose another with --link-listen");
}

#[test]
fn the_api_is_not_served_in_the_clear_beyond_loopback() {
    let dir = tempfile::tempdir().unwrap();
    refused(&arguments(dir.path(), "0.0.0.0:0", "127.0.0.1:0"), "--api-tls-certificate");
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let arguments = arguments(file.path(), "127.0.0.1:0", "127.0.0.1:0");
    refused(&arguments, "cannot make the state folder");
}

#[test]
fn a_second_process_on_the_same_state_is_refused_and_the_first_one_ends_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = arguments(dir.path(), "127.0.0.1:0", "127.0.0.1:0");
    let mut first = Command::new(env!("CARGO_BIN_EXE_denv-reconciler"))
        .args(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let token = dir.path().join("state/admin-token");
    let began = Instant::now();
    while !token.exists() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    refused(&arguments, "another denv-reconciler runs on");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);

    // Once it serves, SIGTERM ends it in order.
    std::thread::sleep(Duration::from_millis(500));
    Command::new("kill").arg(first.id().to_string()).status().unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
}
