//! The state of one planning pass, which the decisions hand on.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::{Name, StageId, UnitId};

use crate::placement::Usage;
use crate::plan::{Plan, Step, Subject};
use crate::records::UnitRecord;
use crate::status::{Fault, Service, UnitStatus};
use crate::waiting::WaitingOn;
use crate::world::World;
use crate::{loss, strangers};

/// The state of one planning pass.
pub(crate) struct Pass<'w> {
    pub world: &'w World<'w>,
    /// Hosts that run what no record knows.
    strangers: BTreeSet<Name>,
    /// What is taken, with what this pass has placed. Most passes place nothing.
    usage: Option<Usage<'w>>,
    pub brake: Option<WaitingOn>,
    next_units: BTreeMap<StageId, u64>,
    pub plan: Plan,
    /// Times at which something is due, whatever is waited for.
    pub wakes: Vec<jiff::Timestamp>,
}

impl<'w> Pass<'w> {
    /// Nothing is planned yet but the end of what no record knows.
    pub(crate) fn begin(world: &'w World<'w>) -> Self {
        let (strangers, ends) = strangers::reap(world);
        Pass {
            world,
            strangers,
            usage: None,
            brake: loss::brake(world),
            next_units: BTreeMap::new(),
            plan: Plan { steps: ends, ..Plan::default() },
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

    pub(crate) fn next_unit(&mut self, stage: &StageId) -> u64 {
        let recorded = self.world.records.stages.get(stage).map_or(0, |record| record.next_unit);
        let next = self.next_units.entry(stage.clone()).or_insert(recorded);
        *next += 1;
        *next - 1
    }
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
