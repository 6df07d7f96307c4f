//! Records made anew from what hosts run, where the store that had them is lost: what runs is kept as it is, and goes on
//! serving. A unit is adopted whole, and only when a release of the manifests explains every one of its members to the
//! digest.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::launch::{LaunchTemplate, MemberPlace, PoolTemplate};
use denv_schema::manifest::StageSpec;
use denv_schema::wire::MemberState;
use denv_schema::{Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};

use crate::placement::address;
use crate::plan::Step;
use crate::records::{Good, MemberRecord, Rebuilt, StageRecord, UnitPhase, UnitRecord};
use crate::strangers::{self, Orphan, Stranger, traffic};
use crate::waiting::WaitingOn;
use crate::world::{GATEWAY_LOST_AFTER, World, signed};

/// Others that may run units of the stage have dialled in by then.
const OTHERS_HEARD: SignedDuration = SignedDuration::from_secs(30);

/// The orphans whose records can be made anew, and the steps that do it.
pub(crate) fn adopt(
    world: &World<'_>,
    orphans: &BTreeMap<UnitId, Orphan<'_>>,
) -> (Vec<Step>, BTreeSet<UnitId>) {
    let (mut steps, mut adopted) = (Vec::new(), BTreeSet::new());
    if orphans.is_empty() {
        return (steps, adopted);
    }
    let mut taken = Taken::of(world);
    let mut good: BTreeSet<&StageId> = BTreeSet::new();
    for (unit, orphan) in orphans {
        let stage = &orphan.stage;
        let Some(spec) = world.catalog.stages.get(stage) else { continue };
        let Some((record, template)) = explain(world, unit, orphan, spec) else { continue };
        if !is_wanted(world, unit, &record, spec) || !taken.has_room_for(world, &record) {
            continue;
        }
        taken.add(&record);
        adopted.insert(unit.clone());
        let known = world.records.stages.get(stage).and_then(|record| record.good.as_ref());
        if known.is_none() && record.release != spec.release && good.insert(stage) {
            let (release, digest) = (record.release.clone(), record.template);
            let good = Good { release, template: template.clone(), digest };
            steps.push(Step::MarkGood { stage: stage.clone(), good });
        }
        steps.push(Step::AdoptUnit { unit: unit.clone(), record, at: world.now });
    }
    (steps, adopted)
}

/// Whether it was wanted when its records were lost, as far as gateways can tell. What was on its way out goes out, and
/// what no gateway sends to may be waiting for its gate.
fn is_wanted(world: &World<'_>, unit: &UnitId, record: &UnitRecord, spec: &StageSpec) -> bool {
    let is_gated = spec.parity.as_ref().is_some_and(|parity| parity.before);
    let traffic = traffic(world, unit, record.generation);
    traffic.is_some_and(|traffic| !traffic.leaving && (traffic.served || !is_gated))
}

/// The unit's record, and the template of the release that it runs.
fn explain<'w>(
    world: &World<'w>,
    unit: &UnitId,
    Orphan { stage, members, .. }: &Orphan<'w>,
    spec: &StageSpec,
) -> Option<(UnitRecord, &'w LaunchTemplate)> {
    let ranks = u32::try_from(members.len()).ok()?;
    let generation = members.values().next()?.report.generation;
    let fleet = &world.catalog.hosts.get(members.values().next()?.host)?.fleet;
    let mut places = Vec::new();
    for (_, Stranger { host, is_heard, member, report }) in members.iter().filter(|(rank, _)| **rank < ranks)
    {
        let is_whole = *is_heard
            && !strangers::is_ending(world, member, generation)
            && report.generation == generation
            && report.state != MemberState::Stopping;
        let is_of_fleet = world.catalog.hosts.get(*host).is_some_and(|host| host.fleet == *fleet);
        let claim = report.claim.as_ref().filter(|_| is_whole && is_of_fleet)?;
        places.push(MemberPlace {
            pool: claim.pool,
            host: (*host).clone(),
            address: address(&world.host(host)?.ingress).to_owned(),
            gpus: claim.gpus.clone(),
            cpu_slots: claim.cpu_slots,
            first_port: claim.first_port,
        });
    }
    let told = members.values().map(|stranger| stranger.report.spec);
    let wanted = world.catalog.rendered.get_key_value(&spec.release);
    let (release, rendered, records) =
        wanted.into_iter().chain(&world.catalog.rendered).find_map(|(name, it)| {
            let records =
                fills(&it.template, &places).then(|| MemberRecord::of_unit(unit, &it.template, &places))?;
            records.iter().map(|record| record.digest).eq(told.clone()).then_some((name, it, records))
        })?;
    let began = members.values().map(|stranger| stranger.report.since).min()?;
    let record = UnitRecord {
        stage: stage.clone(),
        fleet: fleet.clone(),
        release: release.clone(),
        template: rendered.digest,
        members: records,
        chosen: None,
        generation,
        phase: UnitPhase::Starting,
        since: world.now,
        created: began.min(world.now),
        restarts_in_a_row: 0,
        withheld: false,
        reason: None,
    };
    Some((record, &rendered.template))
}

