use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use denv_schema::wire::MemberState;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::watch;

use super::NOT_BEGUN;
use super::pool::{Lease, Pool};
use crate::runner::View;

/// Passes requests on to engines, bodies as they come in both directions.
pub(super) struct Forwarder {
    view: watch::Receiver<View>,
    pool: Arc<Pool>,
}

/// An engine's answer, or the ingress's own.
pub(super) type Reply = Either<Forwarded, Full<Bytes>>;

/// An engine's body as it comes. When it was read whole, its connection serves the next request.
pub(super) struct Forwarded {
    body: Incoming,
    lease: Option<Lease>,
}

/// Headers of one connection, not of the request. `expect` is answered by each hop for itself.
const OF_THE_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
];

impl Forwarder {
    pub(super) fn new(view: watch::Receiver<View>) -> Self {
        Forwarder { view, pool: Arc::default() }
    }

    pub(super) async fn forward(&self, request: Request<Incoming>) -> Response<Reply> {
        let (port, request) = match self.aim(request) {
            Ok(aimed) => aimed,
            Err(refusal) => return *refusal,
        };
        let mut unsent = request;
        loop {
            let mut lease = match self.pool.lease(port).await {
                Ok(lease) => lease,
                Err(error) => {
                    return not_begun(
                        StatusCode::BAD_GATEWAY,
                        &format!("cannot connect to the engine: {error}"),
                    );
                }
            };
            match lease.sender.try_send_request(unsent).await {
                Ok(response) => return passed_on(response, lease),
                Err(mut failed) => match failed.take_message() {
                    // The engine closed the connection while it was idle: nothing was sent.
                    Some(request) if lease.is_used => unsent = request,
                    Some(_) => {
                        let text = format!("the engine took no request: {}", failed.error());
                        return not_begun(StatusCode::BAD_GATEWAY, &text);
                    }
                    None => {
                        let text = format!("the engine ended before it answered: {}", failed.error());
                        return own(StatusCode::BAD_GATEWAY, "unit_failed", &text);
                    }
                },
            }
        }
    }

    /// The request as the engine gets it, and the engine's port.
    fn aim(&self, mut request: Request<Incoming>) -> Result<(u16, Request<Incoming>), Box<Response<Reply>>> {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let Some((member, rest)) = path.strip_prefix("/members/").and_then(|path| path.split_once('/'))
        else {
            let text = "there is nothing here; ask for /members/MEMBER/…";
            return Err(Box::new(own(StatusCode::NOT_FOUND, "not_found", text)));
        };
        let port = self
            .port(member)
            .map_err(|reason| Box::new(not_begun(StatusCode::SERVICE_UNAVAILABLE, &reason)))?;
        let target = PathAndQuery::try_from(format!("/{rest}")).expect("the end of a path is a path");
        *request.uri_mut() = Uri::from(target);
        let headers = request.headers_mut();
        remove_hop_headers(headers);
        let host =
            HeaderValue::try_from(format!("127.0.0.1:{port}")).expect("an address is a header's value");
        headers.insert(header::HOST, host);
        Ok((port, request))
    }

    fn port(&self, member: &str) -> Result<u16, String> {
        let view = self.view.borrow();
        let Some(shown) = view.members.get(&denv_schema::MemberId::from(member)) else {
            return Err(format!("there is no member `{member}` on this host"));
        };
        match (shown.report.state, shown.port) {
            (MemberState::Healthy | MemberState::Unhealthy, Some(port)) => Ok(port),
            (state, _) => {
                Err(format!("the member `{member}` takes no requests: it is {state:?}").to_lowercase())
            }
        }
    }
}

/// For peers who are let in by TLS and by nothing else.
pub(super) fn forbidden() -> Response<Reply> {
    own(
        StatusCode::FORBIDDEN,
        "forbidden",
        "only this tenant's gateways and control plane may ask this host's engines",
    )
}

fn passed_on(response: Response<Incoming>, lease: Lease) -> Response<Reply> {
    let (mut parts, body) = response.into_parts();
    remove_hop_headers(&mut parts.headers);
    Response::from_parts(parts, Either::Left(Forwarded { body, lease: Some(lease) }))
}

fn remove_hop_headers(headers: &mut HeaderMap) {
    // The names that `connection` lists are the hop's too.
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_THE_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
}

fn not_begun(status: StatusCode, text: &str) -> Response<Reply> {
    let mut response = own(status, "unit_unavailable", text);
    response.headers_mut().insert(NOT_BEGUN, HeaderValue::from_static("1"));
    response
}

fn own(status: StatusCode, kind: &str, text: &str) -> Response<Reply> {
    let body = serde_json::json!({"error": {"message": text, "type": kind}}).to_string();
    let mut response = Response::new(Either::Right(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Body for Forwarded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.give_back();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Forwarded {
    fn give_back(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        // A body of known length is not polled after its last byte.
        if self.body.is_end_stream() {
            self.give_back();
        }
    }
}
