//! Why a unit would go where it would, and not elsewhere: every domain of a fleet, by the ranks that `place` decides by.

use denv_schema::diagnostic::counted;
use denv_schema::{Name, StageId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::usage::{Closed, Domain, FleetUsage, Usage};
use super::{Rank, Release, Wants, place, rank, within};
use crate::deployment::desired;
use crate::strangers;
use crate::world::World;

/// What one fleet has for the next unit of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetSurvey {
    pub fleet: Name,
    /// What a unit takes: `68 GPUs`.
    pub takes: String,
    /// Why the next unit could not start there, if it could not.
    pub waiting: Option<String>,
    /// The best first, and then those that can't take it.
    pub domains: Vec<DomainVerdict>,
    /// Domains that are left out, because there are too many.
    pub left_out: u32,
}

/// Whether a domain would take the next unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainVerdict {
    pub domain: Name,
    pub hosts: u32,
    /// What its hosts that are open have to give, in GPUs or CPU slots.
    pub free: u32,
    pub takes_it: bool,
    pub why: String,
}

/// More domains than this of one fleet are more than a person reads.
const MOST: usize = 40;

/// Where the next unit of a stage would go, in each of its fleets, and why nowhere else.
pub fn survey(world: &World<'_>, stage: &StageId) -> Vec<FleetSurvey> {
    let Some(spec) = world.catalog.stages.get(stage) else { return Vec::new() };
    let Some(release) = desired(world, stage, spec) else { return Vec::new() };
    let usage =
        Usage::of(world, &strangers::of(world).iter().map(|stranger| stranger.host.clone()).collect());
    spec.fleets.iter().filter_map(|fleet| of_fleet(&usage, stage, &fleet.name, &release)).collect()
}

fn of_fleet(usage: &Usage<'_>, stage: &StageId, name: &Name, release: &Release<'_>) -> Option<FleetSurvey> {
    let fleet = usage.fleet(name)?;
    let wants = Wants::of(release.template);
    let beside = usage.beside(stage, release.digest);
    let mut ranked: Vec<(Option<Rank<'_>>, &Domain<'_>)> = fleet
        .domains
        .iter()
        .map(|domain| {
            let fits = within(fleet, &domain.hosts, &wants).is_some();
            (rank(fleet, domain, &wants, &beside).filter(|_| fits), domain)
        })
        .collect();
    // Those that can't take it: what has most free first.
    ranked.sort_by_key(|(rank, domain)| {
        (rank.is_none(), *rank, std::cmp::Reverse(domain.free(wants.resource)), domain.name)
    });
    let best = ranked.first().and_then(|(rank, _)| *rank);
    let verdicts = ranked.iter().take(MOST).map(|(rank, domain)| DomainVerdict {
        domain: domain.name.clone(),
        hosts: u32::try_from(domain.hosts.len()).unwrap_or(u32::MAX),
        free: domain.free(wants.resource),
        takes_it: rank.is_some() && *rank == best,
        why: match (rank, best) {
            (Some(rank), Some(best)) => compared(*rank, best),
            _ => refused(fleet, domain, &wants),
        },
    });
    Some(FleetSurvey {
        fleet: name.clone(),
        takes: wants.resource.counted(wants.total),
        waiting: place(usage, stage, name, release).err().map(|waiting| waiting.to_string()),
        domains: verdicts.collect(),
        left_out: u32::try_from(ranked.len().saturating_sub(MOST)).unwrap_or(u32::MAX),
    })
}

/// What tells a domain that could take the unit from the one that would.
fn compared(rank: Rank<'_>, best: Rank<'_>) -> String {
    let (same, all, left, name) = rank;
    match best {
        _ if rank == best => format!(
            "the next unit would go here: {} of the stage in its failure domain, and {left} left over",
            counted(all as usize, "unit")
        ),
        (least, ..) if same > least => {
            let same = counted(same as usize, "unit");
            format!("{same} of the release in its failure domain already, and {least} in the best")
        }
        (_, least, ..) if all > least => {
            let all = counted(all as usize, "unit");
            format!("{all} of the stage in its failure domain already, and {least} in the best")
        }
        (_, _, least, _) if left > least => {
            format!("{left} would be left over, and {least} in the best: whole domains are kept free")
        }
        (.., other) => format!("as good as `{other}`, whose name comes before `{name}`"),
    }
}

fn refused(fleet: &FleetUsage<'_>, domain: &Domain<'_>, wants: &Wants) -> String {
    let hosts = || domain.hosts.iter().map(|host| &fleet.hosts[*host]);
    let mut closed: Vec<Closed> = hosts().filter_map(|host| host.closed).collect();
    closed.sort_unstable();
    let is_shut = closed.len() == domain.hosts.len();
    let why: Vec<String> = closed
        .chunk_by(|a, b| a == b)
        .map(|same| match same.len() {
            _ if domain.hosts.len() == 1 => same[0].as_str().to_owned(),
            count => format!("{count} of {} hosts {}", domain.hosts.len(), same[0].as_str()),
        })
        .collect();
    let free = domain.free(wants.resource);
    match (is_shut, why.is_empty()) {
        (true, _) => why.join(", "),
        (false, _) if free >= wants.total => {
            format!("{free} are free, but not as the unit needs them on each host")
        }
        (false, true) => format!("too little is free: {free} of {}", wants.total),
        (false, false) => format!("too little is free: {free} of {}; {}", wants.total, why.join(", ")),
    }
}
