//! HTTP/JSON for people and tools: views of the world as it was last planned, and the few things a person may ask.
//!
//! It shows and passes on; it decides nothing.

mod handlers;
mod metrics;
mod openapi;
mod server;
mod sources;
mod views;
mod watch_stream;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Request, State as Extracted};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use denv_link::Authority;
use denv_schema::api::{ErrorBody, ErrorMessage};
use denv_schema::{Catalog, Digest};
use subtle::ConstantTimeEq as _;
use tokio::sync::{mpsc, watch};

use crate::orchestrator::{Ask, State};
use crate::source::SourceHandle;
use crate::store::{Store, StoreError};

pub use server::{ListenError, Listener, TlsFiles};

/// What the API shows and whom it asks.
pub struct Api {
    pub store: Store,
    pub state: watch::Receiver<Arc<State>>,
    pub sources: Vec<SourceHandle>,
    /// What is in force, planned or not.
    pub catalog: watch::Receiver<Option<Arc<Catalog>>>,
    pub asks: mpsc::Sender<Ask>,
    pub authority: Arc<Authority>,
    /// Of the one token that may ask anything.
    pub admin_token: Digest,
}

/// All routes. Health, metrics and the API's own description need no token: they show nothing of the tenant's. Hooks carry
/// their forge's signature instead.
pub fn router(api: Arc<Api>) -> Router {
    let protected = Router::new()
        .route("/v1/sources", get(sources::sources))
        .route("/v1/sources/{name}/refresh", post(sources::refresh))
        .route("/v1/sources/{name}/approve", post(sources::approve))
        .route("/v1/stages", get(handlers::stages))
        .route("/v1/stages/{environment}/{stage}", get(handlers::stage))
        .route("/v1/stages/{environment}/{stage}/rollout", post(handlers::rollout))
        .route("/v1/deployments", get(handlers::deployments))
        .route("/v1/units", get(handlers::units))
        .route("/v1/hosts", get(handlers::hosts))
        .route("/v1/gateways", get(handlers::gateways))
        .route("/v1/manifests/{kind}", get(handlers::manifests))
        .route("/v1/events", get(handlers::events))
        .route("/v1/watch", get(watch_stream::watch))
        .route("/v1/usage", get(handlers::usage))
        .route("/v1/tokens", post(handlers::grant_token))
        .layer(from_fn_with_state(Arc::clone(&api), authorize));
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

async fn authorize(Extracted(api): Extracted<Arc<Api>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer "));
    let granted = token.is_some_and(|token| {
        let given = Digest::of_bytes(token.trim().as_bytes());
        given.as_bytes().ct_eq(api.admin_token.as_bytes()).into()
    });
    if granted {
        return next.run(request).await;
    }
    ApiError {
        status: StatusCode::UNAUTHORIZED,
        message: "this needs a token".to_owned(),
        hint: Some(
            "send `Authorization: Bearer …` with the token from the reconciler's `admin-token` file"
                .to_owned(),
        ),
    }
    .into_response()
}

/// A refusal, as the client sees it.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    hint: Option<String>,
}

impl ApiError {
    fn not_found(message: impl Into<String>) -> Self {
        ApiError { status: StatusCode::NOT_FOUND, message: message.into(), hint: None }
    }

    fn bad_request(message: impl Into<String>) -> Self {
        ApiError { status: StatusCode::BAD_REQUEST, message: message.into(), hint: None }
    }

    fn conflict(message: impl Into<String>) -> Self {
        ApiError { status: StatusCode::CONFLICT, message: message.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn unavailable(message: impl Into<String>) -> Self {
        ApiError { status: StatusCode::SERVICE_UNAVAILABLE, message: message.into(), hint: None }
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
        let body = ErrorBody { error: ErrorMessage { message: self.message, hint: self.hint } };
        (self.status, axum::Json(body)).into_response()
    }
}
