use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Connections to engines that wait for their next request, by port.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<u16, Vec<Idle>>>,
}

struct Idle {
    sender: SendRequest<Incoming>,
    since: Instant,
}

/// A connection with a request under way. Given back when its answer was read whole, closed when it is dropped
/// before, which is how an engine learns that its client left.
pub(super) struct Lease {
    pool: Arc<Pool>,
    port: u16,
    pub(super) sender: SendRequest<Incoming>,
    /// It served a request before, so the engine may be closing it.
    pub(super) is_used: bool,
}

/// vLLM, SGLang and llama.cpp close idle connections after 5 s. Using none that is near that age means that a
/// request is rarely sent into a closing one.
const IDLE: Duration = Duration::from_secs(3);
/// Idle connections kept for one engine.
const KEPT: usize = 128;

impl Pool {
    /// A connection that waits, or a new one.
    pub(super) async fn lease(self: &Arc<Self>, port: u16) -> io::Result<Lease> {
        if let Some(sender) = self.take_idle(port) {
            return Ok(Lease { pool: self.clone(), port, sender, is_used: true });
        }
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        // Tokens are small packets, each wanted now.
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, port, "a connection to an engine ended early");
            }
        });
        Ok(Lease { pool: self.clone(), port, sender, is_used: false })
    }

    fn take_idle(&self, port: u16) -> Option<SendRequest<Incoming>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle.get_mut(&port)?;
        let now = Instant::now();
        waiting.retain(|idle| now.duration_since(idle.since) < IDLE && !idle.sender.is_closed());
        // The one used last is the least likely to be closed.
        let at = waiting.iter().rposition(|idle| idle.sender.is_ready());
        let taken = at.map(|at| waiting.remove(at).sender);
        if waiting.is_empty() {
            idle.remove(&port);
        }
        taken
    }
}

impl Lease {
    /// The answer was read whole: the next request may use the connection.
    pub(super) fn give_back(self) {
        if self.sender.is_closed() {
            return;
        }
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !idle.contains_key(&self.port) {
            // A port that is new here, likely: what waits for engines that are gone would wait for ever.
            idle.retain(|_, waiting| waiting.iter().any(|idle| !idle.sender.is_closed()));
        }
        let waiting = idle.entry(self.port).or_default();
        if waiting.len() >= KEPT {
            waiting.remove(0);
        }
        waiting.push(Idle { sender: self.sender, since: Instant::now() });
    }
}
