//! What each host has, and what of it is taken.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::launch::PORTS_OF_A_MEMBER;
use denv_schema::wire::{Ability, Gpu};
use denv_schema::{Digest, Name, StageId, UnitId};

use super::Placement;
use crate::records::{HostFaults, UnitRecord};
use crate::world::{World, domain};

/// Ports that members are given for each other, below those that systems give to connections by themselves.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// What is taken on each host, by everything recorded: also by what is stopping, or on a host that is silent. Made once
/// a pass, because placing many units must not look each host up for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage<'w> {
    fleets: BTreeMap<&'w Name, FleetUsage<'w>>,
    /// Fleet and place in it.
    places: BTreeMap<&'w Name, (&'w Name, usize)>,
    /// Stages, each with one of its releases' templates, by the numbers that zones count them under.
    kinds: Vec<(StageId, Digest)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FleetUsage<'w> {
    pub gpus_per_host: Option<u32>,
    /// They are launched through the provider's API, not written.
    pub launched: bool,
    pub hosts: Vec<HostUsage<'w>>,
    pub domains: Vec<Domain<'w>>,
    zones: Vec<Zone>,
}

#[derive(Clone, Debug)]
pub(super) struct HostUsage<'w> {
    pub name: &'w Name,
    /// Where other hosts reach it.
    pub address: &'w str,
    pub closed: Option<Closed>,
    abilities: Option<&'w BTreeSet<Ability>>,
    domain: usize,
    pub gpus: &'w [Gpu],
    taken: Vec<u32>,
    pub cpu_slots: u32,
    used_slots: u32,
    ports: Vec<u16>,
    /// What is recorded here, with how much of it.
    pub held: Vec<(&'w UnitId, u32)>,
}

/// Hosts joined by the fast fabric, by their places in the fleet.
#[derive(Clone, Debug)]
pub(super) struct Domain<'w> {
    pub name: &'w Name,
    pub hosts: Vec<usize>,
    zone: usize,
    free_gpus: u32,
    free_slots: u32,
}

/// What fails together: how many units are in it, of each of `Usage::kinds`.
#[derive(Clone, Debug, Default)]
struct Zone {
    units: Vec<(usize, u32)>,
}

/// Why a host takes nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closed {
    Cordoned,
    Silent,
    NeverJoined,
    /// It runs what no record knows, and nobody can say what that holds.
    Strangers,
    /// It did not do what it was told, again and again.
    SetAside,
    /// Its provider takes it back.
    Reclaimed,
}

impl Closed {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Closed::Cordoned => "cordoned",
            Closed::Silent => "silent",
            Closed::NeverJoined => "never joined",
            Closed::Strangers => "running what denv has no record of",
            Closed::SetAside => "set aside for what they did not do",
            Closed::Reclaimed => "about to be taken back",
        }
    }
}

/// What a unit is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Gpus,
    CpuSlots,
}

/// Units that one failure would take together.
pub(super) struct Beside<'u> {
    kinds: &'u [(StageId, Digest)],
    stage: &'u StageId,
    template: Digest,
}

impl<'w> Usage<'w> {
    pub(crate) fn of(world: &World<'w>, strangers: &BTreeSet<Name>) -> Self {
        let mut usage = Usage::default();
        for (name, fleet) in &world.catalog.fleets {
            let provider = world.catalog.providers.get(&fleet.provider);
            let launched = provider.is_some_and(|provider| provider.kind.launches_hosts());
            let of_fleet =
                FleetUsage { gpus_per_host: fleet.gpus_per_host, launched, ..FleetUsage::default() };
            usage.fleets.insert(name, of_fleet);
        }
        let mut domains: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
        let mut zones: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
        for (name, host) in &world.catalog.hosts {
            let observed = world.observed.hosts.get(name);
            let closed = match observed {
                None => Some(Closed::NeverJoined),
                _ if host.cordoned => Some(Closed::Cordoned),
                Some(observed) if !observed.connected => Some(Closed::Silent),
                Some(observed) if observed.report.reclaim.is_some() => Some(Closed::Reclaimed),
                Some(_) if strangers.contains(name) => Some(Closed::Strangers),
                Some(_) if is_set_aside(world, name) => Some(Closed::SetAside),
                Some(_) => None,
            };
            let gpus = observed.map_or(&[][..], |observed| &observed.report.inventory.gpus);
            let (free_gpus, cpu_slots) = (count(gpus.len()), host.cpu_slots.unwrap_or(0));
            let fleet = usage.fleets.entry(&host.fleet).or_default();
            let domain_name = domain(name, host, observed);
            let told = || observed?.report.inventory.failure_domain.as_ref();
            let zone_name = host.failure_domain.as_ref().or_else(told).unwrap_or(domain_name);
            let zone = *zones.entry((&host.fleet, zone_name)).or_insert_with(|| {
                fleet.zones.push(Zone::default());
                fleet.zones.len() - 1
            });
            let place = *domains.entry((&host.fleet, domain_name)).or_insert_with(|| {
                let name = domain_name;
                let domain = Domain { name, hosts: Vec::new(), zone, free_gpus: 0, free_slots: 0 };
                fleet.domains.push(domain);
                fleet.domains.len() - 1
            });
            let of_domain = &mut fleet.domains[place];
            if closed.is_none() {
                of_domain.free_gpus += free_gpus;
                of_domain.free_slots += cpu_slots;
            }
            of_domain.hosts.push(fleet.hosts.len());
            usage.places.insert(name, (&host.fleet, fleet.hosts.len()));
            fleet.hosts.push(HostUsage {
                name,
                address: observed.map_or("", |observed| address(&observed.ingress)),
                closed,
                abilities: observed.map(|observed| &observed.report.inventory.abilities),
                domain: place,
                gpus,
                taken: Vec::new(),
                cpu_slots,
                used_slots: 0,
                ports: Vec::new(),
                held: Vec::new(),
            });
        }
        world.records.units.iter().for_each(|(id, unit)| usage.take(id, unit));
        usage
    }

