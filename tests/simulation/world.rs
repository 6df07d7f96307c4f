//! The reconciler in a simulated world: the real planner, and all that is between it and what really runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use denv_planner::actions::{Refusal, act};
use denv_planner::{Observed, Plan, Records, Step, UnitRecord, World, checker, plan};
use denv_schema::api::{RolloutAction, RolloutRequest};
use denv_schema::wire::Command;
use denv_schema::{Catalog, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::control::{Control, is_woken, reloaded};
use crate::gates::Runs;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::manifests::{Shape, stage_id};
use crate::truth::Truth;
use crate::wishes::Wishes;

pub struct Simulation {
    pub wishes: Wishes,
    pub catalog: Catalog,
    /// By the numbers that events have for them, also those that no manifest has now.
    pub stages: Vec<StageId>,
    pub records: Records,
    /// What was recorded when the store was lost.
    pub lost: BTreeMap<UnitId, Arc<UnitRecord>>,
    pub observed: Observed,
    /// As the store has it: a second old.
    saved: Observed,
    pub control: Control,
    /// The process ends after so many more writes, before it has told anybody of the last.
    pub dies_after: Option<u32>,
    /// What wakes each host's stream.
    pub queues: Vec<Option<Arc<Notify>>>,
    /// Until then there is no reconciler.
    pub down_until: Option<Timestamp>,
    pub hosts: Vec<Host>,
    pub gateways: Vec<Gateway>,
    /// The most seconds that a message takes.
    pub lag: u64,
    pub busy: bool,
    pub healed: bool,
    pub began: Timestamp,
    pub now: Timestamp,
    random: u64,
    pub truth: Truth,
    pub runs: Runs,
    /// A person has gone on in spite of what a gate said.
    pub overruled: bool,
    /// Nothing is heard and nothing was to do: planning again is in vain until then.
    pub quiet_until: Option<Option<Timestamp>>,
    pub steps: u32,
    pub log: Vec<String>,
    /// What people read of: the steps that were written, since when in seconds.
    pub events: Vec<(i64, String)>,
}

/// What a world begins with.
pub struct Beginning {
    pub wishes: Wishes,
    pub catalog: Catalog,
    pub stages: Vec<StageId>,
    pub control: Control,
    pub observed: Observed,
    pub hosts: Vec<Host>,
    pub gateways: Vec<Gateway>,
    pub lag: u64,
    pub now: Timestamp,
}

impl Simulation {
    pub fn begin(beginning: Beginning, seed: u64) -> Self {
        let Beginning { wishes, catalog, stages, control, observed, hosts, gateways, lag, now } = beginning;
        let mut simulation = Simulation {
            wishes,
            catalog,
            stages,
            records: control.records().clone(),
            lost: BTreeMap::new(),
            saved: observed.clone(),
            observed,
            control,
            dies_after: None,
            queues: vec![None; hosts.len()],
            down_until: None,
            hosts,
            gateways,
            lag,
            busy: false,
            healed: false,
            began: now,
            now,
            random: seed | 1,
            truth: Truth::default(),
            runs: Runs::default(),
            overruled: false,
            quiet_until: None,
            steps: 0,
            log: Vec::new(),
            events: Vec::new(),
        };
        simulation.attach_all();
        simulation
    }

    pub fn new(shape: Shape, seed: u64) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (wishes, catalog) = Wishes::of_shape(&shape);
        let hosts = shape.hosts().into_iter().map(|(name, fleet)| {
            let fleet = &shape.fleets[fleet];
            Host::new(name, Host::inventory(fleet.gpus), fleet.slots)
        });
        let gateways = 0..shape.gateways;
        let beginning = Beginning {
            wishes,
            catalog,
            stages: (0..shape.stages.len()).map(stage_id).collect(),
            control: Control::new(now),
            observed: Observed { since: now, ..Observed::default() },
            hosts: hosts.collect(),
            gateways: gateways.map(|index| Gateway::new(format!("g{index}").parse().unwrap(), now)).collect(),
            lag: shape.lag,
            now,
        };
        Simulation::begin(beginning, seed)
    }

    pub fn simple(hosts: u32, slots: u32, replace: bool, seed: u64) -> Self {
        Simulation::new(Shape::simple(hosts, slots, replace), seed)
    }

    pub fn ask(&mut self, stage: usize, action: RolloutAction) {
        if self.down_until.is_some() {
            return;
        }
        let stage = self.stages[stage].clone();
        if self.asked(&stage, action, "someone").is_ok() {
            self.note(format!("{action:?}"));
        }
    }

    /// Does as a person asks, or says why not.
    pub fn asked(&mut self, stage: &StageId, action: RolloutAction, who: &str) -> Result<(), Refusal> {
        let request = RolloutRequest { action, release: None };
        let steps = act(&self.records, stage, &request, who, self.now)?;
        self.carry_out(&steps);
        Ok(())
    }

    /// Lets `seconds` pass.
    pub fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now += SignedDuration::from_secs(1);
            if self.down_until.is_some_and(|until| self.now >= until) {
                self.down_until = None;
                self.resume();
            }
            self.saved = self.observed.clone();
            self.peers_act();
            self.look_at_truth();
            self.look_at_gates();
            if self.down_until.is_none() {
                self.attach_all();
                self.listen();
                self.gates_act();
                self.plan_and_act();
                self.tell_gateways();
            }
        }
    }

    /// The reconciler ends, with all its streams, and is away for a while.
    pub fn restart(&mut self, seconds: u32) {
        self.down_until = Some(self.now + SignedDuration::from_secs(i64::from(seconds)));
        self.hosts.iter_mut().for_each(Host::detach);
        let now = self.now;
        self.gateways.iter_mut().for_each(|gateway| gateway.detach(now));
    }

    /// The reconciler ends with its disk, and another begins with nothing.
    pub fn lose_store(&mut self) {
        self.restart(3);
        self.lost.append(&mut self.records.units.clone());
        self.control = Control::new(self.now);
        self.saved = Observed::default();
        self.observed = Observed::default();
        self.runs.forget();
    }

    fn resume(&mut self) {
        self.observed = reloaded(std::mem::take(&mut self.saved), self.now);
        self.control.restart(self.now);
        self.records = self.control.records().clone();
        self.quiet_until = None;
    }

    pub fn plan(&self) -> Plan {
        plan(&self.world())
    }

    pub fn world(&self) -> World<'_> {
        World { catalog: &self.catalog, records: &self.records, observed: &self.observed, now: self.now }
    }

    /// Plans until there is nothing to do, as the reconciler does.
    fn plan_and_act(&mut self) {
        for round in 0.. {
            let planned = self.plan();
            let violations = checker::check(&self.world(), &planned);
            let said: Vec<String> = violations.iter().map(ToString::to_string).collect();
            assert!(violations.is_empty(), "{said:?}\n{}", self.transcript());
            if let Some(quiet) = self.quiet_until
                && quiet.is_none_or(|wake_at| self.now < wake_at)
            {
                assert!(
                    planned.steps.is_empty(),
                    "nothing would have woken the loop for {:?}\n{}",
                    planned.steps,
                    self.transcript()
                );
            }
            if let Some(at) = planned.wake_at.filter(|_| planned.steps.is_empty()) {
                assert!(at > self.now, "the loop would spin: {:?}\n{}", planned.waiting, self.transcript());
            }
            if planned.steps.is_empty() {
                self.quiet_until = Some(planned.wake_at);
                self.control.prefetch(&planned);
                break;
            }
            assert!(round < 50, "the planner does not come to rest\n{}", self.transcript());
            self.carry_out(&planned.steps);
            if self.down_until.is_some() {
                return;
            }
        }
        self.deliver();
    }

    /// Carries steps out as the reconciler does, as one; or it dies at it, and nobody knows whether they are written.
    pub fn carry_out(&mut self, steps: &[Step]) {
        let before = self.records.clone();
        for step in steps {
            self.note(format!("{}: {step}", step.subject()));
            self.steps += 1;
            self.judge(step);
            if let Step::ResumeDeployment { stage, .. } = step {
                let deployment = self.records.stages[stage].deployment.as_ref();
                self.overruled |= deployment.is_some_and(|deployment| deployment.gates.undecided);
            }
            self.records.apply(step);
        }
        self.quiet_until = None;
        let dies = self.dies_after.map(|writes| writes.checked_sub(1));
        if dies == Some(None) && self.chance(2) {
            self.note("the reconciler dies before it has written that".to_owned());
            self.records = before;
        } else {
            self.control.carry_out(steps);
            let second = self.second();
            self.events.extend(steps.iter().map(|step| (second, format!("{}: {step}", step.subject()))));
            let (written, thought) = (self.control.records(), &self.records);
            assert!(
                (&written.stages, &written.units, &written.hosts)
                    == (&thought.stages, &thought.units, &thought.hosts),
                "the records are not what the steps say\n{}",
                self.transcript()
            );
            self.records = self.control.records().clone();
        }
        self.dies_after = dies.flatten();
        if dies == Some(None) {
            self.note("the reconciler dies".to_owned());
            self.restart(3);
        }
    }

    /// Sends what a stream has not carried yet, and at times what it has.
    fn deliver(&mut self) {
        for index in 0..self.hosts.len() {
            if !self.hosts[index].linked {
                continue;
            }
            if !self.queues[index].as_deref().is_some_and(is_woken) {
                continue;
            }
            for command in self.control.queued(&self.hosts[index].name) {
                if !self.hosts[index].sent.contains(&command.id) {
                    self.send(index, command);
                }
            }
            let (now, host) = (self.now, &mut self.hosts[index]);
            let artifacts = self.control.artifacts(&host.name);
            if artifacts != host.preparing.asked {
                host.preparing.want(artifacts, now);
            }
        }
    }

    pub fn send(&mut self, index: usize, command: Command) {
        let due = self.later();
        let host = &mut self.hosts[index];
        let due = host.inbox.back().map_or(due, |(last, _)| due.max(*last));
        host.sent.push(command.id.clone());
        host.history.push(command.clone());
        host.inbox.push_back((due, command));
    }

    pub fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Something was heard that the planner may act on.
    pub fn wakes(&mut self) {
        self.quiet_until = None;
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.random().is_multiple_of(one_in)
    }

    pub fn second(&self) -> i64 {
        self.now.as_second() - self.began.as_second()
    }

    pub fn note(&mut self, what: String) {
        let line = format!("[{}] {what}", self.second());
        self.log.push(line);
    }
}
