//! How many requests a second one core serves: the real binary, pinned to the first core, between a load
//! generator and a backend without delay, both on the second. One KB of prompt, not streaming, keys and metering
//! on. It reports, and never fails: shared machines are no judges.

// A benchmark prints; that is what it is for.
#![allow(clippy::print_stdout, clippy::unwrap_used, dead_code)]

#[path = "../tests/support/control_plane.rs"]
mod control_plane;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use denv_schema::wire::{MemberRoute, Rotation, UnitRoute};
use denv_schema::{Digest, StageId, UnitId};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use control_plane::FakeControlPlane;

const TARGET: f64 = 12_000.0;
const CONNECTIONS: usize = 48;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(5);
const KEY: &str = "sk-denv-benchmark";

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    denv_link::install_tls_provider();
    let state = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");

    pin_to(1);
    let control_plane = FakeControlPlane::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let backend = runtime.block_on(async { TcpListener::bind("127.0.0.1:0").await.unwrap() });
    configure(&control_plane, &backend.local_addr().unwrap().to_string());
    pin_to(0);
    let mut gateway = start_gateway(&control_plane, &listen, state.path());
    pin_to(1);

    runtime.spawn(serve_backend(backend));
    let (idle, mut latencies, elapsed) = runtime.block_on(async {
        wait_until_serving(&listen).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let idle = resident(&gateway);
        load(&listen, WARM_UP).await;
        let begun = Instant::now();
        let cpu = cpu_time(&gateway);
        let latencies = load(&listen, MEASURED).await;
        let elapsed = begun.elapsed();
        let busy = (cpu_time(&gateway) - cpu) / elapsed.as_secs_f64() * 100.0;
        println!("gateway CPU        {busy:>10.0} % of a core");
        (idle, latencies, elapsed)
    });
    latencies.sort_unstable();
    let rate = latencies.len() as f64 / elapsed.as_secs_f64();
    let percentile = |share: f64| f64::from(latencies[(latencies.len() as f64 * share) as usize]) / 1000.0;
    println!("requests/s         {rate:>10.0}");
    println!("latency p50        {:>10.2} ms", percentile(0.50));
    println!("latency p99        {:>10.2} ms", percentile(0.99));
    println!("resident, idle     {:>10.1} MB", idle as f64 / 1024.0);
    println!("resident, after    {:>10.1} MB", resident(&gateway) as f64 / 1024.0);
    println!("records taken      {:>10}", control_plane.heard.records.lock().unwrap().len());
    println!("target {TARGET} requests/s: {}", if rate >= TARGET { "met" } else { "not met" });
    let _ = gateway.kill();
    let _ = gateway.wait();
}

fn configure(control_plane: &FakeControlPlane, ingress: &str) {
    let stage: StageId = "bench/prod".parse().unwrap();
    let config = serde_json::json!({
        "endpoints": {"public": {"models": [{"name": "tiny", "stage": stage}]}},
        "customers": {"bench": {}},
        "keys": {"bench": {"customer": "bench", "hash": Digest::of_bytes(KEY.as_bytes())}},
        "routing": {"bench/prod": {"maxInflightPerUnit": 1024}},
    });
    let unit = |ordinal| {
        let unit = UnitId::new(&stage, ordinal);
        UnitRoute {
            at: MemberRoute {
                host: "host-1".parse().unwrap(),
                ingress: ingress.to_owned(),
                member: denv_schema::MemberId::new(&unit, 0),
                health: "/health".to_owned(),
            },
            prefill: None,
            unit,
            generation: 1,
            stage: stage.clone(),
            release: "r1".parse().unwrap(),
            model: "tiny".to_owned(),
            rotation: Rotation::In,
        }
    };
    control_plane.heard.config.send_replace(Some(serde_json::from_value(config).unwrap()));
    control_plane.heard.units.send_replace(vec![unit(1), unit(2)]);
    control_plane.heard.takes.store(true, Ordering::SeqCst);
}

fn start_gateway(control_plane: &FakeControlPlane, listen: &str, state: &std::path::Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_denv-gateway"))
        .args(["--server", &control_plane.address.to_string(), "--token", &control_plane.token().to_string()])
        .args(["--listen", listen, "--workers", "1", "--insecure-plain-ingress", "--state-dir"])
        .arg(state)
        .env("RUST_LOG", "warn")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What this process starts from now on runs there too.
fn pin_to(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core).unwrap();
    if sched_setaffinity(Pid::from_raw(0), &cores).is_err() {
        println!("cannot pin to core {core}; the figures are of a shared core");
    }
}

async fn wait_until_serving(listen: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Ok(mut stream) = TcpStream::connect(listen).await
            && exchange(&mut stream, &request(), &mut Vec::new()).await.is_ok_and(|status| status == 200)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the gateway does not serve");
}

fn request() -> Vec<u8> {
    let prompt = "the quick brown fox jumps over the lazy dog and ".repeat(22);
    let body = format!(
        r#"{{"model":"tiny","messages":[{{"role":"user","content":"{}"}}],"max_tokens":16,"temperature":0}}"#,
        &prompt[..1024]
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Latencies of all requests in microseconds.
async fn load(listen: &str, duration: Duration) -> Vec<u32> {
    let request: Arc<[u8]> = request().into();
    let deadline = Instant::now() + duration;
    let clients = (0..CONNECTIONS).map(|_| {
        let (request, listen) = (request.clone(), listen.to_owned());
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(listen).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut latencies, mut buffer) = (Vec::with_capacity(1 << 14), Vec::with_capacity(4096));
            while Instant::now() < deadline {
                let begun = Instant::now();
                let status = exchange(&mut stream, &request, &mut buffer).await.unwrap();
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&buffer));
                latencies.push(begun.elapsed().as_micros() as u32);
            }
            latencies
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await.unwrap());
    }
    latencies
}

async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> std::io::Result<u16> {
    stream.write_all(request).await?;
    read_message(stream, buffer).await?;
    Ok(std::str::from_utf8(&buffer[9..12]).unwrap().parse().unwrap())
}

/// Reads one request or response with a `content-length`. False at the end of the stream.
async fn read_message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<bool> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(false);
        }
        let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let length = content_length(&buffer[..head]);
        while buffer.len() < head + 4 + length {
            if stream.read_buf(buffer).await? == 0 {
                return Ok(false);
            }
        }
        return Ok(true);
    }
}

fn content_length(head: &[u8]) -> usize {
    for line in head.split(|byte| *byte == b'\n') {
        if line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:") {
            return std::str::from_utf8(&line[15..]).unwrap().trim().parse().unwrap();
        }
    }
    0
}

async fn serve_backend(listener: TcpListener) {
    let body = r#"{"id":"chatcmpl-9247e9ceee98b377","object":"chat.completion","created":1795952271,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"hello there, this is what a short answer looks like","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0","usage":{"prompt_tokens":225,"total_tokens":241,"completion_tokens":16,"prompt_tokens_details":{"cached_tokens":192}}}"#;
    let answer: Arc<[u8]> = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
    .into();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let answer = answer.clone();
        tokio::spawn(async move {
            let mut buffer = Vec::with_capacity(4096);
            while read_message(&mut stream, &mut buffer).await.unwrap_or(false) {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// In kB.
fn resident(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// In seconds.
fn cpu_time(process: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}
