//! Which fetched weights make room for others: pure.

use std::collections::BTreeSet;
use std::time::SystemTime;

use denv_schema::Digest;

/// Fetched weights on the disk, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    /// When something was last started from them, or they were last asked for.
    pub(super) used: SystemTime,
}

/// Those to remove so that `missing` bytes more are free: what was used longest ago first, and never what is `in_use`.
/// None if all of it would not be enough; then nothing is to be removed, since it would be for nothing.
pub(super) fn evict(kept: &[Kept], in_use: &BTreeSet<Digest>, missing: u64) -> Option<Vec<Digest>> {
    let mut idle: Vec<&Kept> = kept.iter().filter(|it| !in_use.contains(&it.digest)).collect();
    idle.sort_by_key(|it| (it.used, it.digest));
    let mut freed = 0;
    let mut evicted = Vec::new();
    for weights in idle {
        if freed >= missing {
            break;
        }
        freed += weights.bytes;
        evicted.push(weights.digest);
    }
    (freed >= missing).then_some(evicted)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn kept(bytes: &[u64]) -> Vec<Kept> {
        let one = |(index, bytes): (usize, &u64)| Kept {
            digest: Digest::of_bytes(&[u8::try_from(index).unwrap()]),
            bytes: *bytes,
            used: SystemTime::UNIX_EPOCH + Duration::from_secs(100 - index as u64),
        };
        bytes.iter().enumerate().map(one).collect()
    }

    #[test]
    fn what_was_used_longest_ago_leaves_first_and_no_more_than_needed() {
        let kept = kept(&[10, 20, 30]);
        let digests: Vec<Digest> = kept.iter().map(|it| it.digest).collect();
        assert_eq!(evict(&kept, &BTreeSet::new(), 35), Some(vec![digests[2], digests[1]]));
        assert_eq!(evict(&kept, &BTreeSet::from([digests[2]]), 5), Some(vec![digests[1]]));
        assert_eq!(evict(&kept, &BTreeSet::from([digests[2]]), 31), None);
        assert_eq!(evict(&kept, &BTreeSet::new(), 0), Some(vec![]));
    }

    proptest! {
        #[test]
        fn nothing_in_use_leaves_and_enough_leaves_or_nothing(
            bytes in proptest::collection::vec(0u64..100, 0..8),
            used in proptest::collection::vec(any::<bool>(), 8),
            missing in 0u64..400,
        ) {
            let kept = kept(&bytes);
            let in_use: BTreeSet<Digest> =
                kept.iter().zip(&used).filter(|(_, used)| **used).map(|(it, _)| it.digest).collect();
            let sum = |chosen: &dyn Fn(&Digest) -> bool| -> u64 {
                kept.iter().filter(|it| chosen(&it.digest)).map(|it| it.bytes).sum()
            };
            match evict(&kept, &in_use, missing) {
                Some(evicted) => {
                    prop_assert!(evicted.iter().all(|digest| !in_use.contains(digest)));
                    prop_assert!(sum(&|digest| evicted.contains(digest)) >= missing);
                }
                None => prop_assert!(sum(&|digest| !in_use.contains(digest)) < missing),
            }
        }
    }
}
