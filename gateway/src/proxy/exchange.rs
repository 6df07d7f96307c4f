use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use denv_schema::wire::RequestOutcome;
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;

use crate::admission::{Grant, Model};
use crate::answer::usage_of;
use crate::metrics::Outcome;
use crate::request::ChatRequest;
use crate::units::{Connection, Lease};

use super::answer::Answer;
use super::attempts::{Attempts, Begun};
use super::body::{BodyError, first_data, read_answer};
use super::error::ProxyError;
use super::patience::heard_from;
use super::settlement::Settlement;
use super::stream::AnswerStream;
use super::{Proxy, REQUEST_ID};

/// An admitted request.
pub(super) struct Exchange<'a> {
    pub(super) proxy: &'a Arc<Proxy>,
    pub(super) arrived: Instant,
    pub(super) headers: HeaderMap,
    pub(super) chat: ChatRequest,
    pub(super) model: Arc<Model>,
}

/// An answer that can be passed on.
enum Passable {
    Whole(Parts, Bytes),
    Stream { head: Parts, first: Bytes, body: Incoming, connection: Connection, lease: Lease },
}

impl Exchange<'_> {
    pub(super) async fn answer(
        &self,
        grant: Arc<Grant>,
        id: &HeaderValue,
    ) -> Result<Response<Answer>, ProxyError> {
        let id = String::from_utf8_lossy(id.as_bytes()).into_owned();
        let estimate = self.chat.estimated_input();
        let mut settlement = Settlement::open(self.proxy.clone(), grant, self.model.clone(), id, estimate);
        match self.attempt(&mut settlement).await {
            Ok(Passable::Whole(head, body)) => self.whole(settlement, head, body),
            Ok(Passable::Stream { mut head, first, body, connection, lease }) => {
                strip(&mut head.headers);
                // An event may be left out or added.
                head.headers.remove(header::CONTENT_LENGTH);
                let stream =
                    AnswerStream::new(settlement, self.chat.hides_usage(), first, body, connection, lease);
                Ok(Response::from_parts(head, Answer::Stream(Box::new(stream))))
            }
            Err(error) => {
                settlement.void();
                Err(error)
            }
        }
    }

    /// Tries units until one has begun an answer that can be passed on. Until then the client has seen nothing,
    /// so a chat completion, which changes nothing, may be run again.
    async fn attempt(&self, settlement: &mut Settlement) -> Result<Passable, ProxyError> {
        let mut attempts = Attempts::new(self.proxy, &self.model, self.chat.prefix());
        let silence = self.proxy.engine_silence;
        loop {
            let Begun { head, mut body, connection, lease } =
                attempts.begin(&self.chat, &self.headers, settlement).await?;
            let broken = if head.status == StatusCode::OK && is_event_stream(&head.headers) {
                let first = heard_from(connection.member(), silence, first_data(&mut body)).await;
                let first = first.inspect_err(|_| lease.unit().tally().failed())?;
                match first.unwrap_or_else(|lost| Err(lost.into())) {
                    Ok(first) => {
                        self.model.metrics.first_byte(self.arrived.elapsed());
                        return Ok(Passable::Stream { head, first, body, connection, lease });
                    }
                    Err(error) => error,
                }
            } else {
                let whole = heard_from(connection.member(), silence, read_answer(body)).await;
                let whole = whole.inspect_err(|_| lease.unit().tally().failed())?;
                match whole.unwrap_or_else(|lost| Err(lost.into())) {
                    Ok(whole) => {
                        lease.keep(connection);
                        self.model.metrics.first_byte(self.arrived.elapsed());
                        return Ok(Passable::Whole(head, whole));
                    }
                    Err(BodyError::TooLarge) => return Err(ProxyError::AnswerTooLarge),
                    Err(error) => error,
                }
            };
            attempts.broke_off(&lease, broken)?;
        }
    }

    fn whole(
        &self,
        mut settlement: Settlement,
        mut head: Parts,
        body: Bytes,
    ) -> Result<Response<Answer>, ProxyError> {
        strip(&mut head.headers);
        if head.status == StatusCode::OK {
            let usage = usage_of(&body);
            settlement.record(usage, RequestOutcome::Completed)?;
        } else {
            settlement.void();
            let failed = head.status.is_server_error();
            let outcome = if failed { Outcome::EngineFailed } else { Outcome::Refused };
            self.proxy.metrics.ended(Some(&self.model.metrics), outcome, head.status.as_u16());
        }
        Ok(Response::from_parts(head, Answer::Whole(Some(body))))
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    media_type.is_some_and(|value| value.starts_with(b"text/event-stream"))
}

/// Removes what is between this gateway and the engine alone.
fn strip(headers: &mut HeaderMap) {
    headers.remove(header::CONNECTION);
    headers.remove("keep-alive");
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::TRAILER);
    headers.remove(header::SERVER);
    headers.remove(header::DATE);
    headers.remove(REQUEST_ID);
}
