//! Whether an alarm fires, by what was measured in its window.

use std::time::Duration;

use denv_schema::manifest::{AlarmSpec, Measure, Metric, Threshold};
use denv_schema::measures::{EngineMeasures, Histogram, Lookups, UnitMeasures};
use denv_schema::quantity::{Period, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// What some units did in a stretch of time, added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    pub requests: u64,
    pub failed: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// The time that each unit was measured for, added up.
    pub unit_time: Duration,
    pub first_token: Histogram,
    pub inter_token: Histogram,
    pub whole: Histogram,
    /// As engines count them, which is more than gateways are told by some.
    pub lookups: Lookups,
    pub queued: Readings,
    pub cache_usage: Readings,
}

/// A gauge, read now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    pub count: u64,
    pub sum: f64,
}

/// What an alarm says now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// `fail`: the alarm fires.
    pub outcome: Outcome,
    /// With figures, for people.
    pub reason: String,
    /// How many requests, tokens or readings it is drawn from.
    pub samples: u64,
}

impl Measured {
    /// Adds what a gateway counted of a unit meanwhile.
    pub fn add_unit(&mut self, counted: &UnitMeasures) {
        self.requests += counted.requests;
        self.failed += counted.failed;
        self.prompt_tokens += counted.prompt_tokens;
        self.cached_tokens += counted.cached_tokens;
        self.output_tokens += counted.output_tokens;
        self.first_token.add(&counted.first_token);
        self.inter_token.add(&counted.inter_token);
        self.whole.add(&counted.whole);
    }

    /// Adds one reading of what an engine tells.
    pub fn add_engine(&mut self, engine: &EngineMeasures) {
        if let Some(queued) = engine.queued {
            self.queued.add(f64::from(queued));
        }
        if let Some(usage) = engine.cache_usage {
            self.cache_usage.add(usage.ratio());
        }
    }

    /// Adds what was measured of other units, or in another stretch of time.
    pub fn add(&mut self, other: &Measured) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        self.unit_time += other.unit_time;
        self.first_token.add(&other.first_token);
        self.inter_token.add(&other.inter_token);
        self.whole.add(&other.whole);
        self.lookups.asked += other.lookups.asked;
        self.lookups.found += other.lookups.found;
        self.queued.add_all(other.queued);
        self.cache_usage.add_all(other.cache_usage);
    }

    /// How much was measured of a metric, and what it is: in seconds, as a part of one, or a number.
    fn of(&self, metric: Metric, percentile: u8) -> (u64, Option<f64>) {
        let length = |histogram: &Histogram| {
            (histogram.count(), histogram.percentile(percentile).map(|it| it.as_secs_f64()))
        };
        let part = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        match metric {
            Metric::TimeToFirstToken => length(&self.first_token),
            Metric::InterTokenLatency => length(&self.inter_token),
            Metric::RequestLatency => length(&self.whole),
            Metric::ErrorRate => (self.requests, part(self.failed, self.requests)),
            Metric::CacheHitRate if self.lookups.asked > 0 => {
                (self.requests, part(self.lookups.found, self.lookups.asked))
            }
            Metric::CacheHitRate => (self.requests, part(self.cached_tokens, self.prompt_tokens)),
            Metric::QueuedRequests => (self.queued.count, self.queued.mean()),
            Metric::CacheUsage => (self.cache_usage.count, self.cache_usage.mean()),
            Metric::OutputTokensPerSecond => {
                let seconds = self.unit_time.as_secs_f64();
                (self.requests, (seconds > 0.0).then(|| self.output_tokens as f64 / seconds))
            }
        }
    }
}

