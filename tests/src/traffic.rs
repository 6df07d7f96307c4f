//! Applications that keep asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// An application with a key.
#[derive(Clone)]
pub struct Application {
    http: reqwest::Client,
    pub gateway: String,
    pub key: String,
    pub model: String,
}

impl Application {
    pub fn new(gateway: &str, key: &str, model: &str) -> anyhow::Result<Self> {
        denv_link::install_tls_provider();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(120)).build()?;
        Ok(Application { http, gateway: gateway.to_owned(), key: key.to_owned(), model: model.to_owned() })
    }

    fn request(&self, question: &str, tokens: u32, stream: bool) -> reqwest::RequestBuilder {
        let body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": question }],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": stream,
        });
        self.http.post(format!("{}/v1/chat/completions", self.gateway)).bearer_auth(&self.key).json(&body)
    }

    /// One question, answered whole.
    pub async fn ask(&self, question: &str, tokens: u32) -> anyhow::Result<String> {
        let response = self.request(question, tokens, false).send().await?;
        let (status, text) = (response.status(), response.text().await?);
        if !status.is_success() {
            bail!("{status}: {text}");
        }
        let answer: Value = serde_json::from_str(&text)?;
        let content = answer.pointer("/choices/0/message/content").and_then(Value::as_str);
        Ok(content.with_context(|| format!("no content in {text}"))?.to_owned())
    }

    /// One question, answered as it is generated; `piece` gets each part.
    pub async fn ask_streaming(
        &self,
        question: &str,
        tokens: u32,
        mut piece: impl FnMut(&str),
    ) -> anyhow::Result<String> {
        let response = self.request(question, tokens, true).send().await?;
        if !response.status().is_success() {
            bail!("{}: {}", response.status(), response.text().await?);
        }
        let (mut body, mut pending, mut answer, mut finished) =
            (response.bytes_stream(), Vec::new(), String::new(), false);
        while let Some(chunk) = body.next().await {
            pending.extend_from_slice(&chunk?);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let Some(data) = line.trim().strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
                    continue;
                };
                let event: Value = serde_json::from_str(data)?;
                if event.get("error").is_some() {
                    bail!("the stream ended with {event}");
                }
                finished |= event.pointer("/choices/0/finish_reason").is_some_and(|reason| !reason.is_null());
                if let Some(text) = event.pointer("/choices/0/delta/content").and_then(Value::as_str) {
                    piece(text);
                    answer.push_str(text);
                }
            }
        }
        anyhow::ensure!(finished, "the stream ended without a finish_reason");
        Ok(answer)
    }
}

/// Keeps asking from the side, and counts.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Traffic {
    /// `clients` that ask one question after the other, every second one of them streaming.
    pub fn start(application: &Application, clients: usize, tokens: u32) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..clients).map(|client| {
            let (application, stop, answered) =
                (application.clone(), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut failures = Vec::new();
                for number in 0u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let question = format!("Client {client}, question {number}: say hello.");
                    let asked = if client.is_multiple_of(2) {
                        application.ask(&question, tokens).await.map(drop)
                    } else {
                        application.ask_streaming(&question, tokens, |_| {}).await.map(drop)
                    };
                    match asked {
                        Ok(()) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failures.push(format!("{error:#}")),
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                failures
            })
        });
        let tasks = tasks.collect();
        Traffic { stop, answered, tasks }
    }

    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// How many were answered, and what the others were told.
    pub async fn stop(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        for task in self.tasks {
            failures.extend(task.await.unwrap_or_else(|error| vec![error.to_string()]));
        }
        (self.answered.load(Ordering::Relaxed), failures)
    }
}
