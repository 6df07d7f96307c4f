//! What happens to a simulated world, and how it heals.

use denv_planner::actions::scale;
use denv_schema::api::RolloutAction;
use jiff::SignedDuration;

use crate::world::Simulation;

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A stage wants release number N.
    Release(usize, u8),
    Scale(usize, u32),
    StageRemoved(usize),
    StageAdded(usize),
    HostVanishes(usize),
    HostReturns(usize),
    HostLosesState(usize),
    HostRefuses(usize),
    /// It can prepare nothing from now on, or can again.
    HostUnprepared(usize, bool),
    /// Its provider announces that it takes it back, and does so two minutes later.
    HostReclaimed(usize),
    /// A person wants so many units more than the least, or no more.
    ScaledBy(usize, Option<u32>),
    /// Its manifest goes, or comes.
    HostRemoved(usize),
    HostAdded(usize),
    HostCordoned(usize),
    HostUncordoned(usize),
    /// An old command arrives once more.
    CommandAgain(usize, usize),
    /// Its stream breaks, with all that was on it.
    StreamBreaks(usize),
    EngineCrashes(usize),
    GatewayVanishes(usize),
    GatewayDies(usize),
    GatewayReturns(usize),
    /// The reconciler, for some seconds.
    Restart(u8),
    /// The reconciler, with its store.
    StoreLost,
    /// The reconciler dies at one of the next writes.
    DiesAfter(u8),
    /// A host's agent, for some seconds. Its engines run on.
    DenvdRestarts(usize, u8),
    Action(usize, RolloutAction),
    /// Whether requests never end.
    Traffic(bool),
    /// What a stage's alarm says from now on: 0 good, 1 that it fires, 2 too little, 3 nothing.
    AlarmSays(usize, u8),
    /// Whether engines that are asked by a suite do not answer, and nobody's release is to blame.
    Deaf(bool),
    /// Seconds.
    Wait(u16),
}

impl Simulation {
    pub fn apply(&mut self, event: Event) {
        self.note(format!("{event:?}"));
        let (hosts, gateways, stages) = (self.hosts.len(), self.gateways.len(), self.stages.len());
        let now = self.now;
        match event {
            Event::Release(stage, number) => self.want_release(stage % stages, number),
            Event::Scale(stage, units) => self.want_units(stage % stages, units),
            Event::StageRemoved(stage) => {
                self.desire(|desired| desired.stages[stage % stages].present = false);
            }
            Event::StageAdded(stage) => self.desire(|desired| desired.stages[stage % stages].present = true),
            Event::HostVanishes(host) => self.hosts[host % hosts].cut = true,
            Event::HostReturns(host) => self.hosts[host % hosts].cut = false,
            Event::HostLosesState(host) => self.hosts[host % hosts].lose_state(),
            Event::HostRefuses(host) => self.hosts[host % hosts].refuses = true,
            Event::HostUnprepared(host, fails) => self.hosts[host % hosts].preparing.fails = fails,
            Event::HostReclaimed(host) => {
                let host = &mut self.hosts[host % hosts];
                host.reclaim = host.reclaim.or(Some(now + SignedDuration::from_secs(120)));
            }
            Event::ScaledBy(stage, more) => self.scale(stage % stages, more),
            Event::HostRemoved(host) => self.desire(|desired| {
                desired.removed.retain(|other| *other != host % hosts);
                desired.removed.push(host % hosts);
            }),
            Event::HostAdded(host) => {
                self.desire(|desired| desired.removed.retain(|other| *other != host % hosts));
            }
            Event::HostCordoned(host) => self.want_cordoned(host % hosts, true),
            Event::HostUncordoned(host) => self.want_cordoned(host % hosts, false),
            Event::CommandAgain(host, which) => {
                let host = host % hosts;
                let history = &self.hosts[host].history;
                if self.hosts[host].linked && !history.is_empty() {
                    let command = history[which % history.len()].clone();
                    self.send(host, command);
                }
            }
            Event::StreamBreaks(host) => self.hosts[host % hosts].detach(),
            Event::EngineCrashes(which) => {
                let host = which % hosts;
                let engines = self.hosts[host].engines.len();
                if engines > 0 {
                    self.hosts[host].crash(which % engines, now);
                }
            }
            Event::GatewayVanishes(gateway) => self.gateways[gateway % gateways].cut = true,
            Event::GatewayDies(gateway) => self.gateways[gateway % gateways].die(now),
            Event::GatewayReturns(gateway) => {
                let gateway = &mut self.gateways[gateway % gateways];
                (gateway.cut, gateway.alive) = (false, true);
            }
            Event::Restart(seconds) => self.restart(u32::from(seconds)),
            Event::StoreLost => self.lose_store(),
            Event::DiesAfter(writes) => self.dies_after = Some(u32::from(writes)),
            Event::DenvdRestarts(host, seconds) => {
                let until = now + SignedDuration::from_secs(i64::from(seconds));
                self.hosts[host % hosts].denvd_ends(until);
            }
            Event::Action(stage, action) => self.ask(stage % stages, action),
            Event::Traffic(busy) => self.busy = busy,
            Event::AlarmSays(stage, says) => drop(self.runs.says.insert(stage % stages, says)),
            Event::Deaf(deaf) => self.runs.deaf = deaf,
            Event::Wait(seconds) => self.run(u32::from(seconds)),
        }
    }

    /// Ends all faults, and asks for releases that work in a size that fits.
    pub fn heal(&mut self) {
        self.note("all faults end".to_owned());
        self.healed = true;
        self.dies_after = None;
        self.busy = false;
        self.runs.deaf = false;
        self.runs.says.clear();
        for host in &mut self.hosts {
            (host.cut, host.refuses, host.reclaim) = (false, false, None);
            host.preparing.fails = false;
        }
        for gateway in &mut self.gateways {
            (gateway.cut, gateway.alive) = (false, true);
        }
        self.want_what_works();
    }

    fn scale(&mut self, stage: usize, more: Option<u32>) {
        let id = self.stages[stage].clone();
        if let (None, Some(spec)) = (self.down_until, self.catalog.stages.get(&id)) {
            let least: u32 = spec.fleets.iter().map(|fleet| fleet.units.min).sum();
            let asked = scale(spec, &id, more.map(|more| least + more), "someone", self.now);
            self.carry_out(&asked.unwrap_or_default());
        }
    }

    /// Lets time pass until the world is at rest as it should be and stays so, or says why it does not.
    pub fn settle(&mut self) -> Option<String> {
        // More than healing takes, and less than flapping does.
        let most_steps = 200.max(20 * u32::try_from(self.records.units.len()).unwrap());
        while self.down_until.is_some() {
            self.run(10);
        }
        (0..self.stages.len()).for_each(|stage| self.scale(stage, None));
        let began = self.steps;
        for _ in 0..self.patience() {
            for stage in 0..self.stages.len() {
                self.ask(stage, RolloutAction::Resume);
                self.ask(stage, RolloutAction::Approve);
            }
            self.run(50);
            if self.unsettled().is_none() {
                let quiet = self.steps;
                self.run(150);
                if let Some(trouble) = self.unsettled() {
                    return Some(trouble);
                }
                let steps = self.steps - quiet;
                if steps > 0 {
                    return Some(format!("{steps} steps at rest\n{}", self.transcript()));
                }
                let steps = quiet - began;
                return (steps > most_steps).then(|| format!("{steps} steps\n{}", self.transcript()));
            }
        }
        self.unsettled()
    }
}
