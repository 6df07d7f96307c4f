//! How many units of each fleet a batch moves.

use std::collections::BTreeMap;

use denv_schema::Name;

/// How many units of each fleet run the new release at the end of a batch of `size`. Places that no unit keeps are
/// filled first: nothing has to leave for them, and while they are empty, perhaps nothing may.
pub(crate) fn batch(
    size: u32,
    units: &BTreeMap<Name, u32>,
    kept: &BTreeMap<Name, u32>,
) -> BTreeMap<Name, u32> {
    let kept = |name: &Name| kept.get(name).copied().unwrap_or(0);
    let open: BTreeMap<Name, u32> =
        units.iter().map(|(name, of)| (name.clone(), of.saturating_sub(kept(name)))).collect();
    let mut given = stripe(size, &open);
    let left = size - given.values().sum::<u32>();
    let taken = units.iter().map(|(name, of)| (name.clone(), of - open[name])).collect();
    for (name, more) in stripe(left, &taken) {
        *given.entry(name).or_default() += more;
    }
    given
}

/// Spreads `size` units of a batch over fleets in proportion to their units, so that no fleet loses more than its
/// share. Each unit goes to the fleet that would be least far along with it; ties go by name.
fn stripe(size: u32, units: &BTreeMap<Name, u32>) -> BTreeMap<Name, u32> {
    let mut given: BTreeMap<Name, u32> = units.keys().map(|name| (name.clone(), 0)).collect();
    for _ in 0..size {
        let next = units
            .iter()
            .filter(|(name, of)| given[*name] < **of)
            // (given + 1) / of, compared without dividing.
            .min_by(|(a, of_a), (b, of_b)| {
                let along = |name: &Name, of_other: u32| u64::from(given[name] + 1) * u64::from(of_other);
                along(a, **of_b).cmp(&along(b, **of_a))
            })
            .map(|(name, _)| name.clone());
        let Some(next) = next else { break };
        *given.entry(next).or_default() += 1;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn units(counts: &[u32]) -> BTreeMap<Name, u32> {
        counts.iter().enumerate().map(|(i, count)| (format!("f{i}").parse().unwrap(), *count)).collect()
    }

    #[test]
    fn batches_are_spread_by_share() {
        assert_eq!(stripe(1, &units(&[2, 4])).into_values().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(stripe(3, &units(&[2, 4])).into_values().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(stripe(9, &units(&[2, 4])).into_values().collect::<Vec<_>>(), [2, 4]);
    }

    #[test]
    fn empty_places_are_filled_first() {
        let batch =
            |size, kept: &[u32]| batch(size, &units(&[2, 2]), &units(kept)).into_values().collect::<Vec<_>>();
        assert_eq!(batch(1, &[2, 2]), [1, 0]);
        assert_eq!(batch(1, &[2, 1]), [0, 1]);
        assert_eq!(batch(2, &[2, 1]), [1, 1]);
        assert_eq!(batch(4, &[2, 1]), [2, 2]);
        assert_eq!(batch(9, &[0, 5]), [2, 2]);
    }

    proptest! {
        #[test]
        fn a_bigger_batch_takes_no_unit_back(counts in prop::collection::vec(0u32..20, 1..5), size in 0u32..60) {
            let units = units(&counts);
            let (small, big) = (stripe(size, &units), stripe(size + 1, &units));
            prop_assert!(small.iter().all(|(name, given)| *given <= big[name] && *given <= units[name]));
            prop_assert_eq!(small.values().sum::<u32>(), size.min(counts.iter().sum()));
        }
    }
}
