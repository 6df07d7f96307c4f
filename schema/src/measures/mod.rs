//! What gateways and hosts measure of units. Counters only grow, as long as who counts lives; what happened in a
//! stretch of time is the difference of two readings.
//!
//! Measures travel apart from reports: nothing is planned anew because a counter has moved.

mod histogram;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::quantity::Share;
use crate::wire::Generation;
use crate::{MemberId, UnitId};

pub use histogram::{BUCKETS, Histogram, InvalidHistogram, bucket_of};

/// How often gateways and hosts say what they measured.
pub const MEASURE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

/// What a gateway has counted since it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayMeasures {
    /// When the gateway's process began: its counters began at zero then.
    pub begun: Timestamp,
    /// The units that anything has happened to since the last time it was said.
    pub units: BTreeMap<UnitId, UnitMeasures>,
}

/// What one gateway has counted of one unit in one generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UnitMeasures {
    pub generation: Generation,
    /// Requests that the engine answered or failed. What it refused as the client's mistake is not among them.
    pub requests: u64,
    /// Those of them that the engine failed: an error of its own, or an answer that broke off.
    pub failed: u64,
    /// Requests that never reached the engine: its host or the way there is at fault.
    pub unreached: u64,
    pub prompt_tokens: u64,
    /// Those of them that were found in the KV cache.
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// From the request until its first token.
    pub first_token: Histogram,
    /// Between two tokens of an answer.
    pub inter_token: Histogram,
    /// From the request until the end of its answer.
    pub whole: Histogram,
}

/// What a host reads of its engines' own metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostMeasures {
    /// The members whose engines tell something.
    pub members: BTreeMap<MemberId, EngineMeasures>,
}

/// What an engine tells of itself, where it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EngineMeasures {
    pub generation: Generation,
    /// Requests it works on.
    pub running: Option<u32>,
    /// Requests that wait in it.
    pub queued: Option<u32>,
    /// The share of the KV cache that is in use.
    pub cache_usage: Option<Share>,
    /// Tokens that were looked up in the KV cache, and those that were found.
    pub cache_lookups: Option<Lookups>,
}

/// Counters of the KV cache, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lookups {
    pub asked: u64,
    pub found: u64,
}
