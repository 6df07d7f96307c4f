//! The reconciler in a simulated world: the real planner, and all that is between it and what really runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use denv_planner::actions::act;
use denv_planner::{
    GatewayObserved, HostObserved, Observed, Plan, Records, Step, UnitPhase, UnitRecord, World, checker,
    plan, routes, status,
};
use denv_schema::api::{RolloutAction, RolloutRequest};
use denv_schema::wire::Command;
use denv_schema::{Catalog, UnitId};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::control::{Control, is_woken, reloaded};
use crate::gates::Runs;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::manifests::{Catalogs, Desired, DesiredStage, Shape, stage_id};
use crate::truth::Truth;

pub struct Simulation {
    pub shape: Shape,
    pub desired: Desired,
    pub catalog: Catalog,
    catalogs: Catalogs,
    pub records: Records,
    pub observed: Observed,
    /// As the store has it: a second old.
    saved: Observed,
    control: Control,
    /// The process ends after so many more writes, before it has told anybody of the last.
    pub dies_after: Option<u32>,
    /// What wakes each host's stream.
    queues: Vec<Option<Arc<Notify>>>,
    /// Until then there is no reconciler.
    pub down_until: Option<Timestamp>,
    pub hosts: Vec<Host>,
    pub gateways: Vec<Gateway>,
    pub busy: bool,
    pub healed: bool,
    pub now: Timestamp,
    random: u64,
    pub truth: Truth,
    pub runs: Runs,
    /// A person has gone on in spite of what a gate said.
    pub overruled: bool,
    /// Nothing is heard and nothing was to do: planning again is in vain until then.
    quiet_until: Option<Option<Timestamp>>,
    pub steps: u32,
    pub log: Vec<String>,
}

