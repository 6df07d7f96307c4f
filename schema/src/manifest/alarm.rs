use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::quantity::{Period, Share};

/// What must not happen while a release rolls out: exactly one of `above`, `below`, `risesBy` and `fallsBy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AlarmSpec {
    /// What is measured.
    pub metric: Metric,
    /// Which percentile of it, of metrics that are lengths of time. Without it: 99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub percentile: Option<u8>,
    /// It fires above this: a length of time (`2s`), a share (`1%`) or a number, as the metric has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Threshold>,
    /// It fires below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<Threshold>,
    /// It fires where the new release's is higher than the old one's by more than this share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rises_by: Option<Share>,
    /// It fires where the new release's is lower than the old one's by more than this share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub falls_by: Option<Share>,
    /// The time that is looked back over.
    #[serde(default = "default_window")]
    pub window: Period,
    /// Fewer samples in the window than this say nothing.
    #[serde(default = "default_min_samples")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_samples: u32,
    /// What happens where there is still too little to say at the end of the bake, and for as long again.
    #[serde(default)]
    pub on_inconclusive: OnInconclusive,
}

fn default_window() -> Period {
    Period::from_secs(300)
}

fn default_min_samples() -> u32 {
    100
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// From the request until its first token.
    TimeToFirstToken,
    /// Between two tokens of an answer.
    InterTokenLatency,
    /// From the request until the end of its answer.
    RequestLatency,
    /// The share of requests that the engine failed.
    ErrorRate,
    /// Requests that wait on a unit.
    QueuedRequests,
    /// The share of prompt tokens that were found in the KV cache.
    CacheHitRate,
    /// The share of the KV cache that is in use.
    CacheUsage,
    /// Output tokens a second, of one unit.
    OutputTokensPerSecond,
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Time,
    Share,
    Number,
}

impl Metric {
    /// What it is measured in.
    pub fn measure(self) -> Measure {
        match self {
            Metric::TimeToFirstToken | Metric::InterTokenLatency | Metric::RequestLatency => Measure::Time,
            Metric::ErrorRate | Metric::CacheHitRate | Metric::CacheUsage => Measure::Share,
            Metric::QueuedRequests | Metric::OutputTokensPerSecond => Measure::Number,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnInconclusive {
    /// It counts as good.
    Pass,
    /// It counts as fired.
    Fail,
    /// The rollout pauses until a person decides.
    #[default]
    Pause,
}

/// A bound of a metric: a length of time, a share, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    Time(Period),
    Share(Share),
    Number(u32),
}

impl Threshold {
    /// What it bounds.
    pub fn measure(self) -> Measure {
        match self {
            Threshold::Time(_) => Measure::Time,
            Threshold::Share(_) => Measure::Share,
            Threshold::Number(_) => Measure::Number,
        }
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Threshold::Time(period) => period.serialize(serializer),
            Threshold::Share(share) => share.serialize(serializer),
            Threshold::Number(number) => serializer.serialize_u32(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Threshold;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time, a share or a number")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Threshold, E> {
                u32::try_from(number).map(Threshold::Number).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Threshold, E> {
                u32::try_from(number).map(Threshold::Number).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Threshold, E> {
                let share = text.parse().map(Threshold::Share);
                share.or_else(|_| text.parse().map(Threshold::Time)).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Threshold {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Threshold".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "maximum": u32::MAX,
            "format": "threshold",
            "pattern": r"^([0-9]+(d|h|m|s|ms))+$|^[0-9]{1,4}(\.[0-9]{1,3})?%$",
            "patternErrorMessage": "a bound is a length of time like `2s`, a share like `1%`, or a number"
        })
    }
}
