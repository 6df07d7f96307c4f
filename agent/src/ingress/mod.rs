//! The way from gateways to this host's engines: mutual TLS, HTTP/1.1, `/members/MEMBER/…` becomes `/…` of that
//! member's engine on loopback. It refuses to know what requests ask and who the customers are, and it never picks
//! a member.

mod forward;
mod pool;

use std::sync::Arc;
use std::time::Duration;

use denv_link::listen::{Connection, accept};
use denv_link::{Identity, Peer, Role};
use denv_schema::Name;
use futures::StreamExt as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::runner::View;
use forward::Forwarder;

/// The ALPN name of what the ingress speaks.
pub const HTTP1: &[u8] = b"http/1.1";
/// On an answer of the ingress itself: the request has reached no engine, so it may be sent elsewhere.
pub const NOT_BEGUN: &str = "x-denv-not-begun";

/// How long requests in flight may finish when denvd ends.
const GRACE: Duration = Duration::from_secs(10);

/// Serves gateways and the control plane of `tenant` until `end` is done; requests in flight then have a moment to
/// finish.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    tenant: Name,
    view: watch::Receiver<View>,
    end: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    tokio::select! {
        () = take_connections(listener, tls, tenant, view, &graceful) => {}
        () = end => {}
    }
    // Nobody listens any more.
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

async fn take_connections(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    tenant: Name,
    view: watch::Receiver<View>,
    graceful: &GracefulShutdown,
) {
    let forwarder = Arc::new(Forwarder::new(view));
    let mut connections = std::pin::pin!(accept(listener, tls));
    while let Some(Ok(connection)) = connections.next().await {
        let allowed = may_enter(&connection.peer, &tenant);
        let serving = graceful.watch(serve_connection(connection, allowed, forwarder.clone()));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                // Clients leave in the middle of answers every day.
                tracing::debug!(%error, "a connection to the ingress ended early");
            }
        });
    }
}

fn serve_connection(
    connection: Connection,
    allowed: bool,
    forwarder: Arc<Forwarder>,
) -> http1::Connection<
    TokioIo<Connection>,
    impl hyper::service::HttpService<
        hyper::body::Incoming,
        ResBody = forward::Reply,
        Error = std::convert::Infallible,
        Future: Send,
    >,
> {
    let service = service_fn(move |request| {
        let forwarder = forwarder.clone();
        async move {
            let response = if allowed { forwarder.forward(request).await } else { forward::forbidden() };
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        // It would also close connections that gateways keep for their next request; peers here are known.
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(connection), service)
}

/// Gateways, and the control plane for its own checks. TLS has verified the certificate.
fn may_enter(peer: &Peer, tenant: &Name) -> bool {
    let allowed = match &peer.identity {
        Some(Identity { tenant: theirs, role: Role::Gateway | Role::ControlPlane, .. }) => theirs == tenant,
        Some(Identity { role: Role::Host, .. }) | None => false,
    };
    if !allowed {
        let who = peer.identity.as_ref().map(ToString::to_string);
        tracing::warn!(address = %peer.address, who, "refused a peer of the ingress: it is no gateway");
    }
    allowed
}
