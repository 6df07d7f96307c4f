use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use denv_schema::wire::MemberRoute;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;

use super::pool::Pool;
use super::transport::{ConnectError, Transport};

/// A member of a unit as it is asked: at its host's ingress, over connections that are kept.
pub(crate) struct Member {
    pub(super) route: MemberRoute,
    /// Its host could not be reached time and again, and what was asked of it may never be answered.
    lost: AtomicBool,
    pool: Pool,
    transport: Arc<Transport>,
    authority: HeaderValue,
    chat: Uri,
    health: Uri,
}

/// A connection to a member, on which an answer comes.
pub(crate) struct Connection {
    member: Arc<Member>,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    pub(super) fn keep(self) {
        self.member.pool.put(self.sender);
    }

    pub(super) async fn get_health(&mut self) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = self.member.health.clone();
        request.headers_mut().insert(header::HOST, self.member.authority.clone());
        self.sender.send_request(request).await
    }
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

impl Member {
    pub(super) fn new(route: MemberRoute, transport: Arc<Transport>) -> Self {
        let uri = |path: &str| {
            // Ids are names, dots and digits by construction; a foreign one reaches nothing.
            Uri::try_from(format!("/members/{}{path}", route.member)).unwrap_or_default()
        };
        Member {
            lost: AtomicBool::new(false),
            pool: Pool::default(),
            transport,
            authority: HeaderValue::try_from(&route.ingress)
                .unwrap_or_else(|_| HeaderValue::from_static("ingress")),
            chat: uri("/v1/chat/completions"),
            health: uri(&route.health),
            route,
        }
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    pub(super) fn found(&self) {
        self.lost.store(false, Ordering::SeqCst);
    }

    /// Nothing that it has not said yet is worth waiting for.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// A connection that nobody used yet, so that it proves the member can be reached now.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Connection, ConnectError> {
        let sender = self.transport.connect(&self.route).await?;
        Ok(Connection { member: self.clone(), sender })
    }

    /// A connection that waits for the next request.
    pub(super) fn kept(self: &Arc<Self>) -> Option<Connection> {
        self.pool.take().map(|sender| Connection { member: self.clone(), sender })
    }

    pub(super) fn prune(&self) {
        self.pool.prune();
    }

    pub(super) fn forget_connections(&self) {
        self.pool.clear();
    }

    /// Sends a chat completions request, on a kept connection if there is a live one. `Ok` means that an answer
    /// has begun.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Connection), SendError> {
        headers.insert(header::HOST, self.authority.clone());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.chat.clone();
        *request.headers_mut() = headers;
        while let Some(mut sender) = self.pool.take() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Connection { member: self.clone(), sender })),
                Err(mut error) => match error.take_message() {
                    // It closed under our hands, and not a byte was written.
                    Some(unsent) => request = unsent,
                    None => return Err(SendError::Ended { reused: true, source: error.into_error() }),
                },
            }
        }
        let mut connection = self.connect().await?;
        match connection.sender.send_request(request).await {
            Ok(response) => Ok((response, connection)),
            Err(source) => Err(SendError::Ended { reused: false, source }),
        }
    }
}
