//! What is missing where a unit has no room, and what would free it.

use std::collections::BTreeMap;

use denv_schema::launch::LaunchTemplate;
use denv_schema::manifest::PlacementRule;
use denv_schema::{Name, UnitId};

use super::usage::{Closed, Domain, FleetUsage};
use super::{Wants, fit};
use crate::waiting::{NoRoom, WaitingOn};

/// More units than this to move are no remedy to name.
const MOST_IN_THE_WAY: usize = 4;

pub(super) fn room(
    fleet: &FleetUsage<'_>,
    name: &Name,
    template: &LaunchTemplate,
    wants: &Wants,
) -> WaitingOn {
    let mut closed: BTreeMap<Closed, u32> = BTreeMap::new();
    fleet.hosts.iter().filter_map(|host| host.closed).for_each(|why| *closed.entry(why).or_default() += 1);
    let open = |domain: &&Domain<'_>| domain.hosts.iter().any(|host| fleet.hosts[*host].closed.is_none());
    let most = fleet
        .domains
        .iter()
        .filter(open)
        .map(|domain| (domain.free(wants.resource), domain.name))
        .max_by_key(|(free, name)| (*free, std::cmp::Reverse(*name)));
    let within = match template.placement {
        PlacementRule::SameDomain if fleet.is_of_single_hosts() => "on one host",
        PlacementRule::SameDomain => "in one domain",
        PlacementRule::Any => "in all",
    };
    let most_free = match template.placement {
        PlacementRule::SameDomain => most.map_or(0, |(free, _)| free),
        PlacementRule::Any => fleet.domains.iter().map(|domain| domain.free(wants.resource)).sum(),
    };
    // As much is free, but not in the shape that the unit needs.
    let shape = (most_free >= wants.total).then(|| shape(template, wants));
    let in_the_way = in_the_way(fleet, wants);
    let free = in_the_way.map_or_else(String::new, |(domain, units)| {
        let names: Vec<String> = units.iter().map(|unit| format!("`{unit}`")).collect();
        format!(" (without {} it would fit on `{domain}`)", names.join(", "))
    });
    WaitingOn::Room(Box::new(NoRoom {
        fleet: name.clone(),
        needs: wants.resource.counted(wants.total),
        within: within.to_owned(),
        most_free,
        on: most.filter(|_| template.placement == PlacementRule::SameDomain).map(|(_, name)| name.clone()),
        shape,
        left_out: closed.into_iter().map(|(why, count)| format!("{count} {}", why.as_str())).collect(),
        remedy: format!("add hosts to the fleet, free some{free}, or use `strategy: replace`"),
    }))
}

/// How a unit may be spread over hosts, in words.
fn shape(template: &LaunchTemplate, wants: &Wants) -> String {
    let of_pool = |(pool, need): (&denv_schema::launch::PoolTemplate, &super::PoolNeed)| {
        let ways: Vec<String> = need
            .spreads
            .iter()
            .filter(|hosts| need.amount.is_multiple_of(**hosts))
            .map(|hosts| match hosts {
                1 => format!("{} on one host", need.amount),
                _ => format!("{} on each of {hosts} hosts", need.amount / hosts),
            })
            .collect();
        format!("{} as {}", pool.name, ways.join(", or "))
    };
    template.pools.iter().zip(&wants.pools).map(of_pool).collect::<Vec<_>>().join("; ")
}

/// The domain where fewest units would have to leave, and those units, the smallest first.
fn in_the_way(fleet: &FleetUsage<'_>, wants: &Wants) -> Option<(Name, Vec<UnitId>)> {
    let candidates = fleet.domains.iter().filter_map(|domain| {
        let hosts = || domain.hosts.iter().map(|host| &fleet.hosts[*host]);
        let all: u32 =
            hosts().filter(|host| host.closed.is_none()).map(|host| host.all(wants.resource)).sum();
        if all < wants.total {
            return None;
        }
        let mut sizes: BTreeMap<&UnitId, u32> = BTreeMap::new();
        for (unit, amount) in hosts().flat_map(|host| &host.held) {
            *sizes.entry(unit).or_default() += amount;
        }
        let mut units: Vec<(u32, &UnitId)> = sizes.into_iter().map(|(unit, size)| (size, unit)).collect();
        units.sort_unstable();
        let mut leaving: Vec<&UnitId> = Vec::new();
        for (_, unit) in units {
            leaving.push(unit);
            if leaving.len() > MOST_IN_THE_WAY {
                return None;
            }
            let free: Vec<u32> = hosts()
                .map(|host| {
                    let back = host.held.iter().filter(|(unit, _)| leaving.contains(unit));
                    let back: u32 = back.map(|(_, amount)| amount).sum();
                    if host.closed.is_some() { 0 } else { wants.of_host(host) + back }
                })
                .collect();
            if fit(&free, &wants.pools).is_some() {
                return Some((leaving.len(), domain.name, leaving));
            }
        }
        None
    });
    let (_, domain, units) = candidates.min_by_key(|(count, name, _)| (*count, *name))?;
    Some((domain.clone(), units.into_iter().cloned().collect()))
}
