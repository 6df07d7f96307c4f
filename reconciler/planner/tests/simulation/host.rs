//! A simulated host: what denvd does with commands, and what really runs, a step a second.

use std::collections::{BTreeMap, VecDeque};

use denv_schema::wire::{
    Action, Command, CommandId, CommandOutcome, CommandResult, Generation, Gpu, HostReport, Inventory,
    MemberReport, MemberState,
};
use denv_schema::{Digest, MemberId, Name};
use jiff::Timestamp;

pub struct Host {
    pub name: Name,
    pub fleet: usize,
    pub gpus: u32,
    /// A fault between it and the reconciler; its engines run on, and gateways reach them.
    pub cut: bool,
    /// A stream is open.
    pub linked: bool,
    /// Refuses the next start.
    pub refuses: bool,
    /// Its provider takes it back then.
    pub reclaim: Option<Timestamp>,
    pub inbox: VecDeque<(Timestamp, Command)>,
    pub outbox: VecDeque<(Timestamp, Vec<CommandResult>, HostReport)>,
    /// Delivered on this stream.
    pub sent: Vec<CommandId>,
    /// All that was ever delivered to this denvd: any of it may come again.
    pub history: Vec<Command>,
    answers: Vec<CommandResult>,
    journal: BTreeMap<MemberId, (Generation, Option<Digest>, bool)>,
    members: BTreeMap<MemberId, MemberReport>,
    pub engines: Vec<Engine>,
    /// How often each generation was started.
    pub starts: BTreeMap<(MemberId, Generation), u32>,
}

/// A process, or one that denvd is about to start again.
pub struct Engine {
    pub member: MemberId,
    pub generation: Generation,
    pub gpus: Vec<u32>,
    pub state: MemberState,
    age: u32,
    release: String,
}

impl Engine {
    pub fn serves(&self) -> bool {
        self.state == MemberState::Healthy
    }
}

impl Host {
    pub fn new(name: Name, fleet: usize, gpus: u32) -> Self {
        Host {
            name,
            fleet,
            gpus,
            cut: false,
            linked: false,
            refuses: false,
            reclaim: None,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            sent: Vec::new(),
            history: Vec::new(),
            answers: Vec::new(),
            journal: BTreeMap::new(),
            members: BTreeMap::new(),
            engines: Vec::new(),
            starts: BTreeMap::new(),
        }
    }

    pub fn detach(&mut self) {
        self.linked = false;
        self.inbox.clear();
        self.outbox.clear();
        self.sent.clear();
    }

    pub fn report(&self) -> HostReport {
        let gpu = |index| Gpu { index, model: "H200".to_owned(), memory_bytes: 0 };
        let inventory = Inventory { gpus: (0..self.gpus).map(gpu).collect(), ..Inventory::default() };
        HostReport { inventory, members: self.members.clone(), problems: Vec::new(), reclaim: self.reclaim }
    }

    /// How often it has started a member's engine again in its generation.
    pub fn restarts(&self, member: &MemberId) -> u32 {
        self.members.get(member).map_or(0, |report| report.restarts)
    }

    pub fn take_answers(&mut self) -> Vec<CommandResult> {
        std::mem::take(&mut self.answers)
    }

    /// Its disk is lost, and all that ran. What was sent to the denvd of before reaches no other.
    pub fn lose_state(&mut self) {
        self.detach();
        self.history.clear();
        self.journal.clear();
        self.members.clear();
        self.engines.clear();
        self.starts.clear();
        self.answers.clear();
    }

    pub fn crash(&mut self, index: usize, now: Timestamp) {
        let engine = &mut self.engines[index];
        if engine.serves() {
            (engine.state, engine.age) = (MemberState::Unhealthy, 0);
            show(&mut self.members, engine, now, Some("killed by signal 9"));
        }
    }

