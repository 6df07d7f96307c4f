//! What each host has, and what of it is taken.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::{Digest, Name, StageId};

use super::Placement;
use crate::records::UnitRecord;
use crate::world::World;

/// What is taken on each host, by everything recorded: also by what is stopping, or on a host that is silent. Made once
/// a pass, because placing many units must not look each host up for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    fleets: BTreeMap<Name, Vec<HostUsage>>,
    facts: BTreeMap<Name, FleetFacts>,
    /// Fleet and place in it.
    places: BTreeMap<Name, (Name, usize)>,
}

#[derive(Clone, Debug)]
pub(super) struct HostUsage {
    pub name: Name,
    pub closed: Option<Closed>,
    gpus: Vec<u32>,
    pub free_gpus: Vec<u32>,
    cpu_slots: u32,
    used_slots: u32,
    /// How many units each stage has here, by the digest of their release's template.
    stages: Vec<(StageId, Digest, u32)>,
}

/// What a fleet's manifest says of its hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FleetFacts {
    pub gpus_per_host: Option<u32>,
    /// They are launched through the provider's API, not written.
    pub launched: bool,
}

/// Why a host takes nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closed {
    Cordoned,
    Silent,
    NeverJoined,
    /// It runs what no record knows, and nobody can say what that holds.
    Strangers,
}

impl Closed {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Closed::Cordoned => "cordoned",
            Closed::Silent => "silent",
            Closed::NeverJoined => "never joined",
            Closed::Strangers => "running what denv has no record of",
        }
    }
}

impl Usage {
    pub(crate) fn of(world: &World<'_>, strangers: &BTreeSet<Name>) -> Self {
        let mut usage = Usage::default();
        for (name, fleet) in &world.catalog.fleets {
            let provider = world.catalog.providers.get(&fleet.provider);
            let launched = provider.is_some_and(|provider| provider.kind.launches_hosts());
            usage.facts.insert(name.clone(), FleetFacts { gpus_per_host: fleet.gpus_per_host, launched });
        }
        for (name, host) in &world.catalog.hosts {
            let observed = world.host(name);
            let closed = match observed {
                None => Some(Closed::NeverJoined),
                _ if host.cordoned => Some(Closed::Cordoned),
                Some(observed) if !observed.connected => Some(Closed::Silent),
                Some(_) if strangers.contains(name) => Some(Closed::Strangers),
                Some(_) => None,
            };
            let gpus: Vec<u32> = observed.map_or_else(Vec::new, |observed| {
                observed.report.inventory.gpus.iter().map(|gpu| gpu.index).collect()
            });
            let fleet = usage.fleets.entry(host.fleet.clone()).or_default();
            usage.places.insert(name.clone(), (host.fleet.clone(), fleet.len()));
            fleet.push(HostUsage {
                name: name.clone(),
                closed,
                free_gpus: gpus.clone(),
                gpus,
                cpu_slots: host.cpu_slots.unwrap_or(0),
                used_slots: 0,
                stages: Vec::new(),
            });
        }
        world.records.units.values().for_each(|unit| usage.take(unit));
        usage
    }

    /// Of each fleet: what there is to take, how much of it, and how much of that is free.
    pub(crate) fn free(&self) -> BTreeMap<Name, (&'static str, u32, u32)> {
        let count = |gpus: &[u32]| u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let of_fleet = |hosts: &Vec<HostUsage>| {
            if hosts.iter().any(|host| !host.gpus.is_empty()) {
                let free = hosts.iter().map(|host| count(&host.free_gpus)).sum();
                ("GPUs", hosts.iter().map(|host| count(&host.gpus)).sum(), free)
            } else {
                let free = hosts.iter().map(HostUsage::free_slots).sum();
                ("CPU slots", hosts.iter().map(|host| host.cpu_slots).sum(), free)
            }
        };
        self.fleets.iter().map(|(fleet, hosts)| (fleet.clone(), of_fleet(hosts))).collect()
    }

    pub(super) fn facts(&self, fleet: &Name) -> Option<FleetFacts> {
        self.facts.get(fleet).copied()
    }

    pub(super) fn hosts_of(&self, fleet: &Name) -> &[HostUsage] {
        self.fleets.get(fleet).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn take(&mut self, unit: &UnitRecord) {
        self.reserve_at(&unit.stage, unit.template, &unit.host, &unit.spec.gpus, unit.cpu_slots);
    }

    pub(crate) fn reserve(&mut self, stage: &StageId, template: Digest, placement: &Placement) {
        self.reserve_at(stage, template, &placement.host, &placement.gpus, placement.cpu_slots);
    }

    fn reserve_at(&mut self, stage: &StageId, template: Digest, host: &Name, gpus: &[u32], slots: u32) {
        let Some(host) = self.host(host) else { return };
        host.free_gpus.retain(|gpu| !gpus.contains(gpu));
        host.used_slots += slots;
        let known = host.stages.iter_mut().find(|(of, release, _)| of == stage && *release == template);
        match known {
            Some((_, _, count)) => *count += 1,
            None => host.stages.push((stage.clone(), template, 1)),
        }
    }

    /// As if the unit were gone.
    pub(crate) fn give_back(&mut self, unit: &UnitRecord) {
        let Some(host) = self.host(&unit.host) else { return };
        let back = host.gpus.iter().filter(|gpu| unit.spec.gpus.contains(gpu));
        host.free_gpus.extend(back);
        host.free_gpus.sort_unstable();
        host.free_gpus.dedup();
        host.used_slots = host.used_slots.saturating_sub(unit.cpu_slots);
        for (stage, template, count) in &mut host.stages {
            if *stage == unit.stage && *template == unit.template {
                *count = count.saturating_sub(1);
            }
        }
    }

    fn host(&mut self, name: &Name) -> Option<&mut HostUsage> {
        let (fleet, place) = self.places.get(name)?;
        self.fleets.get_mut(fleet)?.get_mut(*place)
    }
}

impl HostUsage {
    pub(super) fn free_slots(&self) -> u32 {
        self.cpu_slots.saturating_sub(self.used_slots)
    }

    /// How many units of `stage` are here: of this release, and of all.
    pub(super) fn units_of(&self, stage: &StageId, template: Digest) -> (u32, u32) {
        let of_stage = self.stages.iter().filter(|(of, ..)| of == stage);
        of_stage.fold((0, 0), |(same, all), (_, release, count)| {
            (if *release == template { same + count } else { same }, all + count)
        })
    }
}
