//! One request from its arrival to the last byte of its answer: admitted, given to a unit, given to another if
//! nothing had begun to reach the client, and metered however it ends.
//!
//! It owns the order of these. It refuses to know sockets, and how errors look to clients.

mod answer;
mod ask;
mod attempts;
mod body;
mod error;
mod exchange;
mod patience;
mod settlement;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_schema::wire::GatewayReport;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use hyper::body::Incoming;

use crate::admission::{Admission, Grant};
use crate::meter::Meter;
use crate::metrics::{EndpointMetrics, Metrics};
use crate::request::ChatRequest;
use crate::units::Units;

use exchange::Exchange;

pub(crate) use answer::Answer;
pub(crate) use error::ProxyError;

pub(crate) struct Proxy {
    pub(crate) admission: Admission,
    pub(crate) units: Units,
    pub(crate) meter: Arc<Meter>,
    pub(crate) metrics: Arc<Metrics>,
    /// How long an engine may be silent before its answer is given up.
    pub(crate) engine_silence: Duration,
}

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What an engine is told of the client's headers beside the type of the body. Credentials stay here.
const PASSED_ON: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

impl Proxy {
    /// Answers a chat completions request. `id` is its `x-request-id`.
    pub(crate) async fn chat(
        self: &Arc<Self>,
        request: Request<Incoming>,
        id: &HeaderValue,
    ) -> Result<Response<Answer>, ProxyError> {
        let mut endpoint = None;
        let answered = self.admit_and_answer(request, id, &mut endpoint).await;
        if let Err(error) = &answered {
            self.metrics.ended(endpoint.as_ref(), error.outcome(), error.status().as_u16());
        }
        answered
    }

    async fn admit_and_answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        id: &HeaderValue,
        endpoint: &mut Option<EndpointMetrics>,
    ) -> Result<Response<Answer>, ProxyError> {
        let arrived = Instant::now();
        let (head, body) = request.into_parts();
        let grant = self.grant(&head.headers)?;
        if !self.meter.is_writable() {
            return Err(ProxyError::LedgerUnwritable);
        }
        let chat = ChatRequest::parse(body::read_request(body).await?)?;
        let model = grant.model(chat.model())?.clone();
        *endpoint = Some(model.metrics.clone());
        let headers = engine_headers(&head.headers, id);
        Exchange { proxy: self, arrived, headers, chat, model }.answer(grant, id).await
    }

    /// What the control plane is told.
    pub(crate) fn report(&self) -> GatewayReport {
        GatewayReport { config: self.admission.digest(), units: self.units.report() }
    }

    /// What the key of a request is good for.
    pub(crate) fn grant(&self, headers: &HeaderMap) -> Result<Arc<Grant>, ProxyError> {
        let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        Ok(self.admission.grant(authorization)?)
    }
}

fn engine_headers(client: &HeaderMap, id: &HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    let json = || HeaderValue::from_static("application/json");
    headers
        .insert(header::CONTENT_TYPE, client.get(header::CONTENT_TYPE).map_or_else(json, HeaderValue::clone));
    headers.insert(REQUEST_ID, id.clone());
    for name in PASSED_ON {
        if let Some(value) = client.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers
}
