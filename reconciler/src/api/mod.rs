//! HTTP/JSON for people and tools: views of the world as it was last planned, and the few things a person may ask.
//!
//! It shows and passes on; it decides nothing.

mod changes;
mod handlers;
mod metrics;
mod openapi;
mod parity;
mod person;
mod server;
mod sources;
mod tenants;
mod views;
mod watch_stream;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use denv_link::Authority;
use denv_schema::api::{ErrorBody, ErrorMessage};
use denv_schema::{Catalog, Diagnostics, Digest};
use tokio::sync::{mpsc, watch};

use crate::observation::Observation;
use crate::orchestrator::{Ask, State};
use crate::source::SourceHandle;
use crate::store::{Store, StoreError};

pub use server::{ListenError, Listener, TlsFiles};
pub use tenants::routers;

/// What the API shows and whom it asks.
pub struct Api {
    pub store: Store,
    pub state: watch::Receiver<Arc<State>>,
    pub observation: Arc<Observation>,
    pub sources: Vec<SourceHandle>,
    /// What is in force, planned or not.
    pub catalog: watch::Receiver<Option<Arc<Catalog>>>,
    pub asks: mpsc::Sender<Ask>,
    pub authority: Arc<Authority>,
    /// Of the control plane's own token, which may ask anything.
    pub admin_token: Digest,
}

/// More manifests than this are better committed by hand.
const LARGEST_CHANGE: usize = 16 << 20;

/// All routes. Health, metrics and the API's own description need no token: they show nothing of the tenant's. Hooks carry
/// their forge's signature instead.
fn router(api: Arc<Api>) -> Router {
    let protected = Router::new()
        .route("/v1/sources", get(sources::sources))
        .route("/v1/sources/{name}/refresh", post(sources::refresh))
        .route("/v1/sources/{name}/approve", post(sources::approve))
        .route(
            "/v1/sources/{name}/changes",
            post(changes::change).layer(DefaultBodyLimit::max(LARGEST_CHANGE)),
        )
        .route("/v1/snapshot", get(changes::snapshot))
        .route("/v1/stages", get(handlers::stages))
        .route("/v1/stages/{environment}/{stage}", get(handlers::stage))
        .route("/v1/stages/{environment}/{stage}/placement", get(handlers::placement))
        .route("/v1/stages/{environment}/{stage}/rollout", post(handlers::rollout))
        .route("/v1/stages/{environment}/{stage}/scale", post(handlers::scale))
        .route("/v1/stages/{environment}/{stage}/parity", get(parity::report))
        .route("/v1/deployments", get(handlers::deployments))
        .route("/v1/units", get(handlers::units))
        .route("/v1/hosts", get(handlers::hosts))
        .route("/v1/gateways", get(handlers::gateways))
        .route("/v1/manifests/{kind}", get(handlers::manifests))
        .route("/v1/events", get(handlers::events))
        .route("/v1/watch", get(watch_stream::watch))
        .route("/v1/usage", get(handlers::usage))
        .route("/v1/tokens", post(handlers::grant_token))
        .layer(from_fn_with_state(Arc::clone(&api), person::identify));
    Router::new()
        .route(
            "/v1/webhooks/{source}",
            post(webhooks::receive).layer(DefaultBodyLimit::max(webhooks::LARGEST_BODY)),
        )
        .route("/healthz", get(handlers::health))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::openapi))
        .merge(protected)
        .fallback(|| async { ApiError::not_found("there is nothing at this address; see /openapi.json") })
        .with_state(api)
}

/// A refusal, as the client sees it.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    hint: Option<String>,
    /// What is wrong with the manifests that came with the request.
    diagnostics: Diagnostics,
}

impl ApiError {
    fn of(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into(), hint: None, diagnostics: Diagnostics::default() }
    }

    fn forbidden(message: impl Into<String>) -> Self {
        ApiError::of(StatusCode::FORBIDDEN, message)
    }

    fn not_found(message: impl Into<String>) -> Self {
        ApiError::of(StatusCode::NOT_FOUND, message)
    }

    fn bad_request(message: impl Into<String>) -> Self {
        ApiError::of(StatusCode::BAD_REQUEST, message)
    }

    fn conflict(message: impl Into<String>) -> Self {
        ApiError::of(StatusCode::CONFLICT, message)
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn unavailable(message: impl Into<String>) -> Self {
        ApiError::of(StatusCode::SERVICE_UNAVAILABLE, message)
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        ApiError::bad_request(rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        ApiError::bad_request(rejection.body_text())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "a request failed on the store");
        ApiError::unavailable(crate::chain(&error))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorMessage { message: self.message, hint: self.hint, diagnostics: self.diagnostics },
        };
        (self.status, axum::Json(body)).into_response()
    }
}
