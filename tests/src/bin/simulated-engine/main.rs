//! An engine that is not there: an HTTP server that answers as vLLM does, with knobs for what can go wrong. It takes
//! vLLM's flags as denv renders them.

mod group;
mod hand_over;
mod prefix_cache;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use group::Group;
use hand_over::Kept;
use prefix_cache::PrefixCache;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Serve),
}

#[derive(clap::Args, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "they are flags of a command line")]
struct Serve {
    model: String,
    /// Where it serves, unless it only has ranks of a pool that another serves for.
    #[arg(long, required_unless_present = "headless")]
    host: Option<String>,
    #[arg(long, required_unless_present = "headless")]
    port: Option<u16>,
    #[arg(long, conflicts_with = "api_server_count")]
    headless: bool,
    #[arg(long)]
    api_server_count: Option<u32>,
    #[arg(long)]
    data_parallel_size: Option<u32>,
    #[arg(long, requires = "data_parallel_rpc_port")]
    data_parallel_size_local: Option<u32>,
    #[arg(long, requires = "headless")]
    data_parallel_start_rank: Option<u32>,
    #[arg(long)]
    data_parallel_address: Option<String>,
    #[arg(long)]
    data_parallel_rpc_port: Option<u16>,
    #[arg(long, requires = "master_port")]
    nnodes: Option<u32>,
    #[arg(long)]
    node_rank: Option<u32>,
    #[arg(long)]
    master_addr: Option<String>,
    #[arg(long)]
    master_port: Option<u16>,
    #[arg(long)]
    enable_expert_parallel: bool,
    #[arg(long)]
    kv_transfer_config: Option<String>,
    #[arg(long)]
    served_model_name: String,
    #[arg(long)]
    tensor_parallel_size: Option<u32>,
    #[arg(long)]
    max_model_len: Option<u32>,
    #[arg(long)]
    max_num_seqs: Option<u32>,
    #[arg(long)]
    enable_prompt_tokens_details: bool,
    #[arg(long)]
    shutdown_timeout: Option<u64>,
    /// Milliseconds before it answers at all.
    #[arg(long, default_value_t = 0)]
    sim_start_delay: u64,
    /// Ends with this status instead of starting.
    #[arg(long)]
    sim_exit: Option<u8>,
    /// Ends with status 1 so many milliseconds after its start.
    #[arg(long)]
    sim_crash_after: Option<u64>,
    /// Never answers a chat.
    #[arg(long)]
    sim_hang: bool,
    /// Never becomes healthy.
    #[arg(long)]
    sim_unhealthy: bool,
    /// Answers every chat with an internal error.
    #[arg(long)]
    sim_fail: bool,
    /// A folder in which a file named as the member says what is wrong with that one now: `hang`, `fail`,
    /// `unhealthy`.
    #[arg(long)]
    sim_trouble: Option<PathBuf>,
    /// Milliseconds a token.
    #[arg(long, default_value_t = 1)]
    sim_token_delay: u64,
    /// What each token is.
    #[arg(long, default_value = "hello ")]
    sim_token: String,
}

impl Serve {
    /// Whether a trouble was wished for, on the command line or since.
    fn has(&self, trouble: &str) -> bool {
        let flag = match trouble {
            "hang" => self.sim_hang,
            "fail" => self.sim_fail,
            _ => self.sim_unhealthy,
        };
        let now = || {
            let file = self.sim_trouble.as_ref()?.join(std::env::var_os("DENV_MEMBER")?);
            std::fs::read_to_string(file).ok()
        };
        flag || now().is_some_and(|text| text.trim() == trouble)
    }
}

