//! Which unit takes a request: a pure choice.
//!
//! It owns the policy. It refuses to know what a unit is: it sees loads, and answers with an index.

/// One unit as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// It takes no requests now, or was tried already.
    Unavailable,
    /// It works on this many, and would have to read this many blocks of the prompt anew.
    Ready { inflight: u32, to_read: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    Unit(usize),
    /// Every unit that could take it is at its limit.
    Full,
    /// No unit can take it.
    None,
}

/// A request in flight weighs as much as so many blocks to read, some 1,000 tokens. A unit that has a long prompt in its cache is
/// preferred to one that is less busy, the longer the more, and never without bound.
const BLOCKS_OF_A_REQUEST: u64 = 16;

/// The candidate that costs the request least: by what is in flight there, below `limit`, and by what it would have to read.
/// Of equals it is the first from `turn` on, so a caller that counts its turns spreads requests over idle units.
pub fn pick(units: usize, candidate: impl Fn(usize) -> Candidate, limit: u32, turn: usize) -> Pick {
    let (mut best, mut full) = (None, false);
    for step in 0..units {
        let index = (turn % units + step) % units;
        match candidate(index) {
            Candidate::Unavailable => {}
            Candidate::Ready { inflight, .. } if inflight >= limit => full = true,
            Candidate::Ready { inflight, to_read } => {
                let cost = u64::from(inflight) * BLOCKS_OF_A_REQUEST + u64::from(to_read);
                if best.is_none_or(|(_, least)| cost < least) {
                    best = Some((index, cost));
                }
            }
        }
    }
    match (best, full) {
        (Some((index, _)), _) => Pick::Unit(index),
        (None, true) => Pick::Full,
        (None, false) => Pick::None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Candidate::{Ready, Unavailable};
    use super::*;

    /// With nothing to read.
    fn busy(inflight: u32) -> Candidate {
        Ready { inflight, to_read: 0 }
    }

    fn pick_of(candidates: &[Candidate], limit: u32, turn: usize) -> Pick {
        pick(candidates.len(), |index| candidates[index], limit, turn)
    }

    #[test]
    fn the_least_loaded_takes_it_and_ties_rotate() {
        assert_eq!(pick_of(&[busy(3), busy(1), Unavailable], 8, 0), Pick::Unit(1));
        let idle = [busy(0), Unavailable, busy(0)];
        assert_eq!([0, 1, 2, 3].map(|turn| pick_of(&idle, 8, turn)), [0, 2, 2, 0].map(Pick::Unit));
    }

    #[test]
    fn full_and_none_are_told_apart() {
        assert_eq!(pick_of(&[busy(8), Unavailable], 8, 0), Pick::Full);
        assert_eq!(pick_of(&[Unavailable], 8, 0), Pick::None);
        assert_eq!(pick_of(&[], 8, 5), Pick::None);
    }

    #[test]
    fn a_long_prompt_goes_where_it_is_cached_until_that_unit_is_busier_by_more_than_it_spares() {
        let cached = |inflight| Ready { inflight, to_read: 8 };
        let other = |inflight| Ready { inflight, to_read: 200 };
        assert_eq!(pick_of(&[other(0), cached(0)], 99, 0), Pick::Unit(1));
        assert_eq!(pick_of(&[other(0), cached(11)], 99, 0), Pick::Unit(1));
        assert_eq!(pick_of(&[other(0), cached(13)], 99, 0), Pick::Unit(0));
        assert_eq!(pick_of(&[other(0), cached(8)], 8, 0), Pick::Unit(0), "a limit is a limit");
        // What is short anywhere follows the load.
        assert_eq!(pick_of(&[busy(1), Ready { inflight: 0, to_read: 3 }], 99, 0), Pick::Unit(1));
    }

    proptest! {
        #[test]
        fn nothing_unavailable_or_full_is_picked_and_nothing_less_loaded_is_passed_over(
            loads in prop::collection::vec(prop::option::of(0u32..6), 0..8), limit in 1u32..6, turn: usize,
        ) {
            let candidates: Vec<_> =
                loads.iter().map(|load| load.map_or(Unavailable, busy)).collect();
            let least = loads.iter().flatten().filter(|load| **load < limit).min();
            match pick_of(&candidates, limit, turn) {
                Pick::Unit(index) => prop_assert_eq!(loads[index].as_ref(), least),
                Pick::Full => prop_assert!(least.is_none() && loads.iter().flatten().next().is_some()),
                Pick::None => prop_assert!(loads.iter().flatten().next().is_none()),
            }
        }
    }
}