impl Readings {
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
    }

    fn add_all(&mut self, other: Readings) {
        self.count += other.count;
        self.sum += other.sum;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Judges what the units of the release in question did in the alarm's window. `old` is what the units of the release
/// before did in it, if there are any: a bound on how the one differs from the other needs it.
pub fn evaluate(spec: &AlarmSpec, new: &Measured, old: Option<&Measured>) -> Reading {
    let percentile = spec.percentile.unwrap_or(99);
    let (samples, value) = new.of(spec.metric, percentile);
    let inconclusive = |reason: String| Reading { outcome: Outcome::Inconclusive, reason, samples };
    let what = name(spec);
    let (Some(value), true) = (value, samples >= u64::from(spec.min_samples)) else {
        let (unit, needed, window) = (sampled(spec.metric, samples), spec.min_samples, spec.window);
        return inconclusive(format!("{what}: {samples} {unit} in {window}, and {needed} are needed"));
    };
    let measured = written(spec.metric, value);
    let over = format!("over {samples} {} in {}", sampled(spec.metric, samples), spec.window);
    let judged = |fires: bool, reason: String| {
        let outcome = if fires { Outcome::Fail } else { Outcome::Pass };
        Reading { outcome, reason, samples }
    };
    if let Some(bound) = spec.above {
        let fires = value > plain(bound);
        let than = if fires { "above" } else { "not above" };
        return judged(fires, format!("{what} is {measured} {over}, {than} {}", bound_words(bound)));
    }
    if let Some(bound) = spec.below {
        let fires = value < plain(bound);
        let than = if fires { "below" } else { "not below" };
        return judged(fires, format!("{what} is {measured} {over}, {than} {}", bound_words(bound)));
    }
    let Some(old) = old else {
        return inconclusive(format!(
            "{what} is {measured} {over}; no unit of another release serves beside"
        ));
    };
    let (old_samples, old_value) = old.of(spec.metric, percentile);
    let (Some(old_value), true) = (old_value, old_samples >= u64::from(spec.min_samples)) else {
        let (unit, needed, window) = (sampled(spec.metric, old_samples), spec.min_samples, spec.window);
        return inconclusive(format!(
            "{what} is {measured} {over}; of the release before there are {old_samples} {unit} in {window}, and \
             {needed} are needed"
        ));
    };
    let beside =
        format!("{what} is {measured} {over}, the release before's is {}", written(spec.metric, old_value));
    match (spec.rises_by, spec.falls_by) {
        (Some(share), _) => {
            let fires = value > old_value * (1.0 + share.ratio());
            judged(fires, format!("{beside}; it may rise by {share}"))
        }
        (None, Some(share)) => {
            let fires = value < old_value * (1.0 - share.ratio());
            judged(fires, format!("{beside}; it may fall by {share}"))
        }
        (None, None) => judged(false, beside),
    }
}

/// What an alarm looks at, in words.
pub fn name(spec: &AlarmSpec) -> String {
    let what = match spec.metric {
        Metric::TimeToFirstToken => "time to first token",
        Metric::InterTokenLatency => "time between tokens",
        Metric::RequestLatency => "time of a request",
        Metric::ErrorRate => "share of failed requests",
        Metric::QueuedRequests => "requests that wait on a unit",
        Metric::CacheHitRate => "share of cached prompt tokens",
        Metric::CacheUsage => "share of the KV cache in use",
        Metric::OutputTokensPerSecond => "output tokens a second",
    };
    match spec.metric.measure() {
        Measure::Time => format!("{what} (p{})", spec.percentile.unwrap_or(99)),
        Measure::Share | Measure::Number => what.to_owned(),
    }
}

fn sampled(metric: Metric, count: u64) -> &'static str {
    match (metric, count) {
        (Metric::QueuedRequests | Metric::CacheUsage, 1) => "reading",
        (Metric::QueuedRequests | Metric::CacheUsage, _) => "readings",
        (Metric::InterTokenLatency, 1) => "token",
        (Metric::InterTokenLatency, _) => "tokens",
        (
            Metric::TimeToFirstToken
            | Metric::RequestLatency
            | Metric::ErrorRate
            | Metric::CacheHitRate
            | Metric::OutputTokensPerSecond,
            count,
        ) => {
            if count == 1 {
                "request"
            } else {
                "requests"
            }
        }
    }
}

fn plain(bound: Threshold) -> f64 {
    match bound {
        Threshold::Time(period) => period.get().as_secs_f64(),
        Threshold::Share(share) => share.ratio(),
        Threshold::Number(number) => f64::from(number),
    }
}

fn bound_words(bound: Threshold) -> String {
    match bound {
        Threshold::Time(period) => period.to_string(),
        Threshold::Share(share) => share.to_string(),
        Threshold::Number(number) => number.to_string(),
    }
}

