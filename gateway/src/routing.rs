//! Which unit takes a request: a pure choice.
//!
//! It owns the policy. It refuses to know what a unit is: it sees loads, and answers with an index.

/// One unit as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// It takes no requests now, or was tried already.
    Unavailable,
    /// It works on this many.
    Inflight(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    Unit(usize),
    /// Every unit that could take it is at its limit.
    Full,
    /// No unit can take it.
    None,
}

/// The candidate with the least in flight, below `limit`. Of equals it is the first from `turn` on, so a caller
/// that counts its turns spreads requests over idle units.
pub fn pick(units: usize, candidate: impl Fn(usize) -> Candidate, limit: u32, turn: usize) -> Pick {
    let (mut best, mut full) = (None, false);
    for step in 0..units {
        let index = (turn % units + step) % units;
        match candidate(index) {
            Candidate::Unavailable => {}
            Candidate::Inflight(inflight) if inflight >= limit => full = true,
            Candidate::Inflight(inflight) => {
                if best.is_none_or(|(_, least)| inflight < least) {
                    best = Some((index, inflight));
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

    use super::Candidate::{Inflight, Unavailable};
    use super::*;

    fn pick_of(candidates: &[Candidate], limit: u32, turn: usize) -> Pick {
        pick(candidates.len(), |index| candidates[index], limit, turn)
    }

    #[test]
    fn the_least_loaded_takes_it_and_ties_rotate() {
        assert_eq!(pick_of(&[Inflight(3), Inflight(1), Unavailable], 8, 0), Pick::Unit(1));
        let idle = [Inflight(0), Unavailable, Inflight(0)];
        assert_eq!([0, 1, 2, 3].map(|turn| pick_of(&idle, 8, turn)), [0, 2, 2, 0].map(Pick::Unit));
    }

    #[test]
    fn full_and_none_are_told_apart() {
        assert_eq!(pick_of(&[Inflight(8), Unavailable], 8, 0), Pick::Full);
        assert_eq!(pick_of(&[Unavailable], 8, 0), Pick::None);
        assert_eq!(pick_of(&[], 8, 5), Pick::None);
    }

    proptest! {
        #[test]
        fn nothing_unavailable_or_full_is_picked_and_nothing_less_loaded_is_passed_over(
            loads in prop::collection::vec(prop::option::of(0u32..6), 0..8), limit in 1u32..6, turn: usize,
        ) {
            let candidates: Vec<_> =
                loads.iter().map(|load| load.map_or(Unavailable, Inflight)).collect();
            let least = loads.iter().flatten().filter(|load| **load < limit).min();
            match pick_of(&candidates, limit, turn) {
                Pick::Unit(index) => prop_assert_eq!(loads[index].as_ref(), least),
                Pick::Full => prop_assert!(least.is_none() && loads.iter().flatten().next().is_some()),
                Pick::None => prop_assert!(loads.iter().flatten().next().is_none()),
            }
        }
    }
}
