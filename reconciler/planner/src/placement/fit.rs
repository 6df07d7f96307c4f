//! Whether the pools of a unit fit a set of hosts, and on which of them. Exact: it finds a way whenever there is one.

use std::cmp::Reverse;

/// What one pool takes.
#[derive(Clone, Debug)]
pub(super) struct PoolNeed {
    /// Accelerators or CPU slots, in all.
    pub amount: u32,
    /// Over how many hosts it may be spread, with as much on each; the fewest first.
    pub spreads: Vec<u32>,
}

/// The hosts of each pool, by their places in `free`, in that order. `free`: what each host has to give. There are at most
/// two pools.
pub(super) fn fit(free: &[u32], pools: &[PoolNeed]) -> Option<Vec<Vec<usize>>> {
    // Most units are one pool on one host.
    if let ([pool], [only]) = (pools, free) {
        let fits = pool.spreads.contains(&1) && pool.amount <= *only;
        return fits.then(|| vec![vec![0]]);
    }
    let total: u64 = pools.iter().map(|pool| u64::from(pool.amount)).sum();
    if free.iter().map(|free| u64::from(*free)).sum::<u64>() < total {
        return None;
    }
    ways(pools).into_iter().find_map(|hosts| as_spread(free, pools, &hosts))
}

/// How many hosts each pool takes, in all combinations; the fewest members first.
fn ways(pools: &[PoolNeed]) -> Vec<Vec<u32>> {
    let mut ways: Vec<Vec<u32>> = vec![Vec::new()];
    for pool in pools {
        let longer = |way: &Vec<u32>, hosts: u32| way.iter().copied().chain([hosts]).collect();
        ways = ways.iter().flat_map(|way| pool.spreads.iter().map(|hosts| longer(way, *hosts))).collect();
    }
    ways.sort_by_key(|way| way.iter().sum::<u32>());
    ways
}

/// With given shares: first the pool of the larger share, on the fullest hosts that it leaves no use to the other, but only
/// as many of them as the other can spare; then on hosts that can take both. The other goes where least is left over.
fn as_spread(free: &[u32], pools: &[PoolNeed], hosts: &[u32]) -> Option<Vec<Vec<usize>>> {
    let mut order: Vec<(u32, usize, usize)> =
        (0..pools.len()).map(|pool| (pools[pool].amount / hosts[pool], pool, hosts[pool] as usize)).collect();
    order.sort_by_key(|(share, pool, _)| (Reverse(*share), *pool));
    let mut chosen = vec![Vec::new(); pools.len()];
    let mut left = free.to_vec();
    let &(share, first, count) = order.first()?;
    let (other_share, other_count) = order.get(1).map_or((0, 0), |(share, _, count)| (*share, *count));
    let (single, both): (Vec<usize>, Vec<usize>) =
        fullest_first(&left, share).into_iter().partition(|host| left[*host] - share < other_share);
    let usable = left.iter().filter(|free| **free >= other_share).count();
    let spared = single.len().min(count).min(usable.checked_sub(other_count)?);
    if count - spared > both.len() {
        return None;
    }
    chosen[first] = single.iter().take(spared).chain(both.iter().take(count - spared)).copied().collect();
    chosen[first].iter().for_each(|host| left[*host] -= share);
    if let Some((share, second, count)) = order.get(1) {
        chosen[*second] = fullest_first(&left, *share).into_iter().take(*count).collect();
        if chosen[*second].len() < *count {
            return None;
        }
    }
    chosen.iter_mut().for_each(|hosts| hosts.sort_unstable());
    Some(chosen)
}

/// The hosts that have a share to give, those with least to give first.
fn fullest_first(free: &[u32], share: u32) -> Vec<usize> {
    let mut hosts: Vec<usize> = (0..free.len()).filter(|host| free[*host] >= share).collect();
    hosts.sort_by_key(|host| (free[*host], *host));
    hosts
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn need(amount: u32, spreads: &[u32]) -> PoolNeed {
        PoolNeed { amount, spreads: spreads.to_vec() }
    }

    #[test]
    fn the_fewest_hosts_that_do_are_taken() {
        assert_eq!(fit(&[4, 8, 4], &[need(8, &[1, 2])]), Some(vec![vec![1]]));
        assert_eq!(fit(&[4, 7, 4], &[need(8, &[1, 2])]), Some(vec![vec![0, 2]]));
        assert_eq!(fit(&[4, 7, 4], &[need(8, &[1])]), None);
    }

    #[test]
    fn a_smaller_pool_is_not_starved_by_a_larger() {
        // Decode could take the only host that prefill can use.
        let pools = [need(8, &[1]), need(8, &[1, 2])];
        assert_eq!(fit(&[8, 4, 4], &pools), Some(vec![vec![0], vec![1, 2]]));
        // Both on one host, on GPUs of their own.
        assert_eq!(fit(&[8], &[need(4, &[1]), need(4, &[1])]), Some(vec![vec![0], vec![0]]));
    }

    /// Tries every way to give each pool distinct hosts.
    pub(in crate::placement) fn brute_force(free: &[u32], pools: &[PoolNeed]) -> bool {
        let Some((pool, rest)) = pools.split_first() else { return true };
        pool.spreads.iter().any(|count| {
            let share = pool.amount / count;
            (0u32..1 << free.len()).filter(|set| set.count_ones() == *count).any(|set| {
                let mut left = free.to_vec();
                let fits = (0..free.len()).filter(|host| set & (1 << host) != 0).all(|host| {
                    let fits = left[host] >= share;
                    left[host] = left[host].saturating_sub(share);
                    fits
                });
                fits && brute_force(&left, rest)
            })
        })
    }

    fn pool() -> impl Strategy<Value = PoolNeed> {
        let spreads = prop_oneof![Just(vec![1]), Just(vec![1, 2]), Just(vec![2, 4]), Just(vec![1, 2, 4])];
        (1u32..4, spreads).prop_map(|(quarter, spreads)| PoolNeed { amount: quarter * 4, spreads })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn it_fits_whenever_there_is_a_way(
            free in prop::collection::vec(0u32..10, 1..7),
            pools in prop::collection::vec(pool(), 1..3),
        ) {
            let found = fit(&free, &pools);
            prop_assert_eq!(found.is_some(), brute_force(&free, &pools));
            let Some(found) = found else { return Ok(()) };
            let mut left = free.clone();
            for (pool, hosts) in pools.iter().zip(&found) {
                let count = u32::try_from(hosts.len()).unwrap();
                prop_assert!(pool.spreads.contains(&count));
                prop_assert!(hosts.is_sorted_by(|a, b| a < b));
                for host in hosts {
                    left[*host] = left[*host].checked_sub(pool.amount / count).unwrap();
                }
            }
        }
    }
}