impl Simulation {
    pub fn new(shape: Shape, seed: u64) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let first = DesiredStage { present: true, release: 0, units: 2 };
        let desired =
            Desired { stages: vec![first; shape.stages.len()], removed: Vec::new(), cordoned: Vec::new() };
        let hosts = shape.hosts().into_iter();
        let gateways = 0..shape.gateways;
        let mut catalogs = Catalogs::default();
        let mut simulation = Simulation {
            catalog: catalogs.get(&shape, &desired),
            catalogs,
            desired,
            records: Records::default(),
            observed: Observed { since: now, ..Observed::default() },
            saved: Observed::default(),
            control: Control::new(),
            dies_after: None,
            queues: vec![None; shape.hosts().len()],
            down_until: None,
            hosts: hosts.map(|(name, fleet)| Host::new(name, fleet, shape.fleets[fleet].gpus)).collect(),
            gateways: gateways.map(|index| Gateway::new(format!("g{index}").parse().unwrap(), now)).collect(),
            busy: false,
            healed: false,
            now,
            random: seed | 1,
            truth: Truth::default(),
            runs: Runs::default(),
            overruled: false,
            quiet_until: None,
            steps: 0,
            log: Vec::new(),
            shape,
        };
        simulation.attach_all();
        simulation
    }

    pub fn simple(hosts: u32, slots: u32, replace: bool, seed: u64) -> Self {
        Simulation::new(Shape::simple(hosts, slots, replace), seed)
    }

    pub fn desire(&mut self, change: impl FnOnce(&mut Desired)) {
        change(&mut self.desired);
        self.catalog = self.catalogs.get(&self.shape, &self.desired);
        self.quiet_until = None;
    }

    pub fn ask(&mut self, stage: usize, action: RolloutAction) {
        if self.down_until.is_some() {
            return;
        }
        let request = RolloutRequest { action, release: None };
        if let Ok(steps) = act(&self.records, &stage_id(stage), &request, "someone", self.now) {
            self.note(format!("{action:?}"));
            self.carry_out(&steps);
        }
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

    fn resume(&mut self) {
        self.observed = reloaded(std::mem::take(&mut self.saved), self.now);
        self.control.restart();
        self.records = self.control.records().clone();
        self.quiet_until = None;
    }

    fn attach_all(&mut self) {
        let now = self.now;
        for index in 0..self.hosts.len() {
            let soon = self.shape.lag == 0 || self.chance(2);
            let host = &mut self.hosts[index];
            if !host.is_reachable() && host.linked {
                host.detach();
                let observed = self.observed.hosts.get_mut(&host.name).unwrap();
                (observed.connected, observed.last_seen) = (false, now);
                self.quiet_until = None;
            } else if host.is_reachable() && !host.linked && soon {
                host.detach();
                host.linked = true;
                host.welcome(self.control.term());
                self.queues[index] = Some(self.control.attach(&host.name));
                self.control.wake(&host.name);
                let observed = HostObserved {
                    connected: true,
                    last_seen: now,
                    version: "0".to_owned(),
                    ingress: "127.0.0.1:1".to_owned(),
                    report: host.report().into(),
                };
                self.observed.hosts.insert(host.name.clone(), observed);
                self.quiet_until = None;
            }
        }
        for index in 0..self.gateways.len() {
            let soon = self.shape.lag == 0 || self.chance(2);
            let gateway = &mut self.gateways[index];
            let off = gateway.cut || !gateway.alive;
            let known = self.observed.gateways.get(&gateway.name).is_some_and(|known| known.connected);
            if off && (gateway.linked || known) {
                gateway.detach(now);
                let observed = self.observed.gateways.get_mut(&gateway.name).unwrap();
                (observed.connected, observed.last_seen) = (false, now);
                self.quiet_until = None;
            } else if !off && !gateway.linked && soon {
                gateway.linked = true;
                let observed = GatewayObserved {
                    connected: true,
                    last_seen: now,
                    version: "0".to_owned(),
                    report: gateway.report(),
                };
                self.observed.gateways.insert(gateway.name.clone(), observed);
                self.quiet_until = None;
            }
        }
    }

    /// Hosts and gateways do as they were told, and say how it is.
    fn peers_act(&mut self) {
        let (now, healed) = (self.now, self.healed);
        for index in 0..self.hosts.len() {
            let slow = self.shape.lag > 0 && self.chance(3);
            while !slow && self.hosts[index].inbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, command) = self.hosts[index].inbox.pop_front().unwrap();
                let said = format!("{} takes up {}", self.hosts[index].name, command.id.0);
                let ended = self.hosts[index].take_up(command, now);
                self.note(said);
                if let Some((member, generation)) = ended {
                    self.stopped_by_command(&member, generation);
                }
            }
            let due = self.later();
            let host = &mut self.hosts[index];
            host.act(healed, now);
            if host.linked && !slow {
                let due = host.outbox.back().map_or(due, |(last, ..)| due.max(*last));
                let (answers, report) = (host.take_answers(), host.report());
                host.outbox.push_back((due, answers, report));
            }
        }
        let serving = self.serving();
        for index in 0..self.gateways.len() {
            let due = self.later();
            let (busy, gateway) = (self.busy, &mut self.gateways[index]);
            while !gateway.deaf && gateway.inbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, routes) = gateway.inbox.pop_front().unwrap();
                gateway.hear(routes);
            }
            gateway.act(&serving, busy);
            if gateway.linked {
                let due = gateway.outbox.back().map_or(due, |(last, _)| due.max(*last));
                let report = gateway.report();
                gateway.outbox.push_back((due, report));
            }
        }
    }

    /// What has arrived at the reconciler.
    fn listen(&mut self) {
        let now = self.now;
        for host in &mut self.hosts {
            while host.outbox.front().is_some_and(|(due, ..)| *due <= now) {
                let (_, answers, report) = host.outbox.pop_front().unwrap();
                let observed = self.observed.hosts.get_mut(&host.name).unwrap();
                observed.last_seen = now;
                if *observed.report != report {
                    observed.report = report.into();
                    self.quiet_until = None;
                }
                // As the link does: an answer counts once the report that follows it is heard.
                for answer in answers {
                    host.sent.retain(|id| *id != answer.id);
                    self.control.answer(&host.name, &answer);
                    self.control.answered(answer);
                    self.records = self.control.records().clone();
                    self.quiet_until = None;
                }
            }
        }
        for gateway in &mut self.gateways {
            while gateway.outbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, report) = gateway.outbox.pop_front().unwrap();
                let observed = self.observed.gateways.get_mut(&gateway.name).unwrap();
                observed.last_seen = now;
                if observed.report != report {
                    observed.report = report;
                    self.quiet_until = None;
                }
            }
        }
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

    fn tell_gateways(&mut self) {
        let routes = routes(&self.world());
        for index in 0..self.gateways.len() {
            let due = self.later();
            let gateway = &mut self.gateways[index];
            if gateway.linked && gateway.told.as_ref() != Some(&routes) {
                gateway.told = Some(routes.clone());
                let due = gateway.inbox.back().map_or(due, |(last, _)| due.max(*last));
                gateway.inbox.push_back((due, routes.clone()));
            }
        }
    }

    /// When what is sent now arrives.
    fn later(&mut self) -> Timestamp {
        let lag = match self.shape.lag {
            0 => 0,
            most => self.random() % (most + 1),
        };
        self.now + SignedDuration::from_secs(i64::try_from(lag).unwrap())
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

    fn chance(&mut self, one_in: u64) -> bool {
        self.random().is_multiple_of(one_in)
    }

    pub fn second(&self) -> i64 {
        self.now.as_second() - 1_800_000_000
    }

    pub fn note(&mut self, what: String) {
        let line = format!("[{}] {what}", self.second());
        self.log.push(line);
    }

    /// Recorded units by release.
    pub fn running(&self) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for unit in self.records.units.values() {
            *counts.entry(unit.release.as_str()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// Ready in the planner's eyes.
    pub fn ready(&self) -> usize {
        let world = self.world();
        let ready = |(id, unit): &(&UnitId, &Arc<UnitRecord>)| {
            unit.phase == UnitPhase::Ready && status(&world, id, unit).is_ready()
        };
        self.records.units.iter().filter(ready).count()
    }

    pub fn units(&self) -> Vec<UnitId> {
        self.records.units.keys().cloned().collect()
    }

    pub fn host_of_a_unit(&self) -> usize {
        let host = &self.records.units.values().next().unwrap().members[0].host;
        self.hosts.iter().position(|other| other.name == *host).unwrap()
    }

    pub fn waiting(&self) -> String {
        self.plan().waiting.iter().map(|(subject, on)| format!("{subject}: {on}\n")).collect()
    }

    /// What happened last.
    pub fn transcript(&self) -> String {
        const LINES: usize = 80;
        let mut text = format!("{:?}\n{:?}\n", self.shape, self.desired);
        let skipped = self.log.len().saturating_sub(LINES);
        writeln!(text, "… {skipped} lines").unwrap();
        for line in &self.log[skipped..] {
            writeln!(text, "{line}").unwrap();
        }
        for (subject, on) in self.plan().waiting {
            writeln!(text, "waiting: {subject}: {on}").unwrap();
        }
        text
    }
}
