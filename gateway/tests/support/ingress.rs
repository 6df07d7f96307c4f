//! A host's ingress with an engine behind it, written by hand so that it can fail at any byte.

// It stands for what is far away; when it breaks, so does the test.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use denv_link::{Authority, Identity, Role, identity};
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// What the engine does with a request.
#[derive(Clone)]
pub(crate) enum Step {
    Write(String),
    /// Goes on when the semaphore gives a permit.
    Await(Arc<Semaphore>),
    /// Goes on when the other side is gone.
    UntilLeft,
    Close,
}

pub(crate) struct FakeIngress {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    /// Its connections, which end with it.
    tasks: Option<JoinSet<()>>,
}

pub(crate) struct Engine {
    pub(crate) healthy: std::sync::atomic::AtomicBool,
    /// Taken first to last; when there is none, the usual answer is given.
    pub(crate) script: Mutex<VecDeque<Vec<Step>>>,
    /// Heads and bodies of the completions asked for.
    pub(crate) requests: Mutex<Vec<(String, String)>>,
    /// How many clients left while it waited for that.
    pub(crate) left: watch::Sender<u32>,
}

pub(crate) const USUAL: &str = concat!(
    r#"{"id":"c","object":"chat.completion","model":"engine-name","choices":[{"index":0,"message":{"role":"assistant","#,
    r#""content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":25,"completion_tokens":6,"#,
    r#""prompt_tokens_details":{"cached_tokens":5}}}"#
);

pub(crate) fn chunk(delta: &str, finish_reason: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish_reason}}}]}}\n\n"
    )
}

pub(crate) fn usage_chunk() -> String {
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":25,\"completion_tokens\":4}}\n\n".to_owned()
}

pub(crate) const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

/// As a piece of a chunked body; an empty one ends it.
pub(crate) fn framed(text: &str) -> Step {
    Step::Write(format!("{:x}\r\n{text}\r\n", text.len()))
}

pub(crate) fn respond(status: &str, headers: &str, body: &str) -> Step {
    Step::Write(format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

impl FakeIngress {
    pub(crate) async fn start(authority: &Authority, host: &str) -> Self {
        FakeIngress::start_at(([127, 0, 0, 1], 0).into(), authority, host).await
    }

    pub(crate) async fn start_at(address: SocketAddr, authority: &Authority, host: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let identity = Identity::new(&identity::tenant(), Role::Host, &host.parse().unwrap());
        let credentials = authority.issue(&identity, Timestamp::now(), Duration::from_secs(3600)).unwrap();
        let tls = Arc::new(credentials.server_config(&[b"http/1.1"], false).unwrap());
        let engine = Arc::new(Engine {
            healthy: true.into(),
            script: Mutex::default(),
            requests: Mutex::default(),
            left: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        let serving = engine.clone();
        tasks.spawn(async move {
            let (_keep, tls) = watch::channel(tls);
            let mut connections = Box::pin(denv_link::listen::accept(listener, tls));
            let mut tasks = JoinSet::new();
            while let Some(Ok(connection)) = connections.next().await {
                assert_eq!(connection.peer.identity.as_ref().map(|peer| peer.role), Some(Role::Gateway));
                tasks.spawn(serving.clone().serve(connection));
            }
        });
        FakeIngress { address, engine, tasks: Some(tasks) }
    }

    /// Gone at once, with all of its connections.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut tasks) = self.tasks.take() {
            tasks.shutdown().await;
        }
    }
}

impl Engine {
    pub(crate) fn then(&self, steps: impl Into<Vec<Step>>) {
        self.script.lock().unwrap().push_back(steps.into());
    }

    pub(crate) fn asked(&self) -> Vec<(String, String)> {
        self.requests.lock().unwrap().clone()
    }

    async fn serve(self: Arc<Self>, mut connection: denv_link::listen::Connection) {
        let mut buffer = Vec::new();
        loop {
            let Some((head, body)) = read_request(&mut connection, &mut buffer).await else { return };
            if head.starts_with("GET ") {
                let healthy = self.healthy.load(std::sync::atomic::Ordering::SeqCst);
                assert!(head.contains("/members/") && head.contains("/health HTTP/1.1"), "{head}");
                let status = if healthy { "200 OK" } else { "503 Service Unavailable" };
                let Step::Write(answer) = respond(status, "", "") else { unreachable!() };
                connection.write_all(answer.as_bytes()).await.unwrap();
                continue;
            }
            assert!(head.starts_with("POST /members/chat.prod.") && head.contains("/v1/chat/completions "));
            self.requests.lock().unwrap().push((head, body));
            let steps = self.script.lock().unwrap().pop_front();
            for step in steps.unwrap_or_else(|| vec![respond("200 OK", "", USUAL)]) {
                match step {
                    Step::Write(text) => {
                        let written = connection.write_all(text.as_bytes()).await;
                        if written.is_err() || connection.flush().await.is_err() {
                            return;
                        }
                    }
                    Step::Await(semaphore) => semaphore.acquire().await.unwrap().forget(),
                    Step::UntilLeft => {
                        while connection.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
                        self.left.send_modify(|left| *left += 1);
                        return;
                    }
                    Step::Close => return,
                }
            }
        }
    }
}

async fn read_request(
    connection: &mut denv_link::listen::Connection,
    buffer: &mut Vec<u8>,
) -> Option<(String, String)> {
    loop {
        if let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8(buffer[..head].to_vec()).unwrap();
            let length = text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            let end = head + 4 + length.unwrap_or(0);
            if buffer.len() >= end {
                let body = String::from_utf8(buffer[head + 4..end].to_vec()).unwrap();
                buffer.drain(..end);
                return Some((text, body));
            }
        }
        if connection.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
