use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use denv_schema::wire::RequestOutcome;
use hyper::body::{Body, Frame, Incoming};
use tokio::time::{Instant, Sleep};

use crate::answer::Events;
use crate::units::{Connection, Lease};

use super::error::ProxyError;
use super::patience::{LOOK, UnitLost};
use super::settlement::Settlement;

/// A stream on its way from an engine to a client. Whichever end gives up, what was generated is metered.
pub(crate) struct AnswerStream {
    settlement: Settlement,
    events: Events,
    out: VecDeque<Bytes>,
    /// None once the engine's part is over.
    upstream: Option<Upstream>,
    heard: Instant,
    /// How many tokens have come, and when the last did.
    tokens: u64,
    last_token: Option<Instant>,
    silence: Pin<Box<Sleep>>,
}

/// Dropping it cancels what the engine still does.
struct Upstream {
    body: Incoming,
    connection: Connection,
    lease: Lease,
}

/// Instead of the end that did not come. There is no `[DONE]` after it.
const ENGINE_FAILED: &[u8] =
    b"data: {\"error\":{\"message\":\"the engine ended before the answer was complete; \
the request may be sent again\",\"type\":\"engine_failed\",\"param\":null,\"code\":\"retryable\"}}\n\n";

/// How long a stream may pause while its host can't be reached.
const LOST_PATIENCE: Duration = Duration::from_secs(10);

impl AnswerStream {
    pub(super) fn new(
        settlement: Settlement,
        hide_usage: bool,
        first: Bytes,
        body: Incoming,
        connection: Connection,
        lease: Lease,
    ) -> Self {
        let silence = tokio::time::sleep(settlement.proxy().engine_silence.min(LOOK));
        let mut stream = AnswerStream {
            settlement,
            events: Events::new(hide_usage),
            out: VecDeque::new(),
            upstream: Some(Upstream { body, connection, lease }),
            heard: Instant::now(),
            tokens: 0,
            last_token: None,
            silence: Box::pin(silence),
        };
        stream.take(first);
        stream
    }

    fn take(&mut self, data: Bytes) {
        self.heard = Instant::now();
        let fed = self.events.feed(data, &mut self.out);
        self.time();
        if let Err(error) = fed {
            self.fail(&error);
        } else if self.events.done() {
            if self.events.finished() {
                // Before the client gets the event that ends the answer.
                self.settle(RequestOutcome::Completed);
            } else {
                self.fail_quietly();
            }
        }
    }

    /// Measures how long the tokens took that have just come.
    fn time(&mut self) {
        let more = self.events.generated() - self.tokens;
        let Some((unit, since)) = self.settlement.unit().filter(|_| more > 0) else { return };
        match self.last_token {
            None => unit.tally().first_token(self.heard - since),
            Some(last) => unit.tally().more_tokens(more, self.heard - last),
        }
        self.tokens += more;
        self.last_token = Some(self.heard);
    }

    fn end(&mut self) {
        if self.events.end(&mut self.out) {
            self.settle(RequestOutcome::Completed);
            if let Some(Upstream { connection, lease, .. }) = self.upstream.take() {
                lease.keep(connection);
            }
        } else {
            self.fail_quietly();
        }
    }

    fn broke_off(&mut self, error: &hyper::Error) {
        if self.events.end(&mut self.out) {
            self.settle(RequestOutcome::Completed);
            self.upstream = None;
            return;
        }
        if let Some(upstream) = &self.upstream {
            upstream.lease.unit().doubt();
        }
        self.fail(error);
    }

    fn fail(&mut self, error: &(dyn Error + 'static)) {
        if let Some(upstream) = &self.upstream {
            tracing::warn!(unit = %upstream.lease.unit().route.unit, error, "the unit broke its stream off");
        }
        self.fail_quietly();
    }

    fn fail_quietly(&mut self) {
        self.settle(RequestOutcome::EngineFailed);
        self.upstream = None;
        self.out.push_back(Bytes::from_static(ENGINE_FAILED));
    }

    fn settle(&mut self, outcome: RequestOutcome) {
        let estimate = self.events.estimated_usage(self.settlement.estimated_input());
        self.settlement.record_served(self.events.usage(), estimate, outcome);
    }

    /// Why there is no more to wait for: the engine has said nothing for too long, or its host is gone without a
    /// word. The timer is set anew only when it rings.
    fn given_up(&mut self, cx: &mut Context<'_>) -> Option<&'static (dyn Error + 'static)> {
        let patience = self.settlement.proxy().engine_silence;
        while self.silence.as_mut().poll(cx).is_ready() {
            let (now, deadline) = (Instant::now(), self.heard + patience);
            if deadline <= now {
                return Some(&ProxyError::EngineSilent);
            }
            let is_lost =
                self.upstream.as_ref().is_some_and(|upstream| upstream.connection.member().is_lost());
            // New connections may fail while one that stands carries on.
            if is_lost && self.heard + LOST_PATIENCE <= now {
                return Some(&UnitLost);
            }
            self.silence.as_mut().reset(deadline.min(now + LOOK));
        }
        None
    }
}

impl Body for AnswerStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        loop {
            if let Some(bytes) = this.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let Some(upstream) = &mut this.upstream else { return Poll::Ready(None) };
            match Pin::new(&mut upstream.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        this.take(data);
                    }
                }
                Poll::Ready(Some(Err(error))) => this.broke_off(&error),
                Poll::Ready(None) => this.end(),
                Poll::Pending => match this.given_up(cx) {
                    Some(error) => this.fail(error),
                    None => return Poll::Pending,
                },
            }
        }
    }
}

impl Drop for AnswerStream {
    fn drop(&mut self) {
        self.settle(RequestOutcome::ClientLeft);
    }
}
