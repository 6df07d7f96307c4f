use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use denv_planner::actions::act;
use denv_planner::{
    GatewayObserved, HostObserved, Observed, Plan, Records, Step, UnitPhase, World, checker, plan, routes,
    status,
};
use denv_schema::api::RolloutAction;
use denv_schema::tree::Files;
use denv_schema::wire::{
    Action, Command, GatewayReport, HostReport, MemberReport, MemberState, Rotation, UnitReport,
};
use denv_schema::{Catalog, MemberId, Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The stage wants release number N; 2 and 3 can't start, 4 means what 0 means.
    Release(u8),
    HostVanishes(usize),
    HostReturns(usize),
    HostLosesState(usize),
    EngineCrashes(usize),
    GatewayVanishes,
    GatewayReturns,
    Pause,
    Resume,
    Abort,
    Retry,
    Scale(u32),
    /// Whether requests never end.
    Traffic(bool),
    /// Seconds.
    Wait(u16),
}

/// A simulated host: what denvd would do, a step a second.
#[derive(Default)]
struct Host {
    up: bool,
    queue: Vec<Command>,
    members: BTreeMap<MemberId, (MemberReport, Command, u32)>,
}

pub struct Simulation {
    catalog: Catalog,
    records: Records,
    observed: Observed,
    hosts: Vec<(Name, Host)>,
    gateway_up: bool,
    busy: bool,
    now: Timestamp,
    random: u64,
    shape: (u32, u32, bool),
    desired: (u8, u32),
    log: String,
}

const STAGE: &str = "chat/prod";

fn stage() -> StageId {
    STAGE.parse().unwrap()
}

fn release(number: u8) -> String {
    match number {
        0 | 1 => format!("good-{number}"),
        4 => "good-0-again".to_owned(),
        _ => format!("bad-{number}"),
    }
}

fn catalog((hosts, slots, replace): (u32, u32, bool), (number, units): (u8, u32)) -> Catalog {
    let strategy = if replace { "{strategy: replace, maxUnavailable: 1" } else { "{strategy: surge" };
    let mut text = format!(
        "
apiVersion: denv.dev/v1
kind: Provider
metadata: {{name: p}}
spec: {{kind: owned}}
---
apiVersion: denv.dev/v1
kind: Fleet
metadata: {{name: local}}
spec: {{provider: p, region: r, purchase: owned, accelerator: cpu, hosts: {{min: 0, max: 99}}}}
---
apiVersion: denv.dev/v1
kind: Engine
metadata: {{name: e}}
spec: {{kind: llama-cpp, version: '1', command: [serve]}}
---
apiVersion: denv.dev/v1
kind: Recipe
metadata: {{name: r}}
spec: {{model: m, engine: e, hardware: {{accelerator: cpu}}, startTimeout: 60s}}
---
apiVersion: denv.dev/v1
kind: Environment
metadata: {{name: chat}}
spec: {{stages: [prod]}}
---
apiVersion: denv.dev/v1
kind: Stage
metadata: {{name: prod}}
spec:
  environment: chat
  release: {}
  fleets: [{{name: local, units: {{min: {units}}}}}]
  lostAfter: 60s
  rollout: {strategy}, batches: [1, 100%], bake: 5s, drainTimeout: 20s}}
",
        release(number)
    );
    for host in 0..hosts {
        write!(text, "---\napiVersion: denv.dev/v1\nkind: Host\nmetadata: {{name: h{host}}}\nspec: {{fleet: local, cpuSlots: {slots}}}\n").unwrap();
    }
    for number in 0..5 {
        let name = release(number);
        let flag = name.trim_end_matches("-again").to_owned();
        write!(
            text,
            "---\napiVersion: denv.dev/v1\nkind: Release\nmetadata: {{name: {name}}}\nspec:\n  model: {{name: m}}\n  engine: e\n  recipe: r\n  topology: {{mode: aggregated, replica: {{cpuSlots: 1}}}}\n  config: {{flags: [--release, {flag}]}}\n"
        )
        .unwrap();
    }
    let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
    Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"))
}

impl Simulation {
    pub fn new(hosts: u32, slots: u32, replace: bool, seed: u64) -> Self {
        let (shape, desired) = ((hosts, slots, replace), (0, 2));
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let hosts =
            (0..hosts).map(|i| (format!("h{i}").parse().unwrap(), Host { up: true, ..Host::default() }));
        let mut simulation = Simulation {
            catalog: catalog(shape, desired),
            records: Records::default(),
            observed: Observed { since: now, ..Observed::default() },
            hosts: hosts.collect(),
            gateway_up: true,
            busy: false,
            now,
            random: seed | 1,
            shape,
            desired,
            log: String::new(),
        };
        simulation.report();
        simulation
    }

