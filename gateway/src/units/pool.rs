use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;

/// The idle connections to one unit. The last used is used first, so that in quiet times the others age and go.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    sender: SendRequest<Full<Bytes>>,
    since: Instant,
}

/// Less than servers keep idle connections, so that it is this side that closes.
const KEEP_IDLE: Duration = Duration::from_secs(30);

impl Pool {
    pub(super) fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.lock();
        while let Some(last) = idle.pop() {
            if last.since.elapsed() > KEEP_IDLE {
                // What lies below is older still.
                idle.clear();
            } else if !last.sender.is_closed() {
                return Some(last.sender);
            }
        }
        None
    }

    pub(super) fn put(&self, sender: SendRequest<Full<Bytes>>) {
        if !sender.is_closed() {
            self.lock().push(Idle { sender, since: Instant::now() });
        }
    }

    pub(super) fn prune(&self) {
        self.lock().retain(|idle| idle.since.elapsed() <= KEEP_IDLE && !idle.sender.is_closed());
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
