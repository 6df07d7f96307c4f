//! Which host and accelerators a unit gets. One function says both whether and where.

mod usage;

use std::collections::BTreeMap;

use denv_schema::launch::LaunchTemplate;
use denv_schema::{Digest, Name, StageId};

use crate::waiting::WaitingOn;

pub(crate) use usage::Usage;
use usage::{Closed, HostUsage};

/// A release, and what it means.
#[derive(Clone, Copy)]
pub(crate) struct Release<'a> {
    pub name: &'a Name,
    pub template: &'a LaunchTemplate,
    pub digest: Digest,
}

/// Where a unit goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub host: Name,
    pub gpus: Vec<u32>,
    pub cpu_slots: u32,
}

/// A host of `fleet` for a unit of `stage`: where it has fewest units of that release (those of another are about to
/// leave), then fewest at all, then where least is left over, then by name. Or what is missing.
pub(crate) fn place(
    usage: &Usage,
    stage: &StageId,
    fleet: &Name,
    release: &Release<'_>,
) -> Result<Placement, WaitingOn> {
    if let Some(what) = unsupported(usage, fleet, release.template) {
        return Err(WaitingOn::Unsupported { release: release.name.clone(), fleet: fleet.clone(), what });
    }
    let needs = &release.template.needs;
    let (wanted, unit) = match (needs.gpus, needs.cpu_slots) {
        (Some(gpus), _) => (gpus, if gpus == 1 { "GPU" } else { "GPUs" }),
        (None, slots) => (slots.unwrap_or(1), if slots == Some(1) { "CPU slot" } else { "CPU slots" }),
    };
    /// The least is the best.
    type Rank<'a> = (u32, u32, u32, &'a Name);
    let mut best: Option<(Rank<'_>, &HostUsage)> = None;
    let mut most: Option<(u32, &Name)> = None;
    let mut closed: BTreeMap<Closed, u32> = BTreeMap::new();
    for host in usage.hosts_of(fleet) {
        if let Some(why) = host.closed {
            *closed.entry(why).or_default() += 1;
            continue;
        }
        let free = match needs.gpus {
            Some(_) => u32::try_from(host.free_gpus.len()).unwrap_or(u32::MAX),
            None => host.free_slots(),
        };
        if most.is_none_or(|(most, _)| free > most) {
            most = Some((free, &host.name));
        }
        if free < wanted {
            continue;
        }
        let (same, all) = host.units_of(stage, release.digest);
        let rank = (same, all, free - wanted, &host.name);
        if best.as_ref().is_none_or(|(best, _)| rank < *best) {
            best = Some((rank, host));
        }
    }
    if let Some((_, host)) = best {
        let gpus = needs.gpus.map_or(0, |gpus| gpus as usize);
        return Ok(Placement {
            host: host.name.clone(),
            gpus: host.free_gpus.iter().copied().take(gpus).collect(),
            cpu_slots: if needs.gpus.is_some() { 0 } else { wanted },
        });
    }
    Err(WaitingOn::Room {
        fleet: fleet.clone(),
        needs: format!("{wanted} {unit}"),
        most_free: most.map_or(0, |(free, _)| free),
        on: most.map(|(_, name)| name.clone()),
        left_out: closed.into_iter().map(|(why, count)| format!("{count} {}", why.as_str())).collect(),
        remedy: "add hosts to the fleet, free some, or use `strategy: replace`".to_owned(),
    })
}

/// What denv can't do yet, whatever room there is. Nothing is started that would be something else.
fn unsupported(usage: &Usage, fleet: &Name, template: &LaunchTemplate) -> Option<String> {
    if let Some(what) = template.unsupported() {
        return Some(what.to_string());
    }
    let facts = usage.facts(fleet)?;
    if let (Some(gpus), Some(most)) = (template.needs.gpus, facts.gpus_per_host)
        && gpus > most
    {
        return Some(format!(
            "a unit takes {gpus} GPUs and a host there has {most}; denv does not start units on several hosts yet"
        ));
    }
    if facts.launched && usage.hosts_of(fleet).is_empty() {
        return Some("denv does not launch that provider's hosts yet".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