    /// Of each fleet: what there is to take, how much of it, and how much of that is free.
    pub(crate) fn free(&self) -> BTreeMap<Name, (&'static str, u32, u32)> {
        let of_fleet = |fleet: &FleetUsage<'w>| {
            let resource = if fleet.hosts.iter().any(|host| !host.gpus.is_empty()) {
                Resource::Gpus
            } else {
                Resource::CpuSlots
            };
            let all = fleet.hosts.iter().map(|host| host.all(resource)).sum();
            let free = fleet.hosts.iter().map(|host| host.unused(resource)).sum();
            (resource.many(), all, free)
        };
        self.fleets.iter().map(|(name, fleet)| ((*name).clone(), of_fleet(fleet))).collect()
    }

    pub(super) fn fleet(&self, fleet: &Name) -> Option<&FleetUsage<'w>> {
        self.fleets.get(fleet)
    }

    fn take(&mut self, id: &'w UnitId, unit: &UnitRecord) {
        for member in &unit.members {
            let amount = if member.spec.claim.gpus.is_empty() {
                member.cpu_slots
            } else {
                count(member.spec.claim.gpus.len())
            };
            let Some((fleet, at)) = self.places.get(&member.host) else { continue };
            let Some(fleet) = self.fleets.get_mut(fleet) else { continue };
            fleet.hosts[*at].held.push((id, amount));
        }
        let members = unit.members.iter();
        let parts = members.map(|it| (&it.host, it.spec.claim.gpus.as_slice(), it.cpu_slots, it.first_port));
        self.occupy(&unit.stage, unit.template, parts);
    }

    /// As if a unit were there already.
    pub(crate) fn reserve(&mut self, stage: &StageId, template: Digest, placement: &Placement) {
        let places = placement.places.iter();
        let parts = places.map(|it| (&it.host, it.gpus.as_slice(), it.cpu_slots, it.first_port));
        self.occupy(stage, template, parts);
    }

    /// Takes what a unit's members have: of each its host, GPUs, CPU slots and first port.
    fn occupy<'u>(
        &mut self,
        stage: &StageId,
        template: Digest,
        parts: impl Iterator<Item = (&'u Name, &'u [u32], u32, u16)>,
    ) {
        let kind = self.kind(stage, template);
        let mut zones = BTreeSet::new();
        for (host, gpus, slots, first_port) in parts {
            let Some((fleet, at)) = self.places.get(host).copied() else { continue };
            let Some(fleet) = self.fleets.get_mut(fleet) else { continue };
            let zone = fleet.take(at, gpus, slots, first_port);
            if zones.insert(zone) {
                fleet.zones[zone].add(kind);
            }
        }
    }

    /// As if the unit were gone.
    pub(crate) fn give_back(&mut self, unit: &UnitRecord) {
        let kind = self.kind(&unit.stage, unit.template);
        let mut zones = BTreeSet::new();
        for member in &unit.members {
            let Some((fleet, at)) = self.places.get(&member.host).copied() else { continue };
            let Some(fleet) = self.fleets.get_mut(fleet) else { continue };
            let host = &mut fleet.hosts[at];
            let before = host.taken.len();
            host.taken.retain(|gpu| !member.spec.claim.gpus.contains(gpu));
            let (gpus, slots) = (count(before - host.taken.len()), member.cpu_slots.min(host.used_slots));
            host.used_slots -= slots;
            host.ports.retain(|port| *port != member.first_port);
            let is_open = host.closed.is_none();
            let domain = &mut fleet.domains[host.domain];
            if is_open {
                domain.free_gpus += gpus;
                domain.free_slots += slots;
            }
            let zone = domain.zone;
            if zones.insert(zone) {
                fleet.zones[zone].remove(kind);
            }
        }
    }

    fn kind(&mut self, stage: &StageId, template: Digest) -> usize {
        let known = self.kinds.iter().position(|(of, digest)| of == stage && *digest == template);
        known.unwrap_or_else(|| {
            self.kinds.push((stage.clone(), template));
            self.kinds.len() - 1
        })
    }

    pub(super) fn beside<'u>(&'u self, stage: &'u StageId, template: Digest) -> Beside<'u> {
        Beside { kinds: &self.kinds, stage, template }
    }
}

