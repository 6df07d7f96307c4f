//! End to end with a real vLLM, whose prefill and decode pools hand over their KV cache through NIXL. It takes minutes and some
//! gigabytes, so only `make test-vllm` sets vLLM up and names the folder in DENV_VLLM.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use denv_schema::manifest::PoolName;
use denv_tests::cluster::{Cluster, Layout};
use denv_tests::process::{engine_port, engines_below};
use denv_tests::until;
use serde_json::{Value, json};

/// vLLM starts in half a minute where it has two cores for itself, and there are two of it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A prompt of several blocks, which are what is handed over.
fn question() -> String {
    (0..60).map(|number| format!("word{number} ")).collect()
}

/// An engine's own answer, without the gateway.
async fn alone(port: u16, question: &str) -> String {
    let body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": question}], "max_tokens": 12, "temperature": 0,
    });
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    let answer: Value =
        reqwest::Client::new().post(url).json(&body).send().await.unwrap().json().await.unwrap();
    answer.pointer("/choices/0/message/content").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// How many tokens of prompts a decode engine was handed.
async fn handed_over(port: u16) -> f64 {
    let text = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await.unwrap().text().await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with("vllm:prompt_tokens_by_source_total"));
    let external = lines.filter(|line| line.contains("external_kv_transfer"));
    external.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn two_pools_answer_as_one_engine_does() {
    let Some(engine) = std::env::var_os("DENV_VLLM").map(PathBuf::from) else {
        eprintln!("skipped: DENV_VLLM is not set; `make test-vllm` sets vLLM up");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::with_engine(dir.path().join("cluster"), &engine);
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manifests/quickstart");
    let mut cluster = Cluster::create(layout, &manifests).unwrap();
    let denv = denv_tests::programs().unwrap().join("denv");
    let digest =
        Command::new(denv).args(["weights", "digest"]).arg(engine.join("weights/tiny")).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    let software = include_str!("manifests/vllm-pair.yaml").replace("WEIGHTS", digest.trim());
    let repository = &mut cluster.repository;
    repository.write("software.yaml", &software).unwrap();
    repository.edit("service.yaml", "release: smollm2-r1", "release: tiny-r1").unwrap();
    repository.edit("service.yaml", "units: {min: 2}", "units: {min: 1}").unwrap();
    repository.commit("Serve with vLLM").unwrap();
    cluster.start(&["host-a"]).await.unwrap();
    let ready = cluster.stage_until("chat/prod", "a ready unit", PATIENCE, |view| view.ready == 1).await;
    if ready.is_err() {
        eprintln!("{}", cluster.logs());
    }
    let unit = ready.unwrap().units.remove(0);
    let port = |pool: PoolName| {
        let member = unit.members.iter().find(|member| member.pool == pool).unwrap().member.to_string();
        let (pid, _) = engines_below(&cluster.layout.dir).into_iter().find(|(_, it)| *it == member).unwrap();
        engine_port(pid).unwrap()
    };
    let (prefill, decode) = (port(PoolName::Prefill), port(PoolName::Decode));

    let (application, question) = (cluster.application("smollm2").unwrap(), question());
    let whole = application.ask(&question, 12).await.unwrap();
    let handed = handed_over(decode).await;
    assert!(handed >= 100.0, "the prompt was handed over: {handed}");
    let streamed = application.ask_streaming(&question, 12, |_| {}).await.unwrap();
    let by_one = alone(prefill, &question).await;
    assert_eq!((whole.as_str(), streamed.as_str()), (by_one.as_str(), by_one.as_str()));

    let usage = until("both answers to be metered", PATIENCE, || async {
        let usage = cluster.client()?.usage().await?;
        Ok(usage.into_iter().find(|row| row.requests == 2))
    })
    .await
    .unwrap();
    assert!(
        usage.tokens.cached_input > 0,
        "the second found the first's prompt in the prefill cache: {usage:?}"
    );
    assert_eq!(usage.tokens.output, 24);
}
