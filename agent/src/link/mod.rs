//! The host's stream to the control plane: dialled from here, dialled again for ever. Commands come in, reports and
//! answers go out. It refuses to know what commands mean; the runner does.

mod session;

use std::convert::Infallible;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_link::Credentials;
use denv_schema::measures::HostMeasures;
use denv_schema::wire::Inventory;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::prefetch::Prefetch;
use crate::reclaim::Reclaim;
use crate::runner;
pub use session::SessionError;

/// What the link is given.
pub struct Link {
    /// `host:port` of the control plane.
    pub server: String,
    /// The newest certificate; the next dial uses it.
    pub credentials: watch::Receiver<Arc<Credentials>>,
    /// `host:port` where gateways reach this host's ingress.
    pub ingress: String,
    pub inventory: Inventory,
    /// What is wrong with the host itself and does not change.
    pub problems: Vec<String>,
    /// Whether the provider takes the host back.
    pub reclaim: watch::Receiver<Reclaim>,
    pub runner: runner::Handle,
    pub prefetch: Prefetch,
    /// What the engines tell of themselves.
    pub measures: watch::Receiver<HostMeasures>,
}

impl Link {
    /// Keeps the stream up for ever.
    pub async fn run(self) -> Infallible {
        let mut backoff = Backoff::new();
        let mut told = String::new();
        loop {
            let began = Instant::now();
            let error = self.attend().await;
            if began.elapsed() > Backoff::CAP {
                backoff = Backoff::new();
                told.clear();
            }
            let text = denv_schema::diagnostic::chain(&error);
            if text == told {
                tracing::debug!("still not attached to the control plane: {text}");
            } else {
                tracing::warn!(
                    server = self.server,
                    "not attached to the control plane, trying again: {text}"
                );
                told = text;
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// The remedy when nobody can get in with this certificate any more.
    fn expiry(&self) -> Option<Timestamp> {
        let (_, ends) = self.credentials.borrow().validity().ok()?;
        (ends <= Timestamp::now()).then_some(ends)
    }
}

/// Waits that double from try to try, each shortened at random so that many hosts don't come back at once.
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::new()
    }
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(200);
    /// The longest wait. A stream that lasted longer was a good one.
    pub const CAP: Duration = Duration::from_secs(5);

    pub fn new() -> Self {
        Backoff { next: Self::FIRST }
    }

    pub fn wait(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(Self::CAP);
        // Between half of it and all of it.
        let share = RandomState::new().build_hasher().finish() % 1000;
        full / 2 + full / 2 * u32::try_from(share).unwrap_or(0) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_differ() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..50).map(|_| backoff.wait()).collect();
        assert!(waits[0] >= Backoff::FIRST / 2 && waits[0] <= Backoff::FIRST);
        assert!(waits[10..].iter().all(|wait| *wait >= Backoff::CAP / 2 && *wait <= Backoff::CAP));
        assert!(waits[10..].windows(2).any(|pair| pair[0] != pair[1]));
    }
}
