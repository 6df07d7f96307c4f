//! Which host and accelerators a unit gets. One function says both whether and where.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::manifest::Pool;
use denv_schema::{Digest, Name, StageId};

use crate::plan::WaitingOn;
use crate::records::{Records, UnitRecord};
use crate::world::World;

/// Where a unit goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub host: Name,
    pub gpus: Vec<u32>,
    pub cpu_slots: u32,
}

/// What is taken on each host, by everything recorded: also by what is stopping, or on a host that is silent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    hosts: BTreeMap<Name, HostUsage>,
}

#[derive(Clone, Debug, Default)]
struct HostUsage {
    gpus: BTreeSet<u32>,
    cpu_slots: u32,
    /// How many units each stage has here, by the digest of their release's template.
    stages: BTreeMap<StageId, BTreeMap<Digest, u32>>,
}

impl Usage {
    pub(crate) fn of(records: &Records) -> Self {
        let mut usage = Usage::default();
        for unit in records.units.values() {
            usage.take(unit);
        }
        usage
    }

    pub(crate) fn take(&mut self, unit: &UnitRecord) {
        let (host, gpus) = (unit.host.clone(), unit.spec.gpus.clone());
        self.reserve(&unit.stage, unit.template, Placement { host, gpus, cpu_slots: unit.cpu_slots });
    }

    pub(crate) fn reserve(&mut self, stage: &StageId, template: Digest, placement: Placement) {
        let host = self.hosts.entry(placement.host).or_default();
        host.gpus.extend(placement.gpus);
        host.cpu_slots += placement.cpu_slots;
        *host.stages.entry(stage.clone()).or_default().entry(template).or_default() += 1;
    }
}

/// A host of `fleet` for a unit of `stage`: where it has fewest units of that release (those of another are about to
/// leave), then fewest at all, then where least is left over, then by name. Or what is missing.
pub(crate) fn place(
    world: &World<'_>,
    usage: &Usage,
    stage: &StageId,
    fleet: &Name,
    template: Digest,
    needs: &Pool,
) -> Result<Placement, WaitingOn> {
    let (wanted, unit) = match (needs.gpus, needs.cpu_slots) {
        (Some(gpus), _) => (gpus, if gpus == 1 { "GPU" } else { "GPUs" }),
        (None, slots) => (slots.unwrap_or(1), if slots == Some(1) { "CPU slot" } else { "CPU slots" }),
    };
    /// The least is the best.
    type Rank<'a> = (u32, u32, u32, &'a Name);
    let mut best: Option<(Rank<'_>, Placement)> = None;
    let mut most: Option<(u32, &Name)> = None;
    let (mut cordoned, mut silent, mut never_seen) = (0u32, 0u32, 0u32);
    let nothing = HostUsage::default();
    for (name, host) in world.catalog.hosts_of(fleet) {
        let Some(observed) = world.host(name) else {
            never_seen += 1;
            continue;
        };
        if host.cordoned {
            cordoned += 1;
            continue;
        }
        if !observed.connected {
            silent += 1;
            continue;
        }
        let used = usage.hosts.get(name).unwrap_or(&nothing);
        let free_gpus: Vec<u32> = observed
            .report
            .inventory
            .gpus
            .iter()
            .map(|gpu| gpu.index)
            .filter(|gpu| !used.gpus.contains(gpu))
            .collect();
        let free = match needs.gpus {
            Some(_) => u32::try_from(free_gpus.len()).unwrap_or(u32::MAX),
            None => host.cpu_slots.unwrap_or(0).saturating_sub(used.cpu_slots),
        };
        if most.is_none_or(|(most, _)| free > most) {
            most = Some((free, name));
        }
        if free < wanted {
            continue;
        }
        let of_stage = used.stages.get(stage);
        let same = of_stage.and_then(|counts| counts.get(&template)).copied().unwrap_or(0);
        let all = of_stage.map_or(0, |counts| counts.values().sum());
        let rank = (same, all, free - wanted, name);
        if best.as_ref().is_none_or(|(best, _)| rank < *best) {
            let gpus =
                needs.gpus.map_or_else(Vec::new, |gpus| free_gpus.into_iter().take(gpus as usize).collect());
            let cpu_slots = if needs.gpus.is_some() { 0 } else { wanted };
            best = Some((rank, Placement { host: name.clone(), gpus, cpu_slots }));
        }
    }
    if let Some((_, placement)) = best {
        return Ok(placement);
    }
    let left_out = [(cordoned, "cordoned"), (silent, "silent"), (never_seen, "never joined")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    Err(WaitingOn::Room {
        fleet: fleet.clone(),
        needs: format!("{wanted} {unit}"),
        most_free: most.map_or(0, |(free, _)| free),
        on: most.map(|(_, name)| name.clone()),
        left_out,
        remedy: "add hosts to the fleet, free some, or use `strategy: replace`".to_owned(),
    })
}

#[cfg(test)]
mod tests;
