//! Which hosts and accelerators a unit gets. One function says both whether and where.

mod fit;
mod missing;
mod survey;
mod usage;

use denv_schema::launch::{LaunchTemplate, MemberPlace};
use denv_schema::manifest::{PlacementRule, PoolName};
use denv_schema::wire::Ability;
use denv_schema::{Digest, Name, StageId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::waiting::WaitingOn;

use fit::{PoolNeed, fit};
pub use survey::{DomainVerdict, FleetSurvey, survey};
use usage::{Beside, Domain, FleetUsage, HostUsage, Resource};
pub(crate) use usage::{Usage, address};

/// A release, and what it means.
#[derive(Clone, Copy)]
pub(crate) struct Release<'a> {
    pub name: &'a Name,
    pub template: &'a LaunchTemplate,
    pub digest: Digest,
}

/// Where a unit goes: all of it, or it would go nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The pools in their order, and in each the members by rank.
    pub places: Vec<MemberPlace>,
    pub chosen: Chosen,
}

/// Why a unit went where it did, at the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// The scale-up domain; the first, where it spans several.
    pub domain: Name,
    /// How many it spans.
    pub spans: u32,
    /// How many domains of the fleet had as much free as it takes.
    pub among: u32,
    /// How many units of the stage the same failure would have taken already.
    pub beside: u32,
    /// What was left over in the domain, in GPUs or CPU slots.
    pub left: u32,
}

impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Chosen { domain, spans, among, beside, left } = self;
        if *spans > 1 {
            return write!(
                f,
                "no domain had room for it alone; `{domain}` and {} more are the fewest that do",
                spans - 1
            );
        }
        match among {
            1 => write!(f, "`{domain}` was the only domain with room"),
            _ => write!(
                f,
                "of {among} domains with room, `{domain}` shares its failure domain with the fewest units of the \
                 stage ({beside}), and of those has the least left over ({left})"
            ),
        }
    }
}

/// What a unit takes.
struct Wants {
    resource: Resource,
    pools: Vec<PoolNeed>,
    total: u32,
    abilities: Vec<Ability>,
}

impl Wants {
    fn of(template: &LaunchTemplate) -> Self {
        let resource = if template.gpus().is_some() { Resource::Gpus } else { Resource::CpuSlots };
        let need = |pool| PoolNeed {
            amount: amount(resource, pool),
            // CPU slots are of one host.
            spreads: match resource {
                Resource::Gpus => template.spread(pool).hosts,
                Resource::CpuSlots => vec![1],
            },
        };
        let pools: Vec<PoolNeed> = template.pools.iter().map(need).collect();
        let total = pools.iter().map(|pool| pool.amount).fold(0, u32::saturating_add);
        Wants { resource, pools, total, abilities: template.asks().map(|need| need.ability).collect() }
    }
}

impl Wants {
    /// What a host has to give that a unit can use.
    fn of_host(&self, host: &HostUsage<'_>) -> u32 {
        if self.abilities.iter().all(|ability| host.can(*ability)) { host.free(self.resource) } else { 0 }
    }
}

fn amount(resource: Resource, pool: &denv_schema::launch::PoolTemplate) -> u32 {
    match resource {
        Resource::Gpus => pool.needs.gpus.unwrap_or(0),
        Resource::CpuSlots => pool.needs.cpu_slots.unwrap_or(1),
    }
}

/// The hosts of each pool, by their places in the fleet.
type Hosts = Vec<Vec<usize>>;

/// Hosts of `fleet` for a unit of `stage`, within one domain: that in whose failure domain there are fewest units of the
/// release (those of another are about to leave), then fewest at all, then where least is left over, so that whole domains
/// stay free, then by name. Where the release may span domains, as few as will do. Or what is missing.
pub(crate) fn place(
    usage: &Usage<'_>,
    stage: &StageId,
    fleet: &Name,
    release: &Release<'_>,
) -> Result<Placement, WaitingOn> {
    let nothing = FleetUsage::default();
    let of_fleet = usage.fleet(fleet).unwrap_or(&nothing);
    if let Some(what) = unsupported(of_fleet, release.template) {
        return Err(WaitingOn::Unsupported { release: release.name.clone(), fleet: fleet.clone(), what });
    }
    let wants = Wants::of(release.template);
    let beside = usage.beside(stage, release.digest);
    let mut best: Option<(Rank<'_>, Hosts)> = None;
    let mut among = 0;
    for domain in &of_fleet.domains {
        let Some(rank) = rank(of_fleet, domain, &wants, &beside) else { continue };
        among += 1;
        if best.as_ref().is_none_or(|(best, _)| rank < *best)
            && let Some(hosts) = within(of_fleet, &domain.hosts, &wants)
        {
            best = Some((rank, hosts));
        }
    }
    if let Some(((_, beside, left, domain), hosts)) = best {
        let chosen = Chosen { domain: domain.clone(), spans: 1, among, beside, left };
        return take(of_fleet, release.template, &wants, &hosts, chosen);
    }
    if release.template.placement == PlacementRule::Any
        && let Some(hosts) = across(of_fleet, &wants)
    {
        return take(of_fleet, release.template, &wants, &hosts, spanning(of_fleet, &hosts));
    }
    Err(missing::room(of_fleet, fleet, release.template, &wants))
}

/// The least is the best.
type Rank<'a> = (u32, u32, u32, &'a Name);