/// Whether these places are those of a release's pools.
fn fills(template: &LaunchTemplate, places: &[MemberPlace]) -> bool {
    let of_pool = |pool| places.iter().filter(move |place| place.pool == pool);
    let is_pool = |place: &MemberPlace| template.pools.iter().any(|pool| pool.name == place.pool);
    let is_full = |pool: &PoolTemplate| {
        let gpus: usize = of_pool(pool.name).map(|place| place.gpus.len()).sum();
        of_pool(pool.name).next().is_some() && gpus == pool.needs.gpus.unwrap_or(0) as usize
    };
    template.pools.iter().all(is_full) && places.iter().all(is_pool)
}

/// What of each host belongs to a unit already.
struct Taken {
    gpus: BTreeSet<(Name, u32)>,
    slots: BTreeMap<Name, u32>,
}

impl Taken {
    fn of(world: &World<'_>) -> Self {
        let mut taken = Taken { gpus: BTreeSet::new(), slots: BTreeMap::new() };
        world.records.units.values().for_each(|unit| taken.add(unit));
        taken
    }

    fn add(&mut self, unit: &UnitRecord) {
        for member in &unit.members {
            self.gpus.extend(member.spec.claim.gpus.iter().map(|gpu| (member.host.clone(), *gpu)));
            *self.slots.entry(member.host.clone()).or_default() += member.cpu_slots;
        }
    }

    fn has_room_for(&self, world: &World<'_>, unit: &UnitRecord) -> bool {
        unit.members.iter().all(|member| {
            let mut gpus = member.spec.claim.gpus.iter();
            let of = world.catalog.hosts.get(&member.host).and_then(|host| host.cpu_slots).unwrap_or(0);
            let slots = self.slots.get(&member.host).copied().unwrap_or(0);
            gpus.all(|gpu| !self.gpus.contains(&(member.host.clone(), *gpu)))
                && (member.cpu_slots == 0 || slots + member.cpu_slots <= of)
        })
    }
}

/// What a stage waits on before it starts anything: hosts that may run its units already, where the records can't say.
pub(crate) fn unheard(
    world: &World<'_>,
    stage: &StageId,
    has_orphans: bool,
    may_be_unheard: impl FnOnce() -> bool,
) -> Option<WaitingOn> {
    let record = world.records.stages.get(stage);
    let until: Timestamp = match record.and_then(StageRecord::others_heard) {
        Some(until) => until,
        None if record.is_some_and(|record| record.next_unit > 0) => return None,
        None if has_orphans => strangers::all_heard(world),
        None => strangers::hosts_heard(world),
    };
    (world.now < until && (has_orphans || may_be_unheard())).then_some(WaitingOn::Recovery { until })
}

impl StageRecord {
    /// Until when others may still tell of units whose records were lost.
    pub(crate) fn others_heard(&self) -> Option<Timestamp> {
        Some(self.rebuilt?.since + OTHERS_HEARD)
    }

    /// Until when a gateway may send to units whose records were lost. Which there are was lost too, so one that has not
    /// dialled in by then is taken for dead.
    pub(crate) fn gateways_heard(&self) -> Option<Timestamp> {
        Some(self.rebuilt?.since + signed(GATEWAY_LOST_AFTER))
    }
}

impl Rebuilt {
    /// More numbers than may have been given to units that nobody has told of yet.
    pub(crate) const UNSEEN: u64 = 1_000;
}
