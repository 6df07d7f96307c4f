//! Members that hosts run and no record knows: what is left of a unit that was given up with its host, when the host
//! comes back after all; or, where the records were lost, what they were of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use denv_schema::wire::{Action, Command, Generation, MemberReport, MemberState, Rotation};
use denv_schema::{MemberId, Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};

use crate::plan::Step;
use crate::records::{Rebuilt, Records, UnitRecord};
use crate::world::World;

/// After the start of a process everybody who can has dialled in by then; and other gateways after the first.
const ALL_HEARD: SignedDuration = SignedDuration::from_secs(60);
/// Hosts that are there have dialled in by then.
const HOSTS_HEARD: SignedDuration = SignedDuration::from_secs(5);
/// Gateways that are there have dialled in by then.
const GATEWAYS_HEARD: SignedDuration = SignedDuration::from_secs(20);

/// A member that no record knows, as its host last said.
#[derive(Clone, Copy)]
pub(crate) struct Stranger<'w> {
    pub host: &'w Name,
    /// Whether its host is connected, and says so now.
    pub is_heard: bool,
    pub member: &'w MemberId,
    pub report: &'w MemberReport,
}

/// All there are. What has ended is none.
pub(crate) fn of<'w>(world: &World<'w>) -> Vec<Stranger<'w>> {
    let members = |unit: &'w Arc<UnitRecord>| unit.members.iter().map(|member| (&member.host, &member.id));
    let known: BTreeSet<(&Name, &MemberId)> = world.records.units.values().flat_map(members).collect();
    let mut found = Vec::new();
    for (host, observed) in &world.observed.hosts {
        let running = observed.report.members.iter().filter(|(_, it)| it.state != MemberState::Stopped);
        let strangers = running.filter(|(member, _)| !known.contains(&(host, *member)));
        let is_heard = observed.connected;
        found.extend(strangers.map(|(member, report)| Stranger { host, is_heard, member, report }));
    }
    found
}

/// Whether the unit's number was given by records that are lost, as far as the records of now can tell: then nobody has
/// given the unit up.
pub(crate) fn is_orphan(records: &Records, stage: &StageId, number: u64) -> bool {
    records.stages.get(stage).is_none_or(|record| {
        number >= record.next_unit || record.rebuilt.is_some_and(|Rebuilt { below, .. }| number < below)
    })
}

/// A unit that no record knows, and nobody has given up.
pub(crate) struct Orphan<'w> {
    pub stage: StageId,
    pub number: u64,
    /// What hosts run of it, by rank.
    pub members: BTreeMap<u32, Stranger<'w>>,
}

/// The orphans that strangers are of.
pub(crate) fn orphans<'w>(world: &World<'w>, strangers: &[Stranger<'w>]) -> BTreeMap<UnitId, Orphan<'w>> {
    let mut found: BTreeMap<UnitId, Orphan<'w>> = BTreeMap::new();
    for stranger in strangers {
        let Some((unit, rank)) = stranger.member.parts() else { continue };
        let Some((stage, number)) = unit.parts() else { continue };
        if is_orphan(world.records, &stage, number) && !world.records.units.contains_key(&unit) {
            let orphan = || Orphan { stage, number, members: BTreeMap::new() };
            found.entry(unit).or_insert_with(orphan).members.insert(rank, *stranger);
        }
    }
    found
}

/// What gateways say of a unit that is not in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// A gateway knows it, and may send to it soon.
    pub known: bool,
    /// It was on its way out.
    pub leaving: bool,
    /// A gateway sends to it, or has requests there.
    pub served: bool,
}

/// What gateways say of it, in its generation; none, where there may be gateways and none has been heard.
pub(crate) fn traffic(world: &World<'_>, unit: &UnitId, generation: Generation) -> Option<Traffic> {
    let gateways = || world.observed.gateways.values();
    let reports = || gateways().filter_map(|gateway| gateway.unit(unit, generation));
    let there_is_none = || gateways().next().is_none() && world.now >= gateways_heard(world);
    let is_heard = gateways().any(|gateway| gateway.connected) || there_is_none();
    is_heard.then(|| Traffic {
        known: reports().next().is_some(),
        leaving: reports().any(|report| report.rotation == Rotation::Out),
        served: reports().any(|report| report.in_rotation || report.inflight > 0),
    })
}

/// When a gateway that is there has dialled in.
pub(crate) fn gateways_heard(world: &World<'_>) -> Timestamp {
    world.observed.since + GATEWAYS_HEARD
}

/// When hosts that are there have dialled in.
pub(crate) fn hosts_heard(world: &World<'_>) -> Timestamp {
    world.observed.since + HOSTS_HEARD
}

/// When nobody who may still dial in is waited for any more.
pub(crate) fn all_heard(world: &World<'_>) -> Timestamp {
    // They may all have been away for long, and come back one after the other.
    let first = world.observed.gateways.values().map(|gateway| gateway.first_heard).min();
    first.map_or(world.observed.since, |first| first.max(world.observed.since)) + ALL_HEARD
}

/// What is to end of them: what denv knows it gave up, because its number was given and will not be again; and of orphans
/// that could not be adopted what serves nobody. Nothing else ends.
pub(crate) fn reap(world: &World<'_>, strangers: &[Stranger<'_>], adopted: &BTreeSet<UnitId>) -> Vec<Step> {
    let mut steps = Vec::new();
    for Stranger { host, member, report, .. } in strangers.iter().filter(|stranger| stranger.is_heard) {
        let Some((unit, _)) = member.parts().filter(|(unit, _)| !adopted.contains(unit)) else { continue };
        let Some((stage, number)) = unit.parts() else { continue };
        let ends = if is_orphan(world.records, &stage, number) {
            world.now >= all_heard(world) && is_let_go(world, &unit, report.generation)
        } else {
            // One of the same name may be recorded elsewhere.
            let is_known = || traffic(world, &unit, report.generation).is_none_or(|traffic| traffic.known);
            !world.records.units.contains_key(&unit) || !is_known()
        };
        if ends && report.state != MemberState::Stopping && !is_ending(world, member, report.generation) {
            steps.push(Step::EndStranger {
                unit,
                host: (*host).clone(),
                member: (*member).clone(),
                generation: report.generation,
                at: world.now,
            });
        }
    }
    steps
}

/// Whether all gateways that are alive say that they do not know the unit, in its generation.
fn is_let_go(world: &World<'_>, unit: &UnitId, generation: Generation) -> bool {
    let mut live = world.live_gateways().peekable();
    live.peek().is_some()
        && live.all(|(_, gateway)| gateway.connected && gateway.unit(unit, generation).is_none())
}

/// Whether its host is told to end it.
pub(crate) fn is_ending(world: &World<'_>, member: &MemberId, generation: Generation) -> bool {
    world.records.pending.contains(&stop(member, generation).id)
}

pub(crate) fn stop(member: &MemberId, generation: Generation) -> Command {
    Command::new(0, member.clone(), generation, Action::Stop {})
}
