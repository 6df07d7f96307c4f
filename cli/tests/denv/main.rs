//! `denv` as people run it: a process, its output, its exit status. The control plane is a stand-in.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

mod offline;
mod online;
mod parity;
mod rollout;
mod stand_in;
mod tls;

use std::process::Output;

use assert_cmd::Command;

/// `denv` with nothing of this machine's own settings.
fn denv() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("denv"));
    for variable in ["DENV_SERVER", "DENV_TOKEN", "DENV_TOKEN_FILE", "DENV_CA", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command.env("HOME", "/nonexistent").env("TZ", "UTC").timeout(std::time::Duration::from_secs(20));
    command
}

/// Exit status, standard output, standard error.
fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}
