//! How many units of a stage each of its fleets has: base fleets first, burst fleets after, down in reverse.

use std::collections::BTreeMap;

use denv_schema::manifest::{StageFleet, StageSpec};
use denv_schema::{Name, StageId};

use crate::converge::{count, is_lost};
use crate::pass::{Pass, Unit};
use crate::placement::{Release, place};
use crate::records::StageRecord;

/// How many units each fleet of a stage has now. Where one has no room for what it lacks, the others make up for it, for as
/// long as that is so.
pub(crate) fn shares(
    pass: &mut Pass<'_>,
    stage: &StageId,
    spec: &StageSpec,
    record: &StageRecord,
    units: &[Unit<'_>],
    release: &Release<'_>,
) -> BTreeMap<Name, u32> {
    let wanted = record.scale.as_ref().map(|scale| scale.units);
    let mut room = BTreeMap::new();
    let mut shares = counts(&spec.fleets, wanted, &room);
    loop {
        let could_have_more =
            |fleet: &StageFleet| !room.contains_key(&fleet.name) && shares[&fleet.name] < fleet.units.most();
        let mut known_more = false;
        for fleet in &spec.fleets {
            let elsewhere =
                spec.fleets.iter().any(|other| other.name != fleet.name && could_have_more(other));
            // What is leaving gives its place back.
            let here = count(
                units.iter().filter(|unit| unit.record.fleet == fleet.name && !is_lost(pass, spec, unit)),
            );
            let lacks = shares[&fleet.name].saturating_sub(here);
            if lacks == 0 || room.contains_key(&fleet.name) || !elsewhere {
                continue;
            }
            let mut usage = pass.usage().clone();
            let mut fit = 0;
            while fit < lacks
                && let Ok(placement) = place(&usage, stage, &fleet.name, release)
            {
                usage.reserve(stage, release.digest, &placement);
                fit += 1;
            }
            if fit < lacks {
                room.insert(&fleet.name, here + fit);
                known_more = true;
                break;
            }
        }
        if !known_more {
            return shares;
        }
        shares = counts(&spec.fleets, wanted, &room);
    }
}

/// How many units are wanted of a stage, in all its fleets.
pub fn wanted(spec: &StageSpec, record: Option<&StageRecord>) -> u32 {
    let wanted = record.and_then(|record| record.scale.as_ref()).map(|scale| scale.units);
    counts(&spec.fleets, wanted, &BTreeMap::new()).values().sum()
}

/// How many units each fleet has, where `wanted` are wanted in all: its least, and of what is more, all that fleets of a
/// lower priority take before those of a higher. Fleets of one priority share it evenly. `room` bounds what a fleet can
/// have; where it is less than its share, the fleets after it have more, within their bounds.
fn counts(fleets: &[StageFleet], wanted: Option<u32>, room: &BTreeMap<&Name, u32>) -> BTreeMap<Name, u32> {
    let least: u32 = fleets.iter().map(|fleet| fleet.units.min).sum();
    let most: u32 = fleets.iter().map(|fleet| fleet.units.most()).fold(0, u32::saturating_add);
    let wanted = wanted.unwrap_or(least).clamp(least, most);
    let bound = |fleet: &StageFleet| {
        room.get(&fleet.name).map_or(fleet.units.most(), |room| fleet.units.most().min(*room))
    };
    let mut counts: Vec<u32> = fleets.iter().map(|fleet| fleet.units.min.min(bound(fleet))).collect();
    let mut left = wanted - counts.iter().sum::<u32>();
    let mut order: Vec<usize> = (0..fleets.len()).collect();
    order.sort_by_key(|at| fleets[*at].priority);
    for level in order.chunk_by(|a, b| fleets[*a].priority == fleets[*b].priority) {
        while left > 0 {
            let next = level.iter().filter(|at| counts[**at] < bound(&fleets[**at]));
            let Some(next) = next.min_by_key(|at| (counts[**at], **at)).copied() else { break };
            counts[next] += 1;
            left -= 1;
        }
    }
    // What has no room anywhere stays wanted where it belongs, so that it is said and made up for.
    for (at, fleet) in fleets.iter().enumerate() {
        let back = left.min(fleet.units.min.saturating_sub(counts[at]));
        counts[at] += back;
        left -= back;
    }
    for at in order {
        let back = left.min(fleets[at].units.most() - counts[at]);
        counts[at] += back;
        left -= back;
    }
    fleets.iter().zip(counts).map(|(fleet, count)| (fleet.name.clone(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use denv_schema::manifest::UnitRange;
    use proptest::prelude::*;

    fn fleet(index: usize, min: u32, max: u32, priority: u32) -> StageFleet {
        let name = format!("f{index}").parse().unwrap();
        StageFleet { name, units: UnitRange { min, max: Some(max) }, priority, weight: None }
    }

    fn of(fleets: &[StageFleet], wanted: Option<u32>, room: &[(usize, u32)]) -> Vec<u32> {
        let room = room.iter().map(|(at, room)| (&fleets[*at].name, *room)).collect();
        counts(fleets, wanted, &room).into_values().collect()
    }

    #[test]
    fn base_fleets_grow_first_and_shrink_last() {
        let fleets = [fleet(0, 2, 4, 0), fleet(1, 0, 8, 1)];
        assert_eq!(of(&fleets, None, &[]), [2, 0]);
        assert_eq!(of(&fleets, Some(3), &[]), [3, 0]);
        assert_eq!(of(&fleets, Some(6), &[]), [4, 2]);
        assert_eq!(of(&fleets, Some(99), &[]), [4, 8]);
        assert_eq!(of(&fleets, Some(0), &[]), [2, 0]);
    }

    #[test]
    fn fleets_of_one_priority_share() {
        let fleets = [fleet(0, 0, 4, 0), fleet(1, 1, 4, 0), fleet(2, 0, 9, 7)];
        assert_eq!(of(&fleets, Some(4), &[]), [2, 2, 0]);
        assert_eq!(of(&fleets, Some(9), &[]), [4, 4, 1]);
    }

    #[test]
    fn what_has_no_room_goes_to_the_fleet_after() {
        let fleets = [fleet(0, 2, 4, 0), fleet(1, 0, 8, 1)];
        assert_eq!(of(&fleets, None, &[(0, 1)]), [1, 1]);
        assert_eq!(of(&fleets, Some(6), &[(0, 3)]), [3, 3]);
        // And where no other has room, it is wanted where it belongs.
        assert_eq!(of(&fleets, None, &[(0, 1), (1, 0)]), [2, 0]);
    }

    proptest! {
        #[test]
        fn all_that_is_wanted_is_given_within_bounds(
            ranges in prop::collection::vec((0u32..5, 0u32..5, 0u32..3, prop::option::of(0u32..6)), 1..5),
            wanted in prop::option::of(0u32..40),
        ) {
            let fleets: Vec<StageFleet> = ranges
                .iter()
                .enumerate()
                .map(|(at, (min, more, priority, _))| fleet(at, *min, min + more, *priority))
                .collect();
            let room: Vec<(usize, u32)> =
                ranges.iter().enumerate().filter_map(|(at, (.., room))| Some((at, (*room)?))).collect();
            let given = of(&fleets, wanted, &room);
            let (least, most) = fleets.iter().fold((0, 0), |(least, most), fleet| {
                (least + fleet.units.min, most + fleet.units.most())
            });
            prop_assert_eq!(given.iter().sum::<u32>(), wanted.unwrap_or(least).clamp(least, most));
            prop_assert!(fleets.iter().zip(&given).all(|(fleet, given)| *given <= fleet.units.most()));
        }
    }
}
