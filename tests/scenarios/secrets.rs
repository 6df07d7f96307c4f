//! Secrets are in their own files, and nowhere else.

use std::path::{Path, PathBuf};

use denv_tests::process::engines_below;

use crate::fixture::{Fixture, PATIENCE};

fn files_below(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_below(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}

#[tokio::test]
async fn no_secret_is_in_a_log_a_record_an_event_or_a_command_line() {
    let mut fixture = Fixture::start().await;
    let application = fixture.application();
    application.ask("hello", 3).await.unwrap();
    let mut stranger = fixture.application();
    stranger.key = "sk-denv-a-wrong-one-that-nobody-should-see".to_owned();
    stranger.ask("hello", 3).await.unwrap_err();
    fixture.release("r1", "r2").await;
    fixture.ready("r2").await;
    denv_tests::until("usage to be collected", PATIENCE, || async {
        Ok((!fixture.client()?.usage().await?.is_empty()).then_some(()))
    })
    .await
    .unwrap();

    let dir = fixture.layout.dir.clone();
    let secret = |file: &str| {
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        // A token's public part may be seen.
        text.trim().rsplit(['.', ':']).next().unwrap().to_owned()
    };
    let tokens = ["host-a.token", "host-b.token", "gateway.token", "reconciler/admin-token"];
    let mut secrets: Vec<(&str, String)> = tokens.iter().map(|file| (*file, secret(file))).collect();
    secrets.push(("the key", fixture.key.clone()));
    secrets.push(("the wrong key", stranger.key.clone()));
    secrets.push(("a private key", "PRIVATE KEY".to_owned()));
    assert!(secrets.iter().all(|(_, secret)| secret.len() > 10), "{secrets:?}");

    let mut texts = Vec::new();
    let mut files = Vec::new();
    files_below(&dir, &mut files);
    for file in files {
        let name = file.strip_prefix(&dir).unwrap().display().to_string();
        let own = tokens.contains(&name.as_str())
            || name.ends_with("credentials/credentials.pem")
            || name == "reconciler/authority-key.pem";
        if !own {
            // One that is gone by now, as a journal of the store may be, says nothing.
            texts.push((name, std::fs::read(&file).unwrap_or_default()));
        }
    }
    assert!(texts.iter().any(|(name, text)| name.ends_with(".log") && !text.is_empty()));
    let events = fixture.client().unwrap().events(0).await.unwrap();
    texts.push(("events".to_owned(), serde_json::to_vec(&events).unwrap()));
    let engines = engines_below(&dir).into_iter().map(|(pid, _)| u32::try_from(pid).unwrap());
    for pid in fixture.pids().into_iter().chain(engines) {
        for part in ["cmdline", "environ"] {
            let text = std::fs::read(format!("/proc/{pid}/{part}")).unwrap();
            texts.push((format!("{part} of {pid}"), text));
        }
    }
    for (name, text) in &texts {
        let text = String::from_utf8_lossy(text);
        for (what, secret) in &secrets {
            assert!(!text.contains(secret.as_str()), "{what} is in {name}");
        }
    }
}
