use std::error::Error;
use std::sync::Arc;

use http::response::Parts;
use http::{HeaderMap, StatusCode};
use hyper::body::Incoming;

use crate::admission::Model;
use crate::kv_index::Prefix;
use crate::metrics::RetryReason;
use crate::request::ChatRequest;
use crate::units::{Connection, Lease, NoUnit, SendError, Unit};

use super::Proxy;
use super::ask::{Ask, AskError, NOT_BEGUN};
use super::body::BodyError;
use super::error::ProxyError;
use super::settlement::Settlement;

/// The tries of one request: which units had it, and whether it may be tried again.
pub(super) struct Attempts<'a> {
    proxy: &'a Proxy,
    model: &'a Model,
    prefix: Prefix,
    tried: Vec<Arc<Unit>>,
    /// Tried on a kept connection that broke, which may say nothing of the unit: it is good for another try if
    /// there is no other.
    doubtful: Option<Arc<Unit>>,
    /// How many units may have begun it.
    begun: u32,
    engine_error: bool,
    /// What is said when no unit is left.
    failure: Option<ProxyError>,
}

/// An engine's answer has begun.
pub(super) struct Begun {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    pub(super) connection: Connection,
    pub(super) lease: Lease,
}

/// How many engines may work on one request, one after the other. It bounds what a request that kills engines can
/// do.
const MAX_BEGUN: u32 = 3;

impl<'a> Attempts<'a> {
    pub(super) fn new(proxy: &'a Proxy, model: &'a Model, prefix: Prefix) -> Self {
        Attempts {
            proxy,
            model,
            prefix,
            tried: Vec::new(),
            doubtful: None,
            begun: 0,
            engine_error: false,
            failure: None,
        }
    }

    /// The next unit that begins an answer.
    pub(super) async fn begin(
        &mut self,
        chat: &ChatRequest,
        headers: &HeaderMap,
        settlement: &mut Settlement,
    ) -> Result<Begun, ProxyError> {
        let mut lease = self.acquire()?;
        loop {
            settlement.on(&lease);
            let silence = self.proxy.engine_silence;
            let ask = Ask { lease: &lease, chat, headers, silence };
            let begun = ask.begin(settlement).await;
            let unit = lease.unit();
            match begun {
                Err(AskError::GivenUp(error)) => {
                    unit.tally().failed();
                    return Err(error);
                }
                Err(AskError::Body(error)) => self.broke_off(&lease, error)?,
                Err(AskError::Send(SendError::Connect(error))) => {
                    note(unit, "cannot be reached", &error);
                    unit.tally().unreached();
                    unit.eject();
                    self.again(unit, RetryReason::NotConnected, ProxyError::NoUnit(NoUnit::NoneReady));
                }
                Err(AskError::Send(SendError::Ended { reused, source })) => {
                    note(unit, "ended before it answered", &source);
                    unit.doubt();
                    if reused {
                        self.doubtful = Some(unit.clone());
                    } else {
                        unit.tally().failed();
                    }
                    self.may_begin_again()?;
                    self.again(unit, RetryReason::EndedEarly, ProxyError::EngineEnded);
                }
                Ok((response, connection)) => {
                    let (head, body) = response.into_parts();
                    if head.headers.contains_key(NOT_BEGUN) {
                        if head.status.is_server_error() {
                            unit.eject();
                        }
                        unit.tally().unreached();
                        self.again(unit, RetryReason::NotBegun, ProxyError::NoUnit(NoUnit::NoneReady));
                    } else if head.status == StatusCode::BAD_GATEWAY {
                        // Engines say no such thing: the ingress does, when its engine ends with a request in work.
                        unit.tally().failed();
                        unit.doubt();
                        self.may_begin_again()?;
                        self.again(unit, RetryReason::EndedEarly, ProxyError::EngineEnded);
                    } else if head.status.is_server_error() {
                        unit.tally().failed();
                        let Some(other) = self.after_engine_error(unit) else {
                            return Ok(Begun { head, body, connection, lease });
                        };
                        lease = other;
                        continue;
                    } else {
                        return Ok(Begun { head, body, connection, lease });
                    }
                }
            }
            // The place on the unit that failed is free before another is taken.
            drop(lease);
            lease = self.acquire()?;
        }
    }

    /// The answer broke off before the client saw any of it.
    pub(super) fn broke_off(&mut self, lease: &Lease, error: BodyError) -> Result<(), ProxyError> {
        match error {
            BodyError::UnitLost(_) => lease.unit().tally().unreached(),
            BodyError::TooLarge | BodyError::Broken(_) | BodyError::Empty | BodyError::NotHandedOver(_) => {
                lease.unit().tally().failed()
            }
        }
        self.ended_early(lease.unit(), &error)
    }

    fn ended_early(&mut self, unit: &Arc<Unit>, error: &(dyn Error + 'static)) -> Result<(), ProxyError> {
        note(unit, "broke its answer off", error);
        unit.doubt();
        self.may_begin_again()?;
        self.again(unit, RetryReason::EndedEarly, ProxyError::EngineEnded);
        Ok(())
    }

    fn acquire(&mut self) -> Result<Lease, ProxyError> {
        let acquire = |tried: &[Arc<Unit>]| {
            let (stage, limit) = (&self.model.stage, self.model.max_inflight_per_unit);
            self.proxy.units.acquire(stage, limit, tried, &self.prefix)
        };
        let acquired = acquire(&self.tried).or_else(|none| {
            let Some(doubtful) = self.doubtful.take() else { return Err(none) };
            self.tried.retain(|unit| !Arc::ptr_eq(unit, &doubtful));
            acquire(&self.tried)
        });
        acquired.map_err(|none| self.failure.take().unwrap_or(ProxyError::NoUnit(none)))
    }

    /// Another unit, once, for an error that the engine itself made. Without another, the error is the answer.
    fn after_engine_error(&mut self, unit: &Arc<Unit>) -> Option<Lease> {
        if std::mem::replace(&mut self.engine_error, true) || self.may_begin_again().is_err() {
            return None;
        }
        self.tried.push(unit.clone());
        let other = self.acquire().ok()?;
        self.proxy.metrics.retried(RetryReason::EngineError);
        self.failure = Some(ProxyError::EngineEnded);
        Some(other)
    }

    fn may_begin_again(&mut self) -> Result<(), ProxyError> {
        self.begun += 1;
        if self.begun < MAX_BEGUN { Ok(()) } else { Err(ProxyError::EngineEnded) }
    }

    fn again(&mut self, unit: &Arc<Unit>, reason: RetryReason, failure: ProxyError) {
        self.tried.push(unit.clone());
        self.proxy.metrics.retried(reason);
        self.failure = Some(failure);
    }
}

fn note(unit: &Unit, what: &str, error: &(dyn Error + 'static)) {
    tracing::warn!(unit = %unit.route.unit, error, "the unit {what}");
}