/// How good a domain is for a unit; none, where too little is free.
fn rank<'a>(
    fleet: &FleetUsage<'_>,
    domain: &Domain<'a>,
    wants: &Wants,
    beside: &Beside<'_>,
) -> Option<Rank<'a>> {
    let left = domain.free(wants.resource).checked_sub(wants.total)?;
    let (same, all) = fleet.units_beside(domain, beside);
    Some((same, all, left, domain.name))
}

/// On these hosts, by their places in the fleet.
fn within(fleet: &FleetUsage<'_>, among: &[usize], wants: &Wants) -> Option<Hosts> {
    let free: Vec<u32> = among.iter().map(|host| wants.of_host(&fleet.hosts[*host])).collect();
    let mut hosts = fit(&free, &wants.pools)?;
    hosts.iter_mut().flatten().for_each(|host| *host = among[*host]);
    Some(hosts)
}

/// Over several domains: those with most to give, as few as will do.
fn across(fleet: &FleetUsage<'_>, wants: &Wants) -> Option<Hosts> {
    let mut domains: Vec<&Domain<'_>> =
        fleet.domains.iter().filter(|domain| domain.free(wants.resource) > 0).collect();
    domains.sort_by_key(|domain| (std::cmp::Reverse(domain.free(wants.resource)), domain.name));
    let mut among = Vec::new();
    let mut free = 0u32;
    for domain in domains {
        among.extend_from_slice(&domain.hosts);
        free = free.saturating_add(domain.free(wants.resource));
        if free >= wants.total
            && let Some(hosts) = within(fleet, &among, wants)
        {
            return Some(hosts);
        }
    }
    None
}

fn spanning(fleet: &FleetUsage<'_>, hosts: &Hosts) -> Chosen {
    let mut domains: Vec<usize> =
        hosts.iter().flatten().map(|host| fleet.hosts[*host].domain_place()).collect();
    domains.sort_unstable();
    domains.dedup();
    let spans = u32::try_from(domains.len()).unwrap_or(u32::MAX);
    let domain = fleet.domains[domains[0]].name.clone();
    Chosen { domain, spans, among: 0, beside: 0, left: 0 }
}

fn take(
    fleet: &FleetUsage<'_>,
    template: &LaunchTemplate,
    wants: &Wants,
    hosts: &Hosts,
    chosen: Chosen,
) -> Result<Placement, WaitingOn> {
    let mut places: Vec<MemberPlace> = Vec::new();
    for ((pool, need), hosts) in template.pools.iter().zip(&wants.pools).zip(hosts) {
        let share = need.amount / u32::try_from(hosts.len()).unwrap_or(1).max(1);
        for host in hosts.iter().map(|host| &fleet.hosts[*host]) {
            places.push(member(pool.name, host, wants.resource, share, &places)?);
        }
    }
    Ok(Placement { places, chosen })
}

fn member(
    pool: PoolName,
    host: &HostUsage<'_>,
    resource: Resource,
    share: u32,
    before: &[MemberPlace],
) -> Result<MemberPlace, WaitingOn> {
    // Another pool of the unit may have a member here already.
    let mut here = before.iter().filter(|place| place.host == *host.name).peekable();
    let taken: Vec<u32> = here.clone().flat_map(|place| place.gpus.iter().copied()).collect();
    let gpus = match resource {
        Resource::Gpus => host.free_gpus().filter(|gpu| !taken.contains(gpu)).take(share as usize).collect(),
        Resource::CpuSlots => Vec::new(),
    };
    let skip = if here.peek().is_some() { here.count() } else { 0 };
    let first_port = host.free_port(skip).ok_or_else(|| WaitingOn::Ports { host: host.name.clone() })?;
    Ok(MemberPlace {
        pool,
        host: host.name.clone(),
        address: host.address.to_owned(),
        gpus,
        cpu_slots: if resource == Resource::CpuSlots { share } else { 0 },
        first_port,
    })
}

/// What denv can't do yet, whatever room there is. Nothing is started that would be something else.
fn unsupported(fleet: &FleetUsage<'_>, template: &LaunchTemplate) -> Option<String> {
    if let Some(limit) = template.limits().first() {
        return Some(limit.to_string());
    }
    let lacking = template.asks().find(|need| fleet.hosts.iter().all(|host| !host.can(need.ability)));
    if let (Some(need), false) = (lacking, fleet.hosts.is_empty()) {
        return Some(need.remedy.to_owned());
    }
    if let Some(most) = fleet.gpus_per_host {
        for pool in &template.pools {
            let spread = template.spread(pool);
            let (Some(gpus), Some(limit)) = (pool.needs.gpus, spread.limit) else { continue };
            let hosts = spread.hosts.iter().copied().max().unwrap_or(1);
            if gpus.div_ceil(hosts) > most {
                return Some(format!(
                    "a {} takes {gpus} GPUs and a host there has {most}; {limit}",
                    pool.name
                ));
            }
        }
    }
    if fleet.launched && fleet.hosts.is_empty() {
        return Some("denv does not launch that provider's hosts yet".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
