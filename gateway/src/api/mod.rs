//! The HTTP that clients see: paths, request ids, errors in OpenAI's shape.
//!
//! It owns the listening socket and its connections. It refuses to know how a completion comes about.

mod reply;
mod request_id;

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use crate::proxy::{Answer, Proxy, ProxyError, REQUEST_ID};

use request_id::RequestIds;

/// Serves until `stopped` resolves, then lets requests finish for as long as [`FINISH`].
pub(crate) async fn serve(listener: TcpListener, proxy: Arc<Proxy>, stopped: impl Future<Output = ()>) {
    let api = Arc::new(Api { proxy, request_ids: RequestIds::new() });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let builder = Arc::new(builder);
    let graceful = GracefulShutdown::new();
    let mut stopped = pin!(stopped);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stopped => break,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, api.clone(), builder.clone(), graceful.watcher()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: wait for some to be free instead of spinning.
                tracing::warn!(error = &error as &dyn Error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(FINISH, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests that did not finish in {} s are cut off", FINISH.as_secs());
    }
}

/// How long requests may take to finish when the gateway is told to stop.
const FINISH: Duration = Duration::from_secs(30);
/// How long a request's head may take to arrive, and so how long an idle connection is kept: more than clients
/// keep theirs, so that it is they who close.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

struct Api {
    proxy: Arc<Proxy>,
    request_ids: RequestIds,
}

async fn serve_connection(
    stream: TcpStream,
    api: Arc<Api>,
    builder: Arc<auto::Builder<TokioExecutor>>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Tokens are sent as they come.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, Infallible>(api.answer(request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        // A client that leaves is an error here, and no news.
        tracing::debug!(error = &*error as &dyn Error, "a client's connection ended");
    }
}

impl Api {
    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let id = self.request_ids.of(request.headers());
        let answered = match (request.uri().path(), request.method()) {
            ("/v1/chat/completions", &Method::POST) => self.proxy.chat(request, &id).await,
            ("/v1/models", &Method::GET) => self.models(&request),
            ("/health", &Method::GET) => Ok(self.health()),
            ("/metrics", &Method::GET) => Ok(self.metrics()),
            ("/v1/chat/completions" | "/v1/models" | "/health" | "/metrics", _) => {
                Ok(reply::failure(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods"))
            }
            _ => Ok(reply::failure(StatusCode::NOT_FOUND, "there is nothing at this path")),
        };
        let mut response = answered.unwrap_or_else(|error| reply::error(&error));
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }

    fn models(&self, request: &Request<Incoming>) -> Result<Response<Answer>, ProxyError> {
        let grant = self.proxy.grant(request.headers())?;
        Ok(reply::models(grant.models().map(|model| model.name.as_str())))
    }

    fn health(&self) -> Response<Answer> {
        if self.proxy.admission.digest().is_none() {
            reply::failure(StatusCode::SERVICE_UNAVAILABLE, "the gateway has no configuration yet")
        } else {
            reply::json(StatusCode::OK, &serde_json::json!({"status": "ok"}))
        }
    }

    fn metrics(&self) -> Response<Answer> {
        let report = self.proxy.report();
        let meter = &self.proxy.meter;
        let blocks = self.proxy.units.remembered_blocks();
        reply::metrics(self.proxy.metrics.encode(&report, meter.pending(), meter.is_writable(), blocks))
    }
}