    /// Takes commands up. Gives what served and was stopped by one.
    pub fn take_up(&mut self, command: Command, now: Timestamp) -> Option<(MemberId, Generation)> {
        let Command { id, member, generation, action, .. } = command;
        let known = self.journal.get(&member).copied().filter(|(known, ..)| *known >= generation);
        let refuse = |reason: &str| CommandOutcome::Refused { reason: reason.to_owned() };
        let mut stopped = None;
        let outcome = match (&action, known) {
            (Action::Start(spec), Some((known, digest, _)))
                if known == generation && digest == Some(spec.digest()) =>
            {
                CommandOutcome::Accepted
            }
            (Action::Stop {}, Some((known, _, true))) if known == generation => CommandOutcome::Accepted,
            (_, Some((known, ..))) if known > generation => refuse("the generation is over"),
            (Action::Start(_), Some(_)) => refuse("it was stopped, or is another"),
            (Action::Start(_), None) if std::mem::take(&mut self.refuses) => refuse("not today"),
            (Action::Start(spec), None) => {
                stopped = self.end(&member);
                *self.starts.entry((member.clone(), generation)).or_default() += 1;
                self.journal.insert(member.clone(), (generation, Some(spec.digest()), false));
                let engine = Engine {
                    member: member.clone(),
                    generation,
                    gpus: spec.gpus.clone(),
                    state: MemberState::Preparing,
                    age: 0,
                    release: spec.argv.join(" "),
                };
                let report = MemberReport {
                    generation,
                    spec: spec.digest(),
                    state: MemberState::Preparing,
                    since: now,
                    restarts: 0,
                    ends_in_a_row: 0,
                    reason: None,
                };
                self.members.insert(member.clone(), report);
                self.engines.push(engine);
                CommandOutcome::Accepted
            }
            (Action::Stop {}, _) => {
                stopped = self.end(&member);
                let digest = known.and_then(|(_, digest, _)| digest);
                self.journal.insert(member.clone(), (generation, digest, true));
                let ends = self.engines.iter().any(|engine| engine.member == member);
                let report = MemberReport {
                    generation,
                    spec: digest.unwrap_or(Digest::from_bytes([0; 32])),
                    state: if ends { MemberState::Stopping } else { MemberState::Stopped },
                    since: now,
                    restarts: 0,
                    ends_in_a_row: 0,
                    reason: None,
                };
                self.members.insert(member.clone(), report);
                CommandOutcome::Accepted
            }
        };
        self.answers.push(CommandResult { id, outcome });
        stopped
    }

    fn end(&mut self, member: &MemberId) -> Option<(MemberId, Generation)> {
        let mut stopped = None;
        for engine in self.engines.iter_mut().filter(|engine| engine.member == *member) {
            if engine.serves() {
                stopped = Some((engine.member.clone(), engine.generation));
            }
            if engine.state != MemberState::Stopping {
                (engine.state, engine.age) = (MemberState::Stopping, 0);
            }
        }
        stopped
    }

    /// A second passes.
    pub fn act(&mut self, healed: bool, now: Timestamp) {
        if self.reclaim.is_some_and(|at| at <= now) {
            self.lose_state();
            self.cut = true;
            return;
        }
        let mut gone = Vec::new();
        for index in 0..self.engines.len() {
            let waits = self.engines[..index].iter().any(|older| older.member == self.engines[index].member);
            let engine = &mut self.engines[index];
            engine.age += 1;
            let of = |kind: &str| engine.release.contains(kind);
            let (next, reason) = match engine.state {
                MemberState::Preparing if !waits => (MemberState::Starting, None),
                MemberState::Starting if of("bad") && engine.age > 4 => {
                    (MemberState::Failed, Some("exited with status 2"))
                }
                MemberState::Starting if !of("bad") && !of("hang") && engine.age > 4 => {
                    (MemberState::Healthy, None)
                }
                MemberState::Healthy if of("crash") && engine.age > 7 && !healed => {
                    (MemberState::Unhealthy, Some("killed by signal 11"))
                }
                MemberState::Unhealthy if engine.age > 3 => (MemberState::Healthy, None),
                MemberState::Stopping if engine.age > 2 => (MemberState::Stopped, None),
                same => (same, None),
            };
            if next == engine.state {
                continue;
            }
            engine.state = next;
            if next == MemberState::Unhealthy || next == MemberState::Healthy {
                engine.age = 0;
            }
            if next == MemberState::Failed || next == MemberState::Stopped {
                gone.push(index);
            }
            show(&mut self.members, engine, now, reason);
        }
        for index in gone.into_iter().rev() {
            self.engines.remove(index);
        }
        for (member, report) in &mut self.members {
            let left = || self.engines.iter().any(|engine| engine.member == *member);
            if report.state == MemberState::Stopping && !left() {
                (report.state, report.since) = (MemberState::Stopped, now);
            }
        }
    }

    /// What is left of anything.
    pub fn leftovers(&self) -> Vec<String> {
        self.engines.iter().map(|engine| format!("{} {:?}", engine.member, engine.state)).collect()
    }
}

/// Shows an engine's state, unless a newer generation is shown.
fn show(
    members: &mut BTreeMap<MemberId, MemberReport>,
    engine: &Engine,
    now: Timestamp,
    reason: Option<&str>,
) {
    let Some(report) = members.get_mut(&engine.member) else { return };
    if report.generation == engine.generation && report.state != MemberState::Stopping {
        let ended = u32::from(engine.state == MemberState::Unhealthy);
        report.restarts += ended;
        report.ends_in_a_row += ended;
        (report.state, report.since) = (engine.state, now);
        report.reason = reason.map(str::to_owned);
    }
}
