//! Variables that are references: the value reaches the engine, and nothing else.

use std::fs;
use std::path::Path;

use denv_schema::launch::LaunchSpec;
use denv_schema::wire::MemberState;
use nix::sys::signal::Signal;

use crate::bench::*;

const PLANTED: &str = "hf_PLANTED0secret";

fn with(mut spec: LaunchSpec, name: &str, value: &str) -> LaunchSpec {
    spec.env.insert(name.to_owned(), value.to_owned());
    spec
}

/// Every file below a folder that holds the secret.
fn holding(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path));
        } else if holds_it(&path) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

/// The journal is written beside its place and moved there, so a file may be gone by now.
fn holds_it(path: &Path) -> bool {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).contains("PLANTED"),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", path.display());
            false
        }
    }
}

#[tokio::test]
async fn a_reference_becomes_its_value_in_the_engine_alone() {
    let (host, elsewhere) = (Host::new(), tempfile::tempdir().unwrap());
    let file = elsewhere.path().join("token");
    fs::write(&file, format!("{PLANTED}\n")).unwrap();
    let reference = format!("file:{}", file.display());
    let spec = with(with(spec(&[]), "HF_TOKEN", &reference), "FROM_DENVD", "env:CARGO_PKG_NAME");
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, spec.clone())).await;
    let healthy = until_state(&runner, MemberState::Healthy).await;
    assert_eq!(healthy.report.spec, spec.digest());
    let seen = engine(&healthy).await;
    assert_eq!(seen["env"]["HF_TOKEN"], PLANTED);
    assert_eq!(seen["env"]["FROM_DENVD"], "denv-agent");
    assert!(!format!("{healthy:?}").contains("PLANTED"));
    assert!(fs::read_to_string(host.journal()).unwrap().contains(&reference));
    assert_eq!(holding(&host.state_dir()), Vec::<String>::new());
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_fails_the_member_in_words() {
    let host = Host::new();
    let runner = host.runner().await;
    for (generation, value, expected) in [
        (1, "env:NO_SUCH_VARIABLE", "denvd's `NO_SUCH_VARIABLE`, which is not set"),
        (2, "file:/nonexistent/token", "the file `/nonexistent/token`, which can't be read: No such file"),
    ] {
        accepted(&runner, start(1, generation, with(spec(&[]), "HF_TOKEN", value))).await;
        let failed = until(&runner, |member| {
            member.report.generation == generation && member.report.state == MemberState::Failed
        });
        let reason = failed.await.report.reason.unwrap();
        assert!(
            reason.starts_with("the variable `HF_TOKEN` of the engine") && reason.contains(expected),
            "{reason}"
        );
        assert!(host.processes().is_empty());
    }
    // It is put there, and the next start finds it.
    let token = host.state_dir().join("token");
    fs::write(&token, PLANTED).unwrap();
    let spec = with(spec(&[]), "HF_TOKEN", &format!("file:{}", token.display()));
    accepted(&runner, start(1, 3, spec)).await;
    until_state(&runner, MemberState::Healthy).await;
}

#[tokio::test]
async fn an_engine_that_prints_its_secret_is_not_quoted() {
    let (host, elsewhere) = (Host::new(), tempfile::tempdir().unwrap());
    let file = elsewhere.path().join("token");
    fs::write(&file, PLANTED).unwrap();
    let reference = format!("file:{}", file.display());
    let runner = host.runner().await;
    accepted(&runner, start(1, 1, with(spec(&["--say", "HF_TOKEN", "--exit", "2"]), "HF_TOKEN", &reference)))
        .await;
    let failed = until_state(&runner, MemberState::Failed).await;
    let reason = failed.report.reason.unwrap();
    assert!(reason.contains("HF_TOKEN is (a secret)!") && !reason.contains("PLANTED"), "{reason}");
    // The engine's log is the engine's own; the journal is denvd's.
    assert_eq!(holding(&host.state_dir()), [format!("{MEMBER}.log")]);

    // Also when denvd was restarted meanwhile and the file is another.
    accepted(&runner, start(1, 2, with(spec(&["--say", "HF_TOKEN"]), "HF_TOKEN", &reference))).await;
    let healthy = until_state(&runner, MemberState::Healthy).await;
    runner.halt().await;
    fs::write(&file, "rotated-token").unwrap();
    let runner = host.runner().await;
    until_state(&runner, MemberState::Healthy).await;
    send(pid(&healthy).await, Signal::SIGKILL);
    let ended = until_state(&runner, MemberState::Unhealthy).await;
    let reason = ended.report.reason.unwrap();
    assert!(!reason.contains("PLANTED"), "{reason}");
    let after = until_state(&runner, MemberState::Healthy).await;
    assert_eq!(engine(&after).await["env"]["HF_TOKEN"], "rotated-token");
}
