//! What one unit did with the requests it was given, counted. Counting allocates nothing and locks nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use denv_schema::measures::{BUCKETS, Histogram, UnitMeasures, bucket_of};
use denv_schema::wire::{Generation, TokenCounts};

/// The counters of a unit in one generation.
#[derive(Default)]
pub(crate) struct Tally {
    requests: AtomicU64,
    failed: AtomicU64,
    unreached: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    output_tokens: AtomicU64,
    first_token: Buckets,
    inter_token: Buckets,
    whole: Buckets,
}

struct Buckets([AtomicU64; BUCKETS]);

impl Default for Buckets {
    fn default() -> Self {
        Buckets(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Buckets {
    fn add(&self, length: Duration, count: u64) {
        self.0[usize::from(bucket_of(length))].fetch_add(count, Ordering::Relaxed);
    }

    fn read(&self) -> Histogram {
        Histogram::of_counts(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

impl Tally {
    /// The answer came to its end, so long after the request was given to the unit.
    pub(crate) fn completed(&self, after: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.whole.add(after, 1);
    }

    /// The engine answered with an error of its own, or broke its answer off.
    pub(crate) fn failed(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The engine never saw the request, or its host is gone.
    pub(crate) fn unreached(&self) {
        self.unreached.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn first_token(&self, after: Duration) {
        self.first_token.add(after, 1);
    }

    /// So many tokens came in so long a time.
    pub(crate) fn more_tokens(&self, count: u64, within: Duration) {
        self.inter_token.add(within / u32::try_from(count).unwrap_or(u32::MAX).max(1), count);
    }

    pub(crate) fn metered(&self, tokens: TokenCounts) {
        self.prompt_tokens.fetch_add(tokens.input + tokens.cached_input, Ordering::Relaxed);
        self.cached_tokens.fetch_add(tokens.cached_input, Ordering::Relaxed);
        self.output_tokens.fetch_add(tokens.output, Ordering::Relaxed);
    }

    /// Everything so far. Counters that move meanwhile may be one ahead of others.
    pub(crate) fn read(&self, generation: Generation) -> UnitMeasures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UnitMeasures {
            generation,
            requests: count(&self.requests),
            failed: count(&self.failed),
            unreached: count(&self.unreached),
            prompt_tokens: count(&self.prompt_tokens),
            cached_tokens: count(&self.cached_tokens),
            output_tokens: count(&self.output_tokens),
            first_token: self.first_token.read(),
            inter_token: self.inter_token.read(),
            whole: self.whole.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_did_nothing_reads_as_nothing() {
        assert_eq!(Tally::default().read(0), UnitMeasures::default());
    }

    #[test]
    fn what_is_counted_is_read() {
        let tally = Tally::default();
        tally.first_token(Duration::from_millis(300));
        tally.more_tokens(4, Duration::from_millis(40));
        tally.metered(TokenCounts { input: 10, cached_input: 30, output: 5, reasoning: 2 });
        tally.completed(Duration::from_secs(1));
        tally.failed();
        tally.unreached();
        let read = tally.read(3);
        assert_eq!((read.generation, read.requests, read.failed, read.unreached), (3, 2, 1, 1));
        assert_eq!((read.prompt_tokens, read.cached_tokens, read.output_tokens), (40, 30, 5));
        assert_eq!((read.first_token.count(), read.inter_token.count(), read.whole.count()), (1, 4, 1));
        assert!(read.inter_token.percentile(99) < Some(Duration::from_millis(13)));
    }
}
