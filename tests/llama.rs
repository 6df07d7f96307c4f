//! End to end with a real engine and a real model: llama.cpp and SmolLM2, as `examples/engines/llama-cpp/setup.sh` sets
//! them up. `make test` does so and names the folder in DENV_LLAMA; without it there is nothing to test against.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use denv_tests::cluster::{Cluster, Layout};
use denv_tests::until;

const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_real_model_answers_in_words_and_its_tokens_are_metered() {
    let Some(engine) = std::env::var_os("DENV_LLAMA").map(PathBuf::from) else {
        assert!(std::env::var_os("CI").is_none(), "DENV_LLAMA must be set in CI: run `make test`");
        eprintln!("skipped: DENV_LLAMA is not set; `make test` sets the engine up");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::with_engine(dir.path().join("cluster"), &engine);
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manifests/quickstart");
    let mut cluster = Cluster::create(layout, &manifests).unwrap();
    cluster.start(&["host-a", "host-b"]).await.unwrap();
    let ready = cluster.stage_until("chat/prod", "two ready units", PATIENCE, |view| view.ready == 2).await;
    if ready.is_err() {
        eprintln!("{}", cluster.logs());
    }
    ready.unwrap();

    let application = cluster.application("smollm2").unwrap();
    let question = "What is the capital of France? Answer in one sentence.";
    let whole = application.ask(question, 40).await.unwrap();
    assert!(whole.contains("Paris"), "{whole}");
    let streamed = application.ask_streaming(question, 40, |_| {}).await.unwrap();
    assert!(streamed.contains("Paris"), "{streamed}");

    let usage = until("both answers to be metered", PATIENCE, || async {
        let usage = cluster.client()?.usage().await?;
        Ok(usage.into_iter().find(|row| row.requests == 2))
    })
    .await
    .unwrap();
    // The question is 42 tokens with the template; what the second request found cached is counted apart.
    assert_eq!(usage.tokens.input + usage.tokens.cached_input, 84, "{usage:?}");
    assert!(usage.tokens.output >= 10, "{usage:?}");
}
