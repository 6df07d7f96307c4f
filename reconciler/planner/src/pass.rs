//! The state of one planning pass, which the decisions hand on.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::manifest::StageSpec;
use denv_schema::wire::Generation;
use denv_schema::{Name, StageId, UnitId};

use crate::placement::Usage;
use crate::plan::{Plan, Step, Subject};
use crate::records::{Rebuilt, UnitRecord};
use crate::routes::knows_what_serves;
use crate::status::{Fault, Service, UnitStatus};
use crate::strangers::Orphan;
use crate::waiting::WaitingOn;
use crate::world::World;
use crate::{adoption, loss, strangers};

/// The state of one planning pass.
pub(crate) struct Pass<'w> {
    pub world: &'w World<'w>,
    /// Hosts that run what no record knows.
    strangers: BTreeSet<Name>,
    /// Stages of which hosts run units that no record knows, and nobody has given up; with the highest of their numbers.
    orphaned: BTreeMap<StageId, u64>,
    silence: Option<Silence<'w>>,
    /// What is taken, with what this pass has placed. Most passes place nothing.
    usage: Option<Usage<'w>>,
    pub brake: Option<WaitingOn>,
    next_units: BTreeMap<StageId, u64>,
    pub plan: Plan,
    /// Times at which something is due, whatever is waited for.
    pub wakes: Vec<jiff::Timestamp>,
}

impl<'w> Pass<'w> {
    /// Nothing is planned yet but what becomes of what no record knows.
    pub(crate) fn begin(world: &'w World<'w>) -> Self {
        let strangers = strangers::of(world);
        let orphans = strangers::orphans(world, &strangers);
        let (mut steps, adopted) = adoption::adopt(world, &orphans);
        steps.extend(strangers::reap(world, &strangers, &adopted));
        let mut orphaned = BTreeMap::new();
        for Orphan { stage, number, .. } in orphans.into_values() {
            let most = orphaned.entry(stage).or_insert(number);
            *most = number.max(*most);
        }
        Pass {
            world,
            orphaned,
            strangers: strangers.iter().map(|stranger| stranger.host.clone()).collect(),
            silence: None,
            usage: None,
            brake: loss::brake(world),
            next_units: BTreeMap::new(),
            plan: Plan { steps, ..Plan::default() },
            wakes: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.plan.steps.push(step);
    }

    /// Only what is said last of a subject is shown, and what is due of the rest is due all the same.
    pub(crate) fn wait(&mut self, subject: Subject, on: WaitingOn) {
        self.wakes.extend(on.until());
        self.plan.waiting.insert(subject, on);
    }

    /// Has the world planned again then.
    pub(crate) fn wake(&mut self, at: jiff::Timestamp) {
        self.wakes.push(at);
    }

    pub(crate) fn usage(&mut self) -> &mut Usage<'w> {
        self.usage.get_or_insert_with(|| Usage::of(self.world, &self.strangers))
    }

    pub(crate) fn drain(&mut self, unit: &Unit<'_>, reason: String, repair_at: Option<jiff::Timestamp>) {
        let blame = if let UnitStatus::Failed { fault: Fault::Host(host), .. } = &unit.status {
            Some(host.clone())
        } else {
            None
        };
        self.step(Step::DrainUnit { unit: unit.id.clone(), reason, repair_at, blame, at: self.world.now });
    }

    /// Where records were lost, what is decided changes when nobody is waited for any more.
    pub(crate) fn await_the_unheard(&mut self) {
        if !self.strangers.is_empty() || !knows_what_serves(self.world) {
            self.wake(strangers::gateways_heard(self.world));
            self.wake(strangers::all_heard(self.world));
        }
    }

    /// What a stage waits on before it starts anything, where hosts may run its units and the records can't say.
    pub(crate) fn unheard(&mut self, id: &StageId, spec: &StageSpec) -> Option<WaitingOn> {
        let (world, orphaned) = (self.world, self.orphaned.contains_key(id));
        adoption::unheard(world, id, orphaned, || {
            let silent = &self.silence().silent;
            spec.fleets.iter().any(|fleet| silent.contains(&fleet.name))
        })
    }

    /// The generation that new units of a fleet begin with. A host that these records have never heard may run a unit of
    /// the same name, whose generation must be another.
    pub(crate) fn first_generation(&mut self, fleet: &Name) -> Generation {
        let now = Generation::try_from(self.world.now.as_second()).unwrap_or(1).max(1);
        if self.silence().unknown.contains(fleet) { now } else { 1 }
    }

    fn silence(&mut self) -> &Silence<'w> {
        let world = self.world;
        self.silence.get_or_insert_with(|| {
            let mut silence = Silence::default();
            for (name, host) in &world.catalog.hosts {
                let observed = world.observed.hosts.get(name);
                if observed.is_none() {
                    silence.unknown.insert(&host.fleet);
                }
                if observed.is_none_or(|observed| !observed.connected) {
                    silence.silent.insert(&host.fleet);
                }
            }
            silence
        })
    }

    pub(crate) fn next_unit(&mut self, stage: &StageId) -> u64 {
        let recorded = self.world.records.stages.get(stage).map_or(0, |record| record.next_unit);
        let orphaned = self.orphaned.get(stage).map_or(0, |number| number + 1 + Rebuilt::UNSEEN);
        let next = self.next_units.entry(stage.clone()).or_insert(recorded.max(orphaned));
        *next += 1;
        *next - 1
    }
}

/// Fleets of which not all hosts can be asked.
#[derive(Default)]
struct Silence<'w> {
    /// Some are not connected.
    silent: BTreeSet<&'w Name>,
    /// Some were never heard, as far as the records go.
    unknown: BTreeSet<&'w Name>,
}

/// A unit as recorded, and what it is.
pub(crate) struct Unit<'w> {
    pub id: &'w UnitId,
    pub record: &'w UnitRecord,
    pub status: UnitStatus,
    pub service: Service,
}

impl Unit<'_> {
    /// In rotation, recorded so, and just heard of.
    pub(crate) fn is_ready(&self) -> bool {
        self.service == Service::Sure
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.status, UnitStatus::Failed { .. })
    }
}
