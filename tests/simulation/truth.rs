//! What must hold of what really runs and of what gateways really do, whatever the planner believes.

use std::collections::{BTreeMap, BTreeSet};

use denv_planner::{MemberRecord, Step, UnitPhase, wanted};
use denv_schema::wire::Generation;
use denv_schema::{MemberId, UnitId};
use jiff::Timestamp;

use crate::host::Host;
use crate::world::Simulation;

#[derive(Default)]
pub struct Truth {
    /// Since which second a unit's engine serves and a gateway sends to it, and when it last did.
    ready: BTreeMap<UnitId, (i64, i64)>,
    /// When it was decided that a member ends.
    ends: BTreeMap<MemberId, Timestamp>,
    /// The CPU slots that each member was given.
    pub slots: BTreeMap<MemberId, u32>,
}

impl Simulation {
    pub fn serving(&self) -> BTreeSet<(MemberId, Generation)> {
        let engines = self.hosts.iter().flat_map(|host| &host.engines).filter(|engine| engine.serves());
        engines.map(|engine| (engine.member.clone(), engine.generation)).collect()
    }

    fn live_gateways(&self) -> impl Iterator<Item = &crate::gateway::Gateway> {
        self.gateways.iter().filter(|gateway| gateway.is_live(self.now))
    }

    /// A serving engine was told to end.
    pub fn stopped_by_command(&self, member: &MemberId, generation: Generation) {
        let decided = self.truth.ends.get(member).copied().unwrap_or(self.now);
        for gateway in self.live_gateways() {
            // One that was taken for dead then, and is back, hears of it now.
            if gateway.last_dead.is_some_and(|at| at >= decided) {
                continue;
            }
            assert!(
                !gateway.sends_to(member, generation),
                "`{member}` was stopped while `{}` sends to it\n{}",
                gateway.name,
                self.transcript()
            );
        }
    }

    /// After every second.
    pub fn look_at_truth(&mut self) {
        for host in &self.hosts {
            let mut gpus: BTreeMap<u32, &MemberId> = BTreeMap::new();
            let mut members: BTreeSet<&MemberId> = BTreeSet::new();
            let mut slots = 0;
            for engine in &host.engines {
                for gpu in &engine.gpus {
                    let other = gpus.insert(*gpu, &engine.member);
                    assert!(
                        other.is_none_or(|other| *other == engine.member),
                        "GPU {gpu} of `{}` is used by `{}` and `{:?}`\n{}",
                        host.name,
                        engine.member,
                        other,
                        self.transcript()
                    );
                }
                if members.insert(&engine.member) {
                    slots += self.truth.slots.get(&engine.member).copied().unwrap_or(0);
                }
            }
            assert!(slots <= host.slots, "{slots} slots of `{}` are used\n{}", host.name, self.transcript());
            for ((member, generation), count) in &host.starts {
                assert!(
                    *count <= 1,
                    "`{member}` was started {count} times in generation {generation}\n{}",
                    self.transcript()
                );
            }
        }
        let now = self.now;
        for gateway in &mut self.gateways {
            if !gateway.is_live(now) {
                gateway.last_dead = Some(now);
            }
        }
        let (second, serving) = (self.second(), self.serving());
        let lost = self.lost.iter().filter(|(id, _)| !self.records.units.contains_key(*id));
        for (id, unit) in self.records.units.iter().chain(lost) {
            let front = &unit.front().id;
            let sends = || self.gateways.iter().any(|gateway| gateway.sends_to(front, unit.generation));
            let serves = |member: &MemberRecord| serving.contains(&(member.id.clone(), unit.generation));
            // An engine that ended has taken along what the others of its pool were doing.
            let is_broken = |member: &MemberRecord| {
                let of_pool = unit.members.iter().filter(|other| other.pool == member.pool).count();
                of_pool > 1 && self.hosts.iter().any(|host| host.restarts(&member.id) > 0)
            };
            if unit.members.iter().all(|member| serves(member) && !is_broken(member)) && sends() {
                let entry = self.truth.ready.entry(id.clone()).or_insert((second, second));
                let since = if entry.1 + 1 >= second { entry.0 } else { second };
                *entry = (since, second);
            }
        }
    }

