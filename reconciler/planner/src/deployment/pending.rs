//! What a deployment waits for before anything moves: room for all of it, hosts that have
//! prepared it, a person, its window, and quiet alarms.

use std::collections::BTreeSet;

use denv_schema::Name;
use denv_schema::manifest::Strategy;

use super::prefetch::Unprepared;
use super::{Stage, is_approved};
use crate::calendar;
use crate::converge::count;
use crate::pass::{Pass, Unit};
use crate::placement::place;
use crate::records::Deployment;
use crate::status::{Service, UnitStatus};
use crate::waiting::WaitingOn;

impl Stage<'_> {
    /// Starts only when every unit has room, in the end and on the way, who must approve it has, and batches may begin.
    pub(super) fn pending(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        let hosts = match self.room(pass) {
            Ok(hosts) => hosts,
            Err(waiting) => return self.wait_for_room(pass, deployment, waiting),
        };
        // Also while a person or a window is waited for.
        let prepared = self.prefetch(pass, deployment, &hosts);
        if !is_approved(&self.spec.rollout, deployment) {
            let (stage, to) = (self.id.clone(), deployment.to.clone());
            self.stay_pending(pass, WaitingOn::Approval { stage, to });
        } else if let Err(waiting) = calendar::may_begin(&self.spec.rollout, pass.world.now) {
            self.stay_pending(pass, waiting);
        } else if let Some(waiting) = self.fires_already(pass) {
            self.stay_pending(pass, waiting);
        } else {
            match prepared {
                Ok(()) => self.move_to(pass, self.first_phase(pass), None),
                Err(Unprepared::Failed(reason)) => self.fail(pass, deployment, reason),
                Err(Unprepared::Waiting(waiting)) if self.is_overdue(pass, deployment) => {
                    self.fail(pass, deployment, format!("it was not prepared in time: {waiting}"));
                }
                Err(Unprepared::Waiting(waiting)) => self.stay_pending(pass, waiting),
            }
        }
    }

    fn wait_for_room(&self, pass: &mut Pass<'_>, deployment: &Deployment, waiting: WaitingOn) {
        if self.is_overdue(pass, deployment) {
            self.fail(pass, deployment, format!("there was no room in time: {waiting}"));
            return;
        }
        if self.record.good.is_none() {
            self.make_room(pass);
        }
        self.keep_prefetching(pass, deployment);
        self.stay_pending(pass, waiting);
    }

    fn stay_pending(&self, pass: &mut Pass<'_>, waiting: WaitingOn) {
        if self.record.good.is_some() {
            // What runs is kept meanwhile, also when its units fail.
            self.keep(pass, false);
        }
        self.wait(pass, waiting);
    }

    /// Nothing was ever good: what an earlier try has started and serves nobody, or is more than is wanted, must not
    /// stand in the way.
    fn make_room(&self, pass: &mut Pass<'_>) {
        for (fleet, wanted) in &self.counts {
            let here = self.units.iter().filter(|unit| unit.record.fleet == *fleet);
            let mut others: Vec<&Unit<'_>> = here
                .filter(|unit| unit.record.is_active())
                .filter(|unit| unit.record.template != self.release.digest || unit.is_failed())
                .collect();
            others.sort_by_key(|unit| std::cmp::Reverse((unit.service, unit.record.created, unit.id)));
            for (place, unit) in (0..).zip(others) {
                let is_silent = matches!(unit.status, UnitStatus::Silent { .. });
                if (unit.service == Service::Nobody || place >= *wanted) && !is_silent {
                    pass.drain(unit, "its stage wants another release now".to_owned(), None);
                }
            }
        }
    }

    /// The hosts where units that are to come have room, now and in the end.
    fn room(&self, pass: &mut Pass<'_>) -> Result<BTreeSet<Name>, WaitingOn> {
        let mut hosts = BTreeSet::new();
        for (fleet, wanted) in &self.counts {
            let here = || self.units.iter().filter(|unit| unit.record.fleet == *fleet);
            let mine = count(here().filter(|unit| unit.record.template == self.release.digest));
            if mine >= *wanted {
                continue;
            }
            // In the end: where only what is not replaced remains.
            let mut usage = pass.usage().clone();
            here()
                .filter(|unit| unit.record.template != self.release.digest)
                .for_each(|unit| usage.give_back(unit.record));
            for _ in mine..*wanted {
                let placement = place(&usage, self.id, fleet, &self.release)?;
                usage.reserve(self.id, self.release.digest, &placement);
                hosts.extend(placement.places.into_iter().map(|place| place.host));
            }
            // On the way: a surge needs room for one more beside what runs.
            let surges = match self.spec.rollout.strategy {
                Strategy::Surge => true,
                Strategy::Auto => self.spec.rollout.max_unavailable.of_rounded_down(self.total()) == 0,
                Strategy::Replace => false,
            };
            if surges {
                let placement = place(pass.usage(), self.id, fleet, &self.release)?;
                hosts.extend(placement.places.into_iter().map(|place| place.host));
            }
        }
        Ok(hosts)
    }
}
