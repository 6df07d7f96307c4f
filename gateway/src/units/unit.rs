use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use denv_schema::wire::{Rotation, UnitReport, UnitRoute};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::sync::Notify;

use super::pool::Pool;
use super::transport::{ConnectError, Transport};
use crate::tally::Tally;

/// A unit at a generation, reached at an ingress.
pub(crate) struct Unit {
    pub(crate) route: UnitRoute,
    /// The control plane wants it in rotation.
    wanted: AtomicBool,
    /// It was reached, and nothing has gone wrong with it since.
    healthy: AtomicBool,
    /// Its host could not be reached time and again, and what was asked of it may never be answered.
    lost: AtomicBool,
    inflight: Arc<AtomicU32>,
    tally: Arc<Tally>,
    pool: Pool,
    transport: Arc<Transport>,
    /// Wakes whoever reports.
    changed: Arc<Notify>,
    /// Wakes the unit's check.
    pub(super) doubted: Notify,
    authority: HeaderValue,
    chat: Uri,
    health: Uri,
}

/// A place on a unit. The unit is one request the fuller until it is dropped.
pub(crate) struct Lease {
    unit: Arc<Unit>,
}

/// An engine's answer, with the connection it comes on.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The engine never saw the request.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended before the answer began. On a reused one this may be no more than the other side's
    /// closing of what was idle, so it tells nothing of the unit.
    #[error("the connection ended before the engine answered")]
    Ended { reused: bool, source: hyper::Error },
}

impl Unit {
    /// `known` is the same unit as it was known before, whose requests in flight and measures count on if it is of the
    /// same generation.
    pub(super) fn new(
        route: UnitRoute,
        transport: Arc<Transport>,
        changed: Arc<Notify>,
        known: Option<&Arc<Unit>>,
    ) -> Self {
        let same_generation = known.filter(|known| known.route.generation == route.generation);
        let uri = |path: &str| {
            // Ids are names, dots and digits by construction; a foreign one reaches nothing.
            Uri::try_from(format!("/members/{}/{path}", route.at.member)).unwrap_or_default()
        };
        // Under another release's name it is the very same engine, and as well as it was.
        let healthy = known.is_some_and(|known| {
            let UnitRoute { release, rotation, .. } = known.route.clone();
            known.route == UnitRoute { release, rotation, ..route.clone() } && known.is_healthy()
        });
        Unit {
            wanted: AtomicBool::new(false),
            healthy: AtomicBool::new(healthy),
            lost: AtomicBool::new(false),
            inflight: same_generation.map(|known| known.inflight.clone()).unwrap_or_default(),
            tally: same_generation.map(|known| known.tally.clone()).unwrap_or_default(),
            pool: Pool::default(),
            transport,
            changed,
            doubted: Notify::new(),
            authority: HeaderValue::try_from(&route.at.ingress)
                .unwrap_or_else(|_| HeaderValue::from_static("ingress")),
            chat: uri("v1/chat/completions"),
            health: uri("health"),
            route,
        }
    }

    /// Whether `route` leads to the very same: the rotation alone may differ.
    pub(super) fn is_reached_by(&self, route: &UnitRoute) -> bool {
        let rotation = self.route.rotation;
        self.route == UnitRoute { rotation, ..route.clone() }
    }

    pub(super) fn want(&self, rotation: Rotation) {
        let wanted = rotation == Rotation::In;
        if self.wanted.swap(wanted, Ordering::SeqCst) != wanted {
            self.doubted.notify_one();
            self.changed.notify_one();
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::SeqCst)
    }

    pub(super) fn in_rotation(&self) -> bool {
        self.is_wanted() && self.is_healthy()
    }

    pub(super) fn inflight(&self) -> u32 {
        self.inflight.load(Ordering::SeqCst)
    }

    pub(super) fn report(&self) -> UnitReport {
        // Rotation is read first: once it is seen as left, no request can slip in behind the count.
        let wanted = self.is_wanted();
        let in_rotation = wanted && self.is_healthy();
        UnitReport {
            generation: self.route.generation,
            rotation: if wanted { Rotation::In } else { Rotation::Out },
            in_rotation,
            inflight: self.inflight(),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// It is gone from the control plane's list.
    pub(super) fn retire(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.pool.clear();
    }

    pub(super) fn passed(&self) {
        self.lost.store(false, Ordering::SeqCst);
        if !self.healthy.swap(true, Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// Takes it out of rotation until it passes a check. For what is the unit's fault, never the client's.
    pub(crate) fn eject(&self) {
        if self.healthy.swap(false, Ordering::SeqCst) {
            self.pool.clear();
            self.doubted.notify_one();
            self.changed.notify_one();
        }
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Nothing that it has not said yet is worth waiting for.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Has it checked now, in rotation as it is. For what may be one request's fate and no more.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// A place, if there is one below `limit` and the unit is still in rotation.
    pub(super) fn reserve(self: &Arc<Self>, limit: u32) -> Option<Lease> {
        let before = self.inflight.fetch_add(1, Ordering::SeqCst);
        let lease = Lease { unit: self.clone() };
        // Counted first and looked second, while a drain leaves rotation first and counts second: one of the two
        // sees the other.
        (before < limit && self.in_rotation()).then_some(lease)
    }

    pub(super) fn prune(&self) {
        self.pool.prune();
    }

    /// A connection that nobody used yet, so that it proves the unit can be reached now.
    pub(super) async fn connect(&self) -> Result<Connection, ConnectError> {
        let sender = self.transport.connect(&self.route).await?;
        Ok(Connection { sender })
    }

    /// A connection that waits for the next request.
    pub(super) fn kept(&self) -> Option<Connection> {
        self.pool.take().map(|sender| Connection { sender })
    }

    pub(super) async fn get_health(&self, connection: &mut Connection) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.health.clone();
        request.headers_mut().insert(header::HOST, self.authority.clone());
        connection.sender.send_request(request).await
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn keep(&self, connection: Connection) {
        if self.is_wanted() {
            self.pool.put(connection.sender);
        }
    }
}

impl Lease {
    pub(crate) fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }

    /// Sends a chat completions request, on a kept connection if there is a live one. `Ok` means that an answer
    /// has begun.
    pub(crate) async fn send(
        &self,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Connection), SendError> {
        headers.insert(header::HOST, self.unit.authority.clone());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.unit.chat.clone();
        *request.headers_mut() = headers;
        while let Some(mut sender) = self.unit.pool.take() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Connection { sender })),
                Err(mut error) => match error.take_message() {
                    // It closed under our hands, and not a byte was written.
                    Some(unsent) => request = unsent,
                    None => return Err(SendError::Ended { reused: true, source: error.into_error() }),
                },
            }
        }
        let mut connection = self.unit.connect().await?;
        match connection.sender.send_request(request).await {
            Ok(response) => Ok((response, connection)),
            Err(source) => Err(SendError::Ended { reused: false, source }),
        }
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn keep(&self, connection: Connection) {
        self.unit.keep(connection);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.unit.inflight.fetch_sub(1, Ordering::SeqCst);
        // The control plane waits for the requests of a unit that left rotation, and for no other's.
        if !self.unit.in_rotation() {
            self.unit.changed.notify_one();
        }
    }
}
