//! What vLLM's NIXL connector does for two pools: one keeps what it has read until the other comes for it.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What is kept for decode members, by the request's id.
#[derive(Default)]
pub(crate) struct Kept(Mutex<HashSet<String>>);

impl Kept {
    /// Gives each to the first that comes for it.
    pub(crate) async fn give(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let kept = Arc::clone(&self);
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut id = String::new();
                stream.read_line(&mut id).await?;
                let known = kept.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id.trim());
                stream.write_all(if known { b"here\n" } else { b"gone\n" }).await
            });
        }
    }

    /// Keeps what was read of a request, and says where it is.
    pub(crate) fn keep(&self, id: String, at: SocketAddr) -> Value {
        let params = json!({
            "do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": std::process::id().to_string(),
            "remote_request_id": id, "remote_host": at.ip().to_string(), "remote_port": at.port(),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        params
    }
}

/// Comes for what another has read.
pub(crate) async fn fetch(params: &Value) -> io::Result<()> {
    let text = |field: &str| params[field].as_str().unwrap_or_default();
    let address = format!("{}:{}", text("remote_host"), params["remote_port"]);
    let mut stream = BufReader::new(TcpStream::connect(&address).await?);
    stream.write_all(format!("{}\n", text("remote_request_id")).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    if answer.trim() == "here" { Ok(()) } else { Err(io::Error::other("nothing is kept there for it")) }
}