fn written(metric: Metric, value: f64) -> String {
    match metric.measure() {
        Measure::Time if value < 0.01 => format!("{:.1}ms", value * 1000.0),
        Measure::Time if value < 1.0 => format!("{:.0}ms", value * 1000.0),
        Measure::Time if value < 60.0 => format!("{value:.2}s"),
        Measure::Time => Period::from_secs(value.round() as u64).to_string(),
        Measure::Share => {
            Share::from_ratio(value).map_or_else(|| format!("{value:.3}"), |share| share.to_string())
        }
        Measure::Number if value < 10.0 => format!("{value:.1}"),
        Measure::Number => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(text: &str) -> AlarmSpec {
        serde_json::from_str(text).unwrap()
    }

    fn lengths(millis: u64, count: u64) -> Measured {
        let mut measured =
            Measured { requests: count, unit_time: Duration::from_secs(300), ..Measured::default() };
        (0..count).for_each(|_| measured.first_token.record(Duration::from_millis(millis)));
        measured
    }

    fn failing(failed: u64, requests: u64) -> Measured {
        Measured { requests, failed, ..Measured::default() }
    }

    #[track_caller]
    fn says(reading: &Reading, outcome: Outcome, reason: &str) {
        assert_eq!((reading.outcome, reading.reason.as_str()), (outcome, reason));
    }

    #[test]
    fn a_bound_is_passed_or_not() {
        let alarm = spec(r#"{"metric": "time-to-first-token", "above": "2s", "minSamples": 10}"#);
        says(
            &evaluate(&alarm, &lengths(1000, 12), None),
            Outcome::Pass,
            "time to first token (p99) is 1.05s over 12 requests in 5m, not above 2s",
        );
        says(
            &evaluate(&alarm, &lengths(4000, 12), None),
            Outcome::Fail,
            "time to first token (p99) is 4.19s over 12 requests in 5m, above 2s",
        );
        let errors = spec(r#"{"metric": "error-rate", "above": "1%", "minSamples": 10}"#);
        says(
            &evaluate(&errors, &failing(3, 120), None),
            Outcome::Fail,
            "share of failed requests is 2.5% over 120 requests in 5m, above 1%",
        );
    }

    #[test]
    fn too_little_says_nothing() {
        let alarm = spec(r#"{"metric": "error-rate", "above": "1%"}"#);
        says(
            &evaluate(&alarm, &failing(1, 1), None),
            Outcome::Inconclusive,
            "share of failed requests: 1 request in 5m, and 100 are needed",
        );
        // Requests without a prompt that was counted.
        let hits = spec(r#"{"metric": "cache-hit-rate", "below": "10%", "minSamples": 1}"#);
        assert_eq!(evaluate(&hits, &failing(0, 10), None).outcome, Outcome::Inconclusive);
    }

    #[test]
    fn releases_are_compared_only_where_both_served() {
        let alarm = spec(r#"{"metric": "error-rate", "risesBy": "50%", "minSamples": 10}"#);
        let new = failing(2, 100);
        assert_eq!(evaluate(&alarm, &new, None).outcome, Outcome::Inconclusive);
        says(
            &evaluate(&alarm, &new, Some(&failing(0, 3))),
            Outcome::Inconclusive,
            "share of failed requests is 2% over 100 requests in 5m; of the release before there are 3 requests in \
             5m, and 10 are needed",
        );
        says(
            &evaluate(&alarm, &new, Some(&failing(1, 100))),
            Outcome::Fail,
            "share of failed requests is 2% over 100 requests in 5m, the release before's is 1%; it may rise by 50%",
        );
        assert_eq!(evaluate(&alarm, &new, Some(&failing(2, 100))).outcome, Outcome::Pass);
        let falls = spec(r#"{"metric": "cache-hit-rate", "fallsBy": "20%", "minSamples": 1}"#);
        let hits = |cached_tokens| Measured {
            requests: 9,
            prompt_tokens: 1000,
            cached_tokens,
            ..Measured::default()
        };
        assert_eq!(evaluate(&falls, &hits(500), Some(&hits(600))).outcome, Outcome::Pass);
        assert_eq!(evaluate(&falls, &hits(400), Some(&hits(600))).outcome, Outcome::Fail);
    }

    #[test]
    fn gauges_are_read_and_averaged() {
        let alarm = spec(r#"{"metric": "queued-requests", "above": 5, "minSamples": 2}"#);
        let mut measured = Measured::default();
        let queued = |queued| EngineMeasures { queued: Some(queued), ..EngineMeasures::default() };
        measured.add_engine(&queued(4));
        assert_eq!(evaluate(&alarm, &measured, None).outcome, Outcome::Inconclusive);
        measured.add_engine(&queued(9));
        // An engine that does not tell is no reading.
        measured.add_engine(&EngineMeasures::default());
        says(
            &evaluate(&alarm, &measured, None),
            Outcome::Fail,
            "requests that wait on a unit is 6.5 over 2 readings in 5m, above 5",
        );
    }

    proptest! {
        #[test]
        fn what_is_worse_never_passes_where_what_is_better_fails(
            failed in 0u64..100, more in 0u64..100, bound in 0u32..100
        ) {
            let alarm = spec(&format!(r#"{{"metric": "error-rate", "above": "{bound}%", "minSamples": 1}}"#));
            let (better, worse) = (failing(failed, 200), failing(failed + more, 200));
            let of = |measured| evaluate(&alarm, measured, None).outcome;
            prop_assert!(of(&better) == Outcome::Pass || of(&worse) == Outcome::Fail);
        }
    }
}