    /// A step that takes a unit out of service must leave its stage what it is owed. What is newer than messages
    /// take is nobody's fault.
    pub fn judge(&mut self, step: &Step) {
        if let Step::StartUnit { record, .. } = step {
            let given = record.members.iter().map(|member| (member.id.clone(), member.cpu_slots));
            self.truth.slots.extend(given);
        }
        if let Step::StopUnit { unit, at } = step {
            for member in &self.records.units[unit].members {
                self.truth.ends.insert(member.id.clone(), *at);
            }
        }
        let (Step::DrainUnit { unit, .. } | Step::RestartUnit { unit, .. }) = step else { return };
        let Some(record) = self.records.units.get(unit) else { return };
        // What its provider takes back ends whatever denv does; so does what was, as far as denv has heard.
        let is_taken = |host: &Host| {
            let heard = self.observed.hosts.get(&host.name).and_then(|known| known.report.reclaim);
            host.reclaim.or(heard).is_some()
        };
        if self.hosts.iter().any(|host| record.is_on(&host.name) && is_taken(host)) {
            return;
        }
        let patience = 2 * i64::try_from(self.lag).unwrap() + 4;
        let second = self.second();
        let Some((since, last)) = self.truth.ready.get(unit) else { return };
        let surely_ready = *last == second && since + patience < second;
        let Some(spec) = self.catalog.stages.get(&record.stage) else { return };
        let has_good = self.records.stages.get(&record.stage).is_some_and(|stage| stage.good.is_some());
        if !surely_ready || !has_good {
            return;
        }
        let total = wanted(spec, self.records.stages.get(&record.stage));
        let floor = total.saturating_sub(spec.rollout.max_unavailable.of_rounded_down(total));
        let left = self.records.units.iter().filter(|(id, other)| {
            let was_ready = self.truth.ready.get(*id).is_some_and(|(_, last)| last + patience >= second);
            other.stage == record.stage
                && *id != unit
                && matches!(other.phase, UnitPhase::Starting | UnitPhase::Ready)
                && was_ready
        });
        let left = u32::try_from(left.count()).unwrap();
        assert!(
            left >= floor,
            "`{unit}` leaves `{}` with {left} ready units of {floor}: {step}\n{}",
            record.stage,
            self.transcript()
        );
    }

    /// Why the world is not at rest as it should be, if it is not.
    pub fn unsettled(&self) -> Option<String> {
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        for (stage, spec) in &self.catalog.stages {
            let Some(record) = self.records.stages.get(stage) else {
                return Some(format!("stage {stage} was never planned\n{}", self.transcript()));
            };
            if record.deployment.as_ref().is_some_and(|deployment| !deployment.phase.is_over()) {
                return Some(format!("a deployment is not over\n{}", self.transcript()));
            }
            let name = match &record.hold {
                Some(_) => record.good.as_ref().map(|good| good.release.to_string()),
                None => Some(spec.release.to_string()),
            };
            if let Some(name) = name {
                *expected.entry(name).or_default() += wanted(spec, Some(record)) as usize;
            }
        }
        let running: BTreeMap<String, usize> =
            self.running().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        if running != expected || self.ready() != expected.values().sum::<usize>() {
            return Some(format!("expected {expected:?}, and {running:?} run\n{}", self.transcript()));
        }
        let wanted: BTreeSet<&MemberId> =
            self.records.units.values().flat_map(|unit| &unit.members).map(|member| &member.id).collect();
        for host in &self.hosts {
            let left = host.engines.iter().find(|engine| !wanted.contains(&engine.member));
            if left.is_some() {
                return Some(format!(
                    "left over on `{}`: {:?}\n{}",
                    host.name,
                    host.leftovers(),
                    self.transcript()
                ));
            }
        }
        None
    }
}