    pub fn apply(&mut self, event: Event) {
        writeln!(self.log, "[{}] {event:?}", self.second()).unwrap();
        let count = self.hosts.len();
        match event {
            Event::Release(number) => self.desire((number, self.desired.1)),
            Event::Scale(units) => self.desire((self.desired.0, units)),
            Event::HostVanishes(host) => self.hosts[host % count].1.up = false,
            Event::HostReturns(host) => self.hosts[host % count].1.up = true,
            Event::HostLosesState(host) => self.hosts[host % count].1.members.clear(),
            Event::EngineCrashes(which) => {
                let now = self.now;
                let mut members = self.hosts.iter_mut().flat_map(|(_, host)| host.members.values_mut());
                if let Some((report, _, age)) = members.nth(which)
                    && report.state == MemberState::Healthy
                {
                    *report = MemberReport {
                        state: MemberState::Unhealthy,
                        since: now,
                        restarts: report.restarts + 1,
                        reason: Some("killed by signal 9".to_owned()),
                        ..report.clone()
                    };
                    *age = 0;
                }
            }
            Event::GatewayVanishes => self.gateway_up = false,
            Event::GatewayReturns => self.gateway_up = true,
            Event::Pause => self.ask(RolloutAction::Pause),
            Event::Resume => self.ask(RolloutAction::Resume),
            Event::Abort => self.ask(RolloutAction::Abort),
            Event::Retry => self.ask(RolloutAction::Retry),
            Event::Traffic(busy) => self.busy = busy,
            Event::Wait(seconds) => self.run(u32::from(seconds)),
        }
    }

    fn desire(&mut self, desired: (u8, u32)) {
        self.desired = desired;
        self.catalog = catalog(self.shape, desired);
    }

    fn ask(&mut self, action: RolloutAction) {
        if let Ok(steps) = act(&self.records, &stage(), action, "someone", self.now) {
            steps.iter().for_each(|step| self.carry_out(step));
        }
    }