struct Engine {
    flags: Serve,
    /// What it has read for others, and where they come for it.
    kept: Arc<Kept>,
    gives_at: Option<SocketAddr>,
    cache: PrefixCache,
    running: AtomicU64,
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    started: Instant,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Command::Serve(flags) = Arguments::parse().command;
    // The log is what tests count starts by.
    say(&format!("simulated engine starting, pid {}", std::process::id()));
    if let Some(status) = flags.sim_exit {
        say("ValueError: the simulated engine was told not to start");
        return ExitCode::from(status);
    }
    if let Some(milliseconds) = flags.sim_crash_after {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            say("RuntimeError: the simulated engine was told to crash");
            std::process::exit(1);
        });
    }
    tokio::time::sleep(Duration::from_millis(flags.sim_start_delay)).await;
    let hand_overs = match gather(&flags).await {
        Ok(listeners) => listeners,
        Err(error) => {
            say(&format!("RuntimeError: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let (Some(host), Some(port)) = (&flags.host, flags.port) else {
        say("the leader is gone");
        return ExitCode::FAILURE;
    };
    let address: SocketAddr = match format!("{host}:{port}").parse() {
        Ok(address) => address,
        Err(error) => {
            say(&format!("bad address: {error}"));
            return ExitCode::from(2);
        }
    };
    let listener = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            say(&format!("OSError: [Errno 98] cannot listen on {address}: {error}"));
            return ExitCode::from(1);
        }
    };
    let kept: Arc<Kept> = Arc::default();
    let gives_at = hand_overs.first().and_then(|listener| listener.local_addr().ok());
    for listener in hand_overs {
        tokio::spawn(Arc::clone(&kept).give(listener));
    }
    let engine = Arc::new(Engine {
        flags,
        kept,
        gives_at,
        cache: PrefixCache::default(),
        running: AtomicU64::new(0),
        prompt_tokens: AtomicU64::new(0),
        generated_tokens: AtomicU64::new(0),
        started: Instant::now(),
    });
    let router = Router::new()
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        .route("/metrics", get(metrics))
        .with_state(engine);
    let served = axum::serve(listener, router).await;
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Takes part in its pool. A process without a server returns when its leader is gone; one that serves when all ranks are
/// there, with what others come to.
async fn gather(flags: &Serve) -> std::io::Result<Vec<tokio::net::TcpListener>> {
    let group = Group::of(flags);
    let (first, count) = group.as_ref().map_or((0, flags.data_parallel_size.unwrap_or(1)), Group::ranks);
    let handed_over =
        if flags.kv_transfer_config.is_some() { group::hand_over(first, count).await? } else { Vec::new() };
    match group {
        None => {}
        Some(group) if flags.headless => group.follow().await?,
        Some(group) => {
            for other in group.lead().await? {
                tokio::spawn(async {
                    group::gone(other).await;
                    say("EngineDeadError: ranks on another host are gone");
                    std::process::exit(1);
                });
            }
        }
    }
    Ok(handed_over)
}

#[allow(clippy::print_stdout, reason = "an engine's log is its output")]
fn say(text: &str) {
    println!("{text}");
}

async fn health(State(engine): State<Arc<Engine>>) -> StatusCode {
    if engine.flags.has("unhealthy") { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

async fn models(State(engine): State<Arc<Engine>>) -> Json<Value> {
    let id = &engine.flags.served_model_name;
    Json(
        json!({ "object": "list", "data": [{ "id": id, "object": "model", "created": 0, "owned_by": "vllm" }] }),
    )
}

async fn metrics(State(engine): State<Arc<Engine>>) -> String {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    format!(
        "vllm:num_requests_running{{engine=\"0\"}} {}\nvllm:prompt_tokens_total{{engine=\"0\"}} {}\n\
         vllm:generation_tokens_total{{engine=\"0\"}} {}\n",
        count(&engine.running),
        count(&engine.prompt_tokens),
        count(&engine.generated_tokens)
    )
}

async fn chat(State(engine): State<Arc<Engine>>, Json(request): Json<Value>) -> Response {
    let model = request["model"].as_str().unwrap_or_default();
    if model != engine.flags.served_model_name {
        let message = format!("The model `{model}` does not exist.");
        let error = json!({ "error": { "message": message, "type": "NotFoundError", "param": "model", "code": 404 } });
        return (StatusCode::NOT_FOUND, Json(error)).into_response();
    }
    if engine.flags.has("fail") {
        let error =
            json!({ "error": { "message": "EngineCore died", "type": "InternalServerError", "code": 500 } });
        return (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response();
    }
    if engine.flags.has("hang") {
        std::future::pending::<()>().await;
    }
    let transfer = &request["kv_transfer_params"];
    if transfer["do_remote_prefill"] == true {
        if let Err(error) = hand_over::fetch(transfer).await {
            let message = format!("KV load failed: {error}");
            let error =
                json!({ "error": { "message": message, "type": "InternalServerError", "code": 500 } });
            return (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response();
        }
        say("took over what another member has read");
    }
    let text = request["messages"].to_string();
    let (prompt, cached) = ((text.len() as u64).div_ceil(4), engine.cache.read(&text));
    let tokens = request["max_tokens"].as_u64().unwrap_or(16);
    engine.running.fetch_add(1, Ordering::Relaxed);
    engine.prompt_tokens.fetch_add(prompt, Ordering::Relaxed);
    engine.generated_tokens.fetch_add(tokens, Ordering::Relaxed);
    let id = engine.started.elapsed().as_nanos();
    let answer = Answer { engine: Arc::clone(&engine), id, prompt, cached, tokens };
    if request["stream"].as_bool() == Some(true) {
        let with_usage = request["stream_options"]["include_usage"].as_bool() == Some(true);
        let events = futures::stream::unfold((answer, 0), move |(answer, number)| async move {
            answer
                .event(number, with_usage)
                .await
                .map(|event| (Ok::<_, Infallible>(event), (answer, number + 1)))
        });
        return Sse::new(events).into_response();
    }
    tokio::time::sleep(answer.token_delay() * u32::try_from(tokens).unwrap_or(u32::MAX)).await;
    let mut whole = answer.whole();
    if let (true, Some(at)) = (transfer["do_remote_decode"] == true, engine.gives_at) {
        whole["kv_transfer_params"] = engine.kept.keep(answer.id.to_string(), at);
    }
    Json(whole).into_response()
}

/// An answer under way; its end, or the client's leaving, is counted.
struct Answer {
    engine: Arc<Engine>,
    id: u128,
    prompt: u64,
    cached: u64,
    tokens: u64,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.engine.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Answer {
    fn token_delay(&self) -> Duration {
        Duration::from_millis(self.engine.flags.sim_token_delay)
    }

    fn usage(&self) -> Value {
        let (prompt, generated) = (self.prompt, self.tokens);
        json!({
            "prompt_tokens": prompt, "total_tokens": prompt + generated, "completion_tokens": generated,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }

    fn whole(&self) -> Value {
        let text = self.engine.flags.sim_token.repeat(usize::try_from(self.tokens).unwrap_or(0));
        json!({
            "id": format!("chatcmpl-{}", self.id), "object": "chat.completion", "created": 0,
            "model": self.engine.flags.served_model_name,
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": "length" }],
            "usage": self.usage(),
        })
    }

    async fn event(&self, number: u64, with_usage: bool) -> Option<Event> {
        let chunk = |choices: Value| {
            json!({
                "id": format!("chatcmpl-{}", self.id), "object": "chat.completion.chunk", "created": 0,
                "model": self.engine.flags.served_model_name, "choices": choices,
            })
        };
        let data = if number < self.tokens {
            tokio::time::sleep(self.token_delay()).await;
            let reason = if number + 1 == self.tokens { json!("length") } else { Value::Null };
            let delta = json!({ "content": self.engine.flags.sim_token });
            chunk(json!([{ "index": 0, "delta": delta, "finish_reason": reason }])).to_string()
        } else if number == self.tokens && with_usage {
            let mut last = chunk(json!([]));
            last["usage"] = self.usage();
            last.to_string()
        } else if number <= self.tokens + u64::from(with_usage) {
            "[DONE]".to_owned()
        } else {
            return None;
        };
        Some(Event::default().data(data))
    }
}
