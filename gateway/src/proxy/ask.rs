use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use hyper::body::Incoming;
use uuid::Uuid;

use crate::answer::usage_of;
use crate::request::{ChatRequest, Halves};
use crate::units::{Connection, Lease, Member, SendError};

use super::body::{BodyError, read_answer};
use super::error::ProxyError;
use super::patience::heard_from;
use super::settlement::Settlement;

/// One try of a request on one unit, until an answer begins. Dropping it cancels what any member does for it.
pub(super) struct Ask<'a> {
    pub(super) lease: &'a Lease,
    pub(super) chat: &'a ChatRequest,
    pub(super) headers: &'a HeaderMap,
    /// How long an engine may be silent.
    pub(super) silence: Duration,
}

/// An answer that has begun.
pub(super) type Answered = (Response<Incoming>, Connection);

#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Send(#[from] SendError),
    /// What the prefill member says broke off, or is of no use.
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    GivenUp(ProxyError),
}

/// What came of asking the prefill member.
enum Prefilled {
    /// The prompt is read; this is the whole answer.
    Done(Bytes),
    /// It says why it has not, which is the answer: to the client, where it asked for what can't be, or to the next try.
    Refused(Answered),
}

/// By this header an ingress says that the engine never saw the request.
pub(super) const NOT_BEGUN: HeaderName = HeaderName::from_static("x-denv-not-begun");

impl Ask<'_> {
    pub(super) async fn begin(&self, settlement: &mut Settlement) -> Result<Answered, AskError> {
        let model = &self.lease.unit().route.model;
        let Some((member, hand_over)) = self.lease.prefill() else {
            return self.answer(self.chat.body_for(model)).await;
        };
        let room = room();
        match self.chat.halves(model, hand_over, room) {
            Halves::AtOnce(body) => self.at_once(member, body).await,
            Halves::InTurn(first) => {
                let answer = match self.prefill(member, first).await? {
                    Prefilled::Done(answer) => answer,
                    Prefilled::Refused(answered) => return Ok(answered),
                };
                settlement.prefilled(usage_of(&answer));
                // Sent as soon as it is known: connecting takes less than the time that any engine keeps what it has read, so the
                // decode pool never comes for what is gone.
                let second = self.chat.second_half(model, hand_over, room, &answer);
                self.answer(second.map_err(BodyError::NotHandedOver)?).await
            }
        }
    }

    /// No token is written before the prompt has been read, so waiting for both costs nothing; and whichever can't do its part
    /// ends the other's, which would wait for it.
    async fn at_once(&self, prefill: &Arc<Member>, body: Bytes) -> Result<Answered, AskError> {
        let mut reading = pin!(self.prefill(prefill, body.clone()));
        let mut answering = pin!(self.answer(body));
        tokio::select! {
            read = &mut reading => match read? {
                Prefilled::Done(_) => answering.await,
                Prefilled::Refused(answered) => Ok(answered),
            },
            answered = &mut answering => {
                let answered = answered?;
                if answered.0.status() != StatusCode::OK {
                    return Ok(answered);
                }
                match reading.await? {
                    Prefilled::Done(_) => Ok(answered),
                    Prefilled::Refused(refused) => Ok(refused),
                }
            }
        }
    }

    async fn prefill(&self, prefill: &Arc<Member>, body: Bytes) -> Result<Prefilled, AskError> {
        let (response, connection) = self.send(prefill, body).await?;
        if response.status() != StatusCode::OK || response.headers().contains_key(NOT_BEGUN) {
            return Ok(Prefilled::Refused((response, connection)));
        }
        let whole = self.heard_from(prefill, read_answer(response.into_body())).await??;
        self.lease.keep(connection);
        Ok(Prefilled::Done(whole))
    }

    async fn answer(&self, body: Bytes) -> Result<Answered, AskError> {
        self.send(self.lease.front(), body).await
    }

    async fn send(&self, member: &Arc<Member>, body: Bytes) -> Result<Answered, AskError> {
        Ok(self.heard_from(member, member.send(self.headers.clone(), body)).await??)
    }

    async fn heard_from<T>(&self, member: &Member, said: impl Future<Output = T>) -> Result<T, AskError> {
        let heard = heard_from(member, self.silence, said).await.map_err(AskError::GivenUp)?;
        heard.map_err(|lost| AskError::Body(lost.into()))
    }
}

/// A number that no other request has, of 63 bits: engines take it for a signed one.
fn room() -> u64 {
    Uuid::new_v4().as_u64_pair().1 >> 1
}
