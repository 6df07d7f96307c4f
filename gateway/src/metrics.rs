//! The gateway's own figures, for Prometheus. They name endpoints and units, never customers or keys.
//!
//! It owns the registry. It refuses to know why something is counted.

use std::sync::Arc;
use std::time::Duration;

use denv_schema::wire::{GatewayReport, TokenCounts};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    retries: Family<RetryLabels, Counter>,
    first_byte: Family<EndpointLabels, Histogram>,
    usage_missing: Family<EndpointLabels, Counter>,
    expected_cached: Family<EndpointLabels, Counter>,
    kv_index_blocks: Gauge,
    unit_inflight: Family<UnitLabels, Gauge>,
    unit_in_rotation: Family<UnitLabels, Gauge>,
    ledger_pending: Gauge,
    ledger_writable: Gauge,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    ClientLeft,
    EngineFailed,
    /// Answered with an error before anything was generated.
    Refused,
}

/// Why a request was given to another unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryReason {
    NotConnected,
    NotBegun,
    EndedEarly,
    EngineError,
}

/// The figures of one endpoint, found once.
#[derive(Clone)]
pub(crate) struct EndpointMetrics {
    name: Arc<str>,
    completed: Counter,
    input: Counter,
    cached_input: Counter,
    output: Counter,
    reasoning: Counter,
    expected_cached: Counter,
    first_byte: Histogram,
    usage_missing: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    endpoint: Arc<str>,
    outcome: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TokenLabels {
    endpoint: Arc<str>,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RetryLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct UnitLabels {
    unit: String,
}

/// From a cache hit on a small model to a long prompt behind a queue, in seconds.
const FIRST_BYTE_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

fn first_byte_histogram() -> Histogram {
    Histogram::new(FIRST_BYTE_BUCKETS)
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("denv_gateway"),
            requests: Family::default(),
            tokens: Family::default(),
            retries: Family::default(),
            first_byte: Family::new_with_constructor(first_byte_histogram),
            usage_missing: Family::default(),
            expected_cached: Family::default(),
            kv_index_blocks: Gauge::default(),
            unit_inflight: Family::default(),
            unit_in_rotation: Family::default(),
            ledger_pending: Gauge::default(),
            ledger_writable: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Requests by how they ended", metrics.requests.clone());
        registry.register("tokens", "Tokens metered", metrics.tokens.clone());
        registry.register("retries", "Requests given to a unit again", metrics.retries.clone());
        registry.register(
            "time_to_first_byte_seconds",
            "From a request's arrival to the first byte of the engine's answer",
            metrics.first_byte.clone(),
        );
        registry.register(
            "usage_missing",
            "Answers whose tokens were estimated, for the engine did not count them",
            metrics.usage_missing.clone(),
        );
        registry.register(
            "expected_cached_tokens",
            "Prompt tokens that were sent where they should be cached; cached-input counts those that were",
            metrics.expected_cached.clone(),
        );
        registry.register(
            "kv_index_blocks",
            "Blocks of prompts that are remembered for routing",
            metrics.kv_index_blocks.clone(),
        );
        registry.register("unit_inflight", "Requests a unit works on", metrics.unit_inflight.clone());
        registry.register(
            "unit_in_rotation",
            "Whether a unit takes new requests",
            metrics.unit_in_rotation.clone(),
        );
        registry.register(
            "ledger_records_pending",
            "Usage records that the control plane has not taken yet",
            metrics.ledger_pending.clone(),
        );
        registry.register(
            "ledger_writable",
            "Whether usage can be recorded; without it nothing is served",
            metrics.ledger_writable.clone(),
        );
        metrics
    }

    pub(crate) fn endpoint(&self, name: &str) -> EndpointMetrics {
        let name: Arc<str> = name.into();
        let labels = EndpointLabels { endpoint: name.clone() };
        let tokens =
            |kind| self.tokens.get_or_create_owned(&TokenLabels { endpoint: labels.endpoint.clone(), kind });
        EndpointMetrics {
            completed: self.requests.get_or_create_owned(&RequestLabels {
                endpoint: name,
                outcome: Outcome::Completed.as_str(),
                status: "2xx",
            }),
            input: tokens("input"),
            cached_input: tokens("cached-input"),
            output: tokens("output"),
            reasoning: tokens("reasoning"),
            first_byte: self.first_byte.get_or_create_owned(&labels),
            usage_missing: self.usage_missing.get_or_create_owned(&labels),
            expected_cached: self.expected_cached.get_or_create_owned(&labels),
            name: labels.endpoint,
        }
    }

    /// Counts a request that did not complete; `endpoint` is known once its key and model are.
    pub(crate) fn ended(&self, endpoint: Option<&EndpointMetrics>, outcome: Outcome, status: u16) {
        let endpoint = endpoint.map_or_else(|| Arc::from(""), |endpoint| endpoint.name.clone());
        let status = match status {
            200..300 => "2xx",
            400..500 => "4xx",
            500..600 => "5xx",
            _ => "other",
        };
        self.requests.get_or_create(&RequestLabels { endpoint, outcome: outcome.as_str(), status }).inc();
    }

    pub(crate) fn retried(&self, reason: RetryReason) {
        self.retries.get_or_create(&RetryLabels { reason: reason.as_str() }).inc();
    }

    /// Everything, in Prometheus's text format. Units and the ledger are asked when somebody wants to know.
    pub(crate) fn encode(
        &self,
        report: &GatewayReport,
        ledger_pending: u64,
        ledger_writable: bool,
        kv_index_blocks: usize,
    ) -> String {
        self.unit_inflight.clear();
        self.unit_in_rotation.clear();
        for (unit, report) in &report.units {
            let labels = UnitLabels { unit: unit.to_string() };
            self.unit_inflight.get_or_create(&labels).set(i64::from(report.inflight));
            self.unit_in_rotation.get_or_create(&labels).set(i64::from(report.in_rotation));
        }
        self.ledger_pending.set(i64::try_from(ledger_pending).unwrap_or(i64::MAX));
        self.ledger_writable.set(i64::from(ledger_writable));
        self.kv_index_blocks.set(i64::try_from(kv_index_blocks).unwrap_or(i64::MAX));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a String cannot fail");
        text
    }
}

impl EndpointMetrics {
    pub(crate) fn completed(&self) {
        self.completed.inc();
    }

    pub(crate) fn first_byte(&self, after: Duration) {
        self.first_byte.observe(after.as_secs_f64());
    }

    pub(crate) fn metered(&self, tokens: TokenCounts) {
        self.input.inc_by(tokens.input);
        self.cached_input.inc_by(tokens.cached_input);
        self.output.inc_by(tokens.output);
        self.reasoning.inc_by(tokens.reasoning);
    }

    /// So many tokens of a prompt should have been cached where it was sent: no more than the prompt had, as it was counted.
    pub(crate) fn expected(&self, cached_tokens: u64, counted: TokenCounts) {
        self.expected_cached.inc_by(cached_tokens.min(counted.input + counted.cached_input));
    }

    pub(crate) fn usage_missing(&self) {
        self.usage_missing.inc();
    }
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::ClientLeft => "client-left",
            Outcome::EngineFailed => "engine-failed",
            Outcome::Refused => "refused",
        }
    }
}

impl RetryReason {
    fn as_str(self) -> &'static str {
        match self {
            RetryReason::NotConnected => "not-connected",
            RetryReason::NotBegun => "not-begun",
            RetryReason::EndedEarly => "ended-early",
            RetryReason::EngineError => "engine-error",
        }
    }
}