    /// Lets `seconds` pass.
    pub fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now += SignedDuration::from_secs(1);
            self.hosts_act();
            self.report();
            self.plan_and_act();
        }
    }

    /// Ends all faults, and asks for a release that works in a size that fits.
    pub fn heal(&mut self) {
        writeln!(self.log, "[{}] heal", self.second()).unwrap();
        self.hosts.iter_mut().for_each(|(_, host)| host.up = true);
        self.gateway_up = true;
        self.busy = false;
        self.ask(RolloutAction::Resume);
        self.desire((self.desired.0 % 2, self.desired.1.min(2)));
    }

    /// Lets time pass until the world is at rest as it should be and stays so, or says why it does not come to rest.
    pub fn settle(&mut self) -> Option<String> {
        for _ in 0..40 {
            self.run(50);
            if self.unsettled().is_none() {
                self.run(50);
                return self.unsettled();
            }
        }
        self.unsettled()
    }

    pub fn plan(&self) -> Plan {
        plan(&self.world())
    }

    fn world(&self) -> World<'_> {
        World { catalog: &self.catalog, records: &self.records, observed: &self.observed, now: self.now }
    }

    /// Plans until there is nothing to do, as the reconciler does.
    fn plan_and_act(&mut self) {
        for round in 0.. {
            let planned = self.plan();
            let violations = checker::check(&self.world(), &planned);
            let said: Vec<String> = violations.iter().map(ToString::to_string).collect();
            assert!(violations.is_empty(), "{said:?}\n{}", self.log);
            if planned.steps.is_empty() {
                return;
            }
            assert!(round < 50, "the planner does not come to rest\n{}\n{:?}", self.log, planned.steps);
            planned.steps.iter().for_each(|step| self.carry_out(step));
        }
    }

    fn carry_out(&mut self, step: &Step) {
        writeln!(self.log, "[{}] {}: {step}", self.second(), step.subject()).unwrap();
        self.records.apply(step);
        if let Step::StartUnit { unit, .. } | Step::RestartUnit { unit, .. } | Step::StopUnit { unit, .. } =
            step
        {
            let record = &self.records.units[unit];
            let command = record.command();
            self.records.pending.insert(command.id.clone());
            let host = self.hosts.iter_mut().find(|(name, _)| *name == record.host).unwrap();
            host.1.queue.push(command);
        }
        let present: BTreeSet<_> = self.records.units.values().map(|unit| unit.command().id).collect();
        self.records.pending.retain(|id| present.contains(id));
    }

    /// What denvd does in a second, sometimes nothing.
    fn hosts_act(&mut self) {
        let now = self.now;
        for index in 0..self.hosts.len() {
            let slow = self.chance(3);
            let (_, host) = &mut self.hosts[index];
            // Engines run on without the control plane; commands come only with it.
            if host.up && !slow {
                for command in std::mem::take(&mut host.queue) {
                    self.records.pending.remove(&command.id);
                    take_up(host, command, now);
                }
            }
            for (report, command, age) in host.members.values_mut() {
                *age += 1;
                let bad = match &command.action {
                    Action::Start(spec) => spec.argv.iter().any(|argument| argument.starts_with("bad")),
                    Action::Stop {} => false,
                };
                let next = match report.state {
                    MemberState::Preparing => MemberState::Starting,
                    MemberState::Starting if bad && *age > 4 => MemberState::Failed,
                    MemberState::Starting | MemberState::Unhealthy if !bad && *age > 3 => {
                        MemberState::Healthy
                    }
                    MemberState::Stopping if *age > 2 => MemberState::Stopped,
                    same => same,
                };
                if next != report.state {
                    report.state = next;
                    report.since = now;
                    report.reason = (next == MemberState::Failed).then(|| "exited with status 2".to_owned());
                }
            }
        }
    }

    /// What hosts and the gateway tell the reconciler.
    fn report(&mut self) {
        let now = self.now;
        for (name, host) in &self.hosts {
            let report = HostReport {
                members: host.members.iter().map(|(id, (report, ..))| (id.clone(), report.clone())).collect(),
                ..HostReport::default()
            };
            let observed = self.observed.hosts.entry(name.clone()).or_insert_with(|| HostObserved {
                connected: true,
                last_seen: now,
                version: "0".to_owned(),
                ingress: "127.0.0.1:1".to_owned(),
                report: HostReport::default(),
            });
            observed.connected = host.up;
            if host.up {
                observed.last_seen = now;
                observed.report = report;
            }
        }
        let routes = routes(&self.world());
        let busy = self.busy;
        let gateway = self.observed.gateways.entry("g".parse().unwrap()).or_insert_with(|| GatewayObserved {
            connected: true,
            last_seen: now,
            version: "0".to_owned(),
            report: GatewayReport::default(),
        });
        gateway.connected = self.gateway_up;
        if self.gateway_up {
            gateway.last_seen = now;
            gateway.report.units = routes
                .into_iter()
                .map(|route| {
                    let in_rotation = route.rotation == Rotation::In;
                    let (generation, rotation) = (route.generation, route.rotation);
                    (route.unit, UnitReport { generation, rotation, in_rotation, inflight: u32::from(busy) })
                })
                .collect();
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33).is_multiple_of(one_in)
    }

    fn second(&self) -> i64 {
        self.now.as_second() - 1_800_000_000
    }

    /// Why the world is not at rest as it should be, if it is not.
    pub fn unsettled(&self) -> Option<String> {
        let (hosts, slots, replace) = self.shape;
        let (number, units) = self.desired;
        // A surge needs a free slot; a world without one rightly waits.
        if hosts * slots <= units && !replace {
            return None;
        }
        let record = self.records.stages.get(&stage())?;
        let over = record.deployment.as_ref().is_none_or(|deployment| deployment.phase.is_over());
        let expected = match &record.hold {
            Some(_) => record.good.as_ref().map(|good| good.release.to_string()),
            None => Some(release(number)),
        };
        let expected: Vec<(String, usize)> =
            expected.into_iter().map(|name| (name, units as usize)).collect();
        let running: Vec<(String, usize)> =
            self.running().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        (!over || running != expected)
            .then(|| format!("expected {expected:?}, and {running:?} run; waiting: {}", self.waiting()))
    }

    /// Ready units by release.
    pub fn running(&self) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for unit in self.records.units.values() {
            *counts.entry(unit.release.as_str()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    pub fn ready(&self) -> usize {
        let world = self.world();
        let ready = |(id, unit): &(&UnitId, &denv_planner::UnitRecord)| {
            unit.phase == UnitPhase::Ready && status(&world, id, unit).is_ready()
        };
        self.records.units.iter().filter(ready).count()
    }

    pub fn units(&self) -> Vec<UnitId> {
        self.records.units.keys().cloned().collect()
    }

    pub fn host_of_a_unit(&self) -> usize {
        let host = &self.records.units.values().next().unwrap().host;
        self.hosts.iter().position(|(name, _)| name == host).unwrap()
    }

    pub fn waiting(&self) -> String {
        self.plan().waiting.iter().map(|(subject, on)| format!("{subject}: {on}\n")).collect()
    }

    pub fn transcript(&self) -> &str {
        &self.log
    }
}

fn take_up(host: &mut Host, command: Command, now: Timestamp) {
    let known = host.members.get(&command.member).map(|(report, ..)| report.generation);
    match &command.action {
        Action::Start(spec) => {
            if known.is_some_and(|generation| generation >= command.generation) {
                return;
            }
            let report = MemberReport {
                generation: command.generation,
                spec: spec.digest(),
                state: MemberState::Preparing,
                since: now,
                restarts: 0,
                reason: None,
            };
            host.members.insert(command.member.clone(), (report, command, 0));
        }
        Action::Stop {} => {
            if let Some((report, _, age)) = host.members.get_mut(&command.member)
                && report.state != MemberState::Stopped
            {
                report.state = MemberState::Stopping;
                *age = 0;
            }
        }
    }
}
