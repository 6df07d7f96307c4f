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

impl UnitMeasures {
    /// What happened since `earlier` was read. Counters that began anew count from zero.
    pub fn since(&self, earlier: &UnitMeasures) -> UnitMeasures {
        let same = (self.generation == earlier.generation).then(|| self.more_than(earlier)).flatten();
        same.unwrap_or_else(|| self.clone())
    }

    fn more_than(&self, earlier: &UnitMeasures) -> Option<UnitMeasures> {
        Some(UnitMeasures {
            generation: self.generation,
            requests: self.requests.checked_sub(earlier.requests)?,
            failed: self.failed.checked_sub(earlier.failed)?,
            unreached: self.unreached.checked_sub(earlier.unreached)?,
            prompt_tokens: self.prompt_tokens.checked_sub(earlier.prompt_tokens)?,
            cached_tokens: self.cached_tokens.checked_sub(earlier.cached_tokens)?,
            output_tokens: self.output_tokens.checked_sub(earlier.output_tokens)?,
            first_token: self.first_token.since(&earlier.first_token)?,
            inter_token: self.inter_token.since(&earlier.inter_token)?,
            whole: self.whole.since(&earlier.whole)?,
        })
    }
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

impl Lookups {
    /// What was looked up since `earlier` was read. Counters that began anew count from zero.
    pub fn since(self, earlier: Lookups) -> Lookups {
        let more = || {
            let asked = self.asked.checked_sub(earlier.asked)?;
            Some(Lookups { asked, found: self.found.checked_sub(earlier.found)? })
        };
        more().unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_anew_counts_from_zero() {
        let read = |generation, requests, failed| UnitMeasures {
            generation,
            requests,
            failed,
            ..UnitMeasures::default()
        };
        assert_eq!(read(1, 9, 2).since(&read(1, 4, 2)), read(1, 5, 0));
        assert_eq!(read(1, 9, 1).since(&read(1, 4, 2)), read(1, 9, 1), "a gateway that was restarted");
        assert_eq!(read(2, 9, 2).since(&read(1, 4, 2)), read(2, 9, 2), "a unit that was restarted");
        let lookups = |asked, found| Lookups { asked, found };
        assert_eq!(lookups(9, 3).since(lookups(5, 1)), lookups(4, 2));
        assert_eq!(lookups(2, 1).since(lookups(5, 1)), lookups(2, 1));
    }
}
