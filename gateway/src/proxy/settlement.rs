use std::sync::Arc;

use denv_schema::wire::{RequestOutcome, TokenCounts, UsageRecord};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::admission::{Grant, Model};
use crate::kv_index::BLOCK_BYTES;
use crate::metrics::Outcome;
use crate::units::{Lease, Unit};

use super::Proxy;
use super::error::ProxyError;

/// What is owed for one request. It is settled once, however the request ends: a client that leaves drops it, and
/// that settles it too.
pub(super) struct Settlement {
    proxy: Arc<Proxy>,
    grant: Arc<Grant>,
    model: Arc<Model>,
    request: String,
    estimated_input: u64,
    /// The unit that works on it, once there is one, and since when.
    unit: Option<(Arc<Unit>, Instant)>,
    /// How much of the prompt the prefill member had in its cache, where there was one.
    prefill_cached: Option<u64>,
    /// How many blocks of the prompt were expected to be in its unit's cache.
    expected_blocks: u32,
    open: bool,
}

/// As text is, at four bytes a token.
const TOKENS_OF_A_BLOCK: u64 = BLOCK_BYTES as u64 / 4;

impl Settlement {
    pub(super) fn open(
        proxy: Arc<Proxy>,
        grant: Arc<Grant>,
        model: Arc<Model>,
        request: String,
        estimated_input: u64,
    ) -> Self {
        Settlement {
            proxy,
            grant,
            model,
            request,
            estimated_input,
            unit: None,
            prefill_cached: None,
            expected_blocks: 0,
            open: true,
        }
    }

    /// It is given to a unit, or to another one.
    pub(super) fn on(&mut self, lease: &Lease) {
        self.unit = Some((lease.unit().clone(), Instant::now()));
        self.expected_blocks = lease.cached();
        self.prefill_cached = None;
    }

    /// The prefill member counted this. Only it knows what it had in its cache: decode members count what they were handed as
    /// computed, or as cached, as engines see fit.
    pub(super) fn prefilled(&mut self, usage: Option<TokenCounts>) {
        self.prefill_cached = usage.map(|usage| usage.cached_input);
    }

    /// The unit that works on it, and since when.
    pub(super) fn unit(&self) -> Option<(&Unit, Instant)> {
        self.unit.as_ref().map(|(unit, since)| (unit.as_ref(), *since))
    }

    pub(super) fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    pub(super) fn estimated_input(&self) -> u64 {
        self.estimated_input
    }

    /// Nothing was served.
    pub(super) fn void(&mut self) {
        self.open = false;
    }

    /// Records what is about to be served: without the record it must not be. `usage` is what the engine counted.
    pub(super) fn record(
        &mut self,
        usage: Option<TokenCounts>,
        outcome: RequestOutcome,
    ) -> Result<(), ProxyError> {
        self.open = false;
        let usage = usage.map(|usage| self.as_prefilled(usage));
        let tokens = usage.unwrap_or(TokenCounts { input: self.estimated_input, ..TokenCounts::default() });
        let Some(record) = self.usage_record(tokens, outcome) else { return Ok(()) };
        self.proxy.meter.record(&record)?;
        self.count(usage, tokens, outcome);
        Ok(())
    }

    /// Records what was served already. `estimate` stands in for what the engine did not count.
    pub(super) fn record_served(
        &mut self,
        usage: Option<TokenCounts>,
        estimate: TokenCounts,
        outcome: RequestOutcome,
    ) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let usage = usage.map(|usage| self.as_prefilled(usage));
        let tokens = usage.unwrap_or(estimate);
        let Some(record) = self.usage_record(tokens, outcome) else { return };
        self.proxy.meter.record_served(record);
        self.count(usage, tokens, outcome);
    }

    fn as_prefilled(&self, usage: TokenCounts) -> TokenCounts {
        let Some(cached) = self.prefill_cached else { return usage };
        let prompt = usage.input + usage.cached_input;
        let cached_input = cached.min(prompt);
        TokenCounts { input: prompt - cached_input, cached_input, ..usage }
    }

    fn count(&self, usage: Option<TokenCounts>, tokens: TokenCounts, outcome: RequestOutcome) {
        let metrics = &self.model.metrics;
        metrics.metered(tokens);
        if let Some(usage) = usage {
            metrics.expected(u64::from(self.expected_blocks) * TOKENS_OF_A_BLOCK, usage);
        }
        if let Some((unit, since)) = self.unit() {
            unit.tally().metered(tokens);
            match outcome {
                RequestOutcome::Completed => unit.tally().completed(since.elapsed()),
                RequestOutcome::EngineFailed => unit.tally().failed(),
                RequestOutcome::ClientLeft => {}
            }
        }
        match outcome {
            RequestOutcome::Completed => {
                metrics.completed();
                if usage.is_none() {
                    metrics.usage_missing();
                }
            }
            RequestOutcome::ClientLeft => self.proxy.metrics.ended(Some(metrics), Outcome::ClientLeft, 0),
            RequestOutcome::EngineFailed => {
                self.proxy.metrics.ended(Some(metrics), Outcome::EngineFailed, 200)
            }
        }
    }

    fn usage_record(&self, tokens: TokenCounts, outcome: RequestOutcome) -> Option<UsageRecord> {
        let unit = &self.unit.as_ref()?.0.route;
        Some(UsageRecord {
            at: Timestamp::now(),
            request: self.request.clone(),
            customer: self.grant.customer.clone(),
            key: self.grant.key.clone(),
            endpoint: self.model.endpoint.clone(),
            model: self.model.name.clone(),
            unit: unit.unit.clone(),
            release: unit.release.clone(),
            tokens,
            outcome,
        })
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        // The client left while an engine worked on its request; what it had generated was never seen here.
        let estimate = TokenCounts { input: self.estimated_input, ..TokenCounts::default() };
        self.record_served(None, estimate, RequestOutcome::ClientLeft);
    }
}