impl<'w> FleetUsage<'w> {
    /// Takes of a host, and says in which zone that is.
    fn take(&mut self, at: usize, gpus: &[u32], slots: u32, first_port: u16) -> usize {
        let host = &mut self.hosts[at];
        let before = host.taken.len();
        for gpu in gpus {
            if host.gpus.iter().any(|of| of.index == *gpu) && !host.taken.contains(gpu) {
                host.taken.push(*gpu);
            }
        }
        let taken = count(host.taken.len() - before);
        host.used_slots += slots;
        host.ports.push(first_port);
        let is_open = host.closed.is_none();
        let domain = &mut self.domains[host.domain];
        if is_open {
            domain.free_gpus = domain.free_gpus.saturating_sub(taken);
            domain.free_slots = domain.free_slots.saturating_sub(slots);
        }
        domain.zone
    }

    /// How many units a failure of the domain would take: of the release, and of all the stage's.
    pub(super) fn units_beside(&self, domain: &Domain<'_>, beside: &Beside<'_>) -> (u32, u32) {
        self.zones[domain.zone].units.iter().fold((0, 0), |(same, all), (kind, count)| {
            let (stage, template) = &beside.kinds[*kind];
            if stage != beside.stage {
                return (same, all);
            }
            (if *template == beside.template { same + count } else { same }, all + count)
        })
    }

    /// Whether every domain is a host of its own.
    pub(super) fn is_of_single_hosts(&self) -> bool {
        self.domains.len() == self.hosts.len()
    }
}

impl Domain<'_> {
    /// What its open hosts have to give.
    pub(super) fn free(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Gpus => self.free_gpus,
            Resource::CpuSlots => self.free_slots,
        }
    }
}

impl Zone {
    fn add(&mut self, kind: usize) {
        match self.units.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, count)) => *count += 1,
            None => self.units.push((kind, 1)),
        }
    }

    fn remove(&mut self, kind: usize) {
        if let Some((_, count)) = self.units.iter_mut().find(|(of, _)| *of == kind) {
            *count = count.saturating_sub(1);
        }
    }
}

impl HostUsage<'_> {
    pub(super) fn can(&self, ability: Ability) -> bool {
        self.abilities.is_some_and(|abilities| abilities.contains(&ability))
    }

    /// All it has, taken or not.
    pub(super) fn all(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Gpus => count(self.gpus.len()),
            Resource::CpuSlots => self.cpu_slots,
        }
    }

    /// What is not taken.
    fn unused(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Gpus => count(self.gpus.len() - self.taken.len()),
            Resource::CpuSlots => self.cpu_slots.saturating_sub(self.used_slots),
        }
    }

    /// What it has to give.
    pub(super) fn free(&self, resource: Resource) -> u32 {
        if self.closed.is_some() { 0 } else { self.unused(resource) }
    }

    /// Its domain, by its place in the fleet.
    pub(super) fn domain_place(&self) -> usize {
        self.domain
    }

    pub(super) fn free_gpus(&self) -> impl Iterator<Item = u32> {
        self.gpus.iter().map(|gpu| gpu.index).filter(|index| !self.taken.contains(index))
    }

    /// The lowest ports that no member here has, beyond the first `skip` of them. None: all are taken.
    pub(super) fn free_port(&self, skip: usize) -> Option<u16> {
        PORTS.step_by(usize::from(PORTS_OF_A_MEMBER)).filter(|port| !self.ports.contains(port)).nth(skip)
    }
}

impl Resource {
    pub(super) fn many(self) -> &'static str {
        match self {
            Resource::Gpus => "GPUs",
            Resource::CpuSlots => "CPU slots",
        }
    }

    pub(super) fn counted(self, count: u32) -> String {
        let many = self.many();
        if count == 1 { format!("1 {}", many.trim_end_matches('s')) } else { format!("{count} {many}") }
    }
}

fn is_set_aside(world: &World<'_>, host: &Name) -> bool {
    let until = world.records.hosts.get(host).and_then(HostFaults::set_aside_until);
    until.is_some_and(|until| until > world.now)
}

/// The host of `host:port`.
pub(crate) fn address(ingress: &str) -> &str {
    ingress.rsplit_once(':').map_or(ingress, |(host, _)| host.trim_matches(['[', ']']))
}

fn count(items: usize) -> u32 {
    u32::try_from(items).unwrap_or(u32::MAX)
}
