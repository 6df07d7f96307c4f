use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Lengths of time, counted in buckets that are the same everywhere, so that histograms of gateways, units and times
/// add up. Four buckets double a length; what is told of a percentile is off by a quarter at most, and by less where many lengths are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u8, u64)>", into = "Vec<(u8, u64)>")]
pub struct Histogram {
    /// Buckets that hold something, ascending, and how much.
    filled: Vec<(u8, u64)>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a histogram's buckets are below {BUCKETS}, ascending, and hold something")]
pub struct InvalidHistogram;

/// From below 128 µs, shorter than any engine takes to a token, until almost nine minutes, longer than people wait.
pub const BUCKETS: usize = 90;
/// The first bucket ends at two to the power of this, in microseconds.
const FIRST_OCTAVE: u32 = 7;
const LAST: u8 = BUCKETS as u8 - 1;

/// The bucket that a length of time is counted in.
pub fn bucket_of(length: Duration) -> u8 {
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let Some(octave) = micros.checked_ilog2().filter(|octave| *octave >= FIRST_OCTAVE) else { return 0 };
    let quarter = (micros >> (octave - 2)) & 3;
    let bucket = 1 + (octave - FIRST_OCTAVE) * 4 + quarter as u32;
    u8::try_from(bucket).unwrap_or(LAST).min(LAST)
}

/// Where a bucket begins, in microseconds.
fn begin(bucket: u8) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(above) => (4 + u64::from(above % 4)) << (u32::from(above / 4) + FIRST_OCTAVE - 2),
    }
}

impl Histogram {
    /// Of counts by bucket.
    pub fn of_counts(counts: impl IntoIterator<Item = u64>) -> Self {
        let filled = (0..=LAST).zip(counts).filter(|(_, count)| *count > 0).collect();
        Histogram { filled }
    }

    pub fn record(&mut self, length: Duration) {
        self.add(&Histogram { filled: vec![(bucket_of(length), 1)] });
    }

    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }

    /// How many lengths are counted in it.
    pub fn count(&self) -> u64 {
        self.filled.iter().map(|(_, count)| count).sum()
    }

    pub fn add(&mut self, other: &Histogram) {
        for (bucket, count) in &other.filled {
            match self.filled.binary_search_by_key(bucket, |(bucket, _)| *bucket) {
                Ok(at) => self.filled[at].1 = self.filled[at].1.saturating_add(*count),
                Err(at) => self.filled.insert(at, (*bucket, *count)),
            }
        }
    }

    /// What was added since `earlier`, of a histogram that only grows; nothing if it has not only grown.
    pub fn since(&self, earlier: &Histogram) -> Option<Histogram> {
        let mut filled = Vec::new();
        let mut before = earlier.filled.iter().peekable();
        for (bucket, count) in &self.filled {
            let old = match before.peek() {
                Some((other, _)) if other < bucket => return None,
                Some((other, old)) if other == bucket => {
                    before.next();
                    *old
                }
                _ => 0,
            };
            match count.checked_sub(old)? {
                0 => {}
                more => filled.push((*bucket, more)),
            }
        }
        before.peek().is_none().then_some(Histogram { filled })
    }

    /// The length that this percentage of all are not longer than. Within a bucket lengths are taken to lie evenly.
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let total = self.count();
        let rank = (total * u64::from(percent.min(100))).div_ceil(100).max(1);
        let mut below = 0;
        for (bucket, count) in &self.filled {
            if below + count < rank {
                below += count;
                continue;
            }
            let from = begin(*bucket);
            if *bucket == LAST {
                return Some(Duration::from_micros(from));
            }
            let width = begin(bucket + 1) - from;
            let inside = u128::from(rank - below) * u128::from(width) / u128::from(*count);
            return Some(Duration::from_micros(from + u64::try_from(inside).unwrap_or(width)));
        }
        None
    }
}

impl TryFrom<Vec<(u8, u64)>> for Histogram {
    type Error = InvalidHistogram;
    fn try_from(filled: Vec<(u8, u64)>) -> Result<Self, InvalidHistogram> {
        let is_ascending = filled.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let is_known = filled.iter().all(|(bucket, count)| *bucket <= LAST && *count > 0);
        if is_ascending && is_known { Ok(Histogram { filled }) } else { Err(InvalidHistogram) }
    }
}

impl From<Histogram> for Vec<(u8, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.filled
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(millis: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        millis.iter().for_each(|length| histogram.record(Duration::from_millis(*length)));
        histogram
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..=LAST {
            assert_eq!(bucket_of(Duration::from_micros(begin(bucket))), bucket);
            if bucket > 0 {
                assert_eq!(bucket_of(Duration::from_micros(begin(bucket) - 1)), bucket - 1);
            }
        }
        assert_eq!(bucket_of(Duration::MAX), LAST);
        assert!(begin(1) == 128 && begin(LAST) > 8 * 60 * 1_000_000);
    }

    #[test]
    fn a_histogram_that_did_not_only_grow_has_no_difference() {
        let (one, two) = (of(&[1]), of(&[1, 20, 20]));
        assert_eq!(two.since(&one), Some(of(&[20, 20])));
        assert_eq!(one.since(&two), None);
        assert_eq!(of(&[20]).since(&one), None);
        assert_eq!(Histogram::default().percentile(99), None);
    }

    #[test]
    fn what_arrives_is_looked_at() {
        for bad in ["[[90,1]]", "[[3,1],[2,1]]", "[[3,0]]", "[[3,1],[3,1]]"] {
            assert!(serde_json::from_str::<Histogram>(bad).is_err(), "{bad}");
        }
        let histogram = of(&[1, 1, 50]);
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    }

    proptest! {
        #[test]
        fn percentiles_are_near(lengths in prop::collection::vec(1u64..400_000, 1..200), percent in 1u8..=100) {
            let mut sorted = lengths.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() * usize::from(percent)).div_ceil(100).max(1);
            let exact = sorted[rank - 1] as f64;
            let told = of(&lengths).percentile(percent).unwrap().as_secs_f64() * 1000.0;
            prop_assert!((told - exact).abs() <= exact * 0.25 + 1e-9, "{told} for {exact}");
        }

        #[test]
        fn sums_part_again(one in prop::collection::vec(1u64..9999, 0..50), two in prop::collection::vec(1u64..9999, 0..50)) {
            let mut sum = of(&one);
            sum.add(&of(&two));
            prop_assert_eq!(sum.count(), (one.len() + two.len()) as u64);
            prop_assert_eq!(sum.since(&of(&one)), Some(of(&two)));
        }
    }
}
