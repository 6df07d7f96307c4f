//! A simulated host: denvd's own journal and supervisor decide, and what really runs is a value, a step a second.

mod member;
mod restored;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use denv_agent::journal::{EngineRecord, Facts, Journal, Verdict, judge};
use denv_agent::supervisor::{self, Event, Policy, Supervised, decide};
use denv_schema::wire::{
    Ability, Action, Command, CommandId, CommandOutcome, CommandResult, Generation, Gpu, HostReport,
    Inventory, MemberState, Term,
};
use denv_schema::{MemberId, Name};
use jiff::Timestamp;

use crate::prefetch::Preparing;
use member::{Member, resumed};

pub struct Host {
    pub name: Name,
    inventory: Inventory,
    /// CPU slots, where it has no accelerators.
    pub slots: u32,
    /// A fault between it and the reconciler; its engines run on, and gateways reach them.
    pub cut: bool,
    /// A stream is open.
    pub linked: bool,
    /// Refuses the next start.
    pub refuses: bool,
    /// Its provider takes it back then.
    pub reclaim: Option<Timestamp>,
    pub preparing: Preparing,
    /// There is no denvd until then; its engines run on.
    denvd_down_until: Option<Timestamp>,
    pub inbox: VecDeque<(Timestamp, Command)>,
    pub outbox: VecDeque<(Timestamp, Vec<CommandResult>, HostReport)>,
    /// Delivered on this stream.
    pub sent: Vec<CommandId>,
    /// All that was ever delivered to this denvd: any of it may come again.
    pub history: Vec<Command>,
    answers: Vec<CommandResult>,
    /// On its disk.
    journal: Journal,
    /// In denvd's memory.
    members: BTreeMap<MemberId, Member>,
    pub engines: Vec<Engine>,
    /// How often each generation was taken up.
    pub starts: BTreeMap<(MemberId, Generation), u32>,
}

/// A process.
pub struct Engine {
    pub member: MemberId,
    pub generation: Generation,
    pub gpus: Vec<u32>,
    age: u32,
    /// Since how long it has been ending.
    ending: Option<u32>,
    release: String,
}

impl Engine {
    /// It answers requests.
    pub fn serves(&self) -> bool {
        let is_of = |kind: &str| self.release.contains(kind);
        self.ending.is_none() && self.age > 4 && !is_of("bad") && !is_of("hang")
    }

    /// How it ended, if it did.
    fn ended(&self, healed: bool) -> Option<&'static str> {
        let is_of = |kind: &str| self.release.contains(kind);
        match self.ending {
            Some(since) if since > 2 => Some("was terminated"),
            None if is_of("bad") && self.age > 4 => Some("exited with status 2"),
            None if is_of("crash") && self.age > 11 && !healed => Some("was killed by signal 11"),
            Some(_) | None => None,
        }
    }
}

/// The release that an engine's flags name, and by its name how the engine does. Others do well.
pub fn release(argv: &[String]) -> String {
    let named = argv.iter().skip_while(|argument| *argument != "--release").nth(1);
    named.cloned().unwrap_or_default()
}

impl Host {
    pub fn new(name: Name, inventory: Inventory, slots: u32) -> Self {
        Host {
            name,
            inventory,
            slots,
            cut: false,
            linked: false,
            refuses: false,
            reclaim: None,
            preparing: Preparing::default(),
            denvd_down_until: None,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            sent: Vec::new(),
            history: Vec::new(),
            answers: Vec::new(),
            journal: Journal::default(),
            members: BTreeMap::new(),
            engines: Vec::new(),
            starts: BTreeMap::new(),
        }
    }

    /// Of a host with so many accelerators.
    pub fn inventory(gpus: u32) -> Inventory {
        let gpu = |index| Gpu { index, model: "H200".to_owned(), memory_bytes: 0 };
        Inventory {
            gpus: (0..gpus).map(gpu).collect(),
            abilities: [Ability::Prefetch].into(),
            ..Inventory::default()
        }
    }

    /// Whether it can have a stream at all.
    pub fn is_reachable(&self) -> bool {
        !self.cut && self.denvd_down_until.is_none()
    }

    pub fn detach(&mut self) {
        self.linked = false;
        self.inbox.clear();
        self.outbox.clear();
        self.sent.clear();
        self.preparing.asked.clear();
    }

    /// A leader with this term has welcomed it.
    pub fn welcome(&mut self, term: Term) {
        self.journal.see_term(term);
    }

    pub fn report(&self) -> HostReport {
        let inventory = self.inventory.clone();
        let report = |(id, member): (&MemberId, &Member)| (id.clone(), member.report());
        let members = self.members.iter().map(report).collect();
        HostReport {
            inventory,
            members,
            problems: Vec::new(),
            reclaim: self.reclaim,
            artifacts: self.preparing.reports(),
        }
    }

    /// How often denvd has started a member's engine again in its generation.
    pub fn restarts(&self, member: &MemberId) -> u32 {
        self.members.get(member).map_or(0, |member| member.supervised.restarts())
    }

    pub fn take_answers(&mut self) -> Vec<CommandResult> {
        std::mem::take(&mut self.answers)
    }

    /// Its disk is lost, and all that ran. What was sent to the denvd of before reaches no other.
    pub fn lose_state(&mut self) {
        self.detach();
        self.preparing.forget();
        self.history.clear();
        self.journal = Journal::default();
        self.members.clear();
        self.engines.clear();
        self.starts.clear();
        self.answers.clear();
        self.denvd_down_until = None;
    }

    /// denvd ends, and is away for a while; what it ran runs on.
    pub fn denvd_ends(&mut self, until: Timestamp) {
        self.detach();
        self.preparing.forget();
        self.members.clear();
        self.answers.clear();
        self.denvd_down_until = Some(until);
    }

    /// A process is killed from outside.
    pub fn crash(&mut self, index: usize, now: Timestamp) {
        if self.engines[index].serves() {
            let engine = self.engines.remove(index);
            self.bury(&engine.member, "was killed by signal 9", now);
        }
    }

    /// Every process of a release is killed from outside, as soon as it serves.
    pub fn crash_release(&mut self, release: &str, now: Timestamp) {
        let serves = |engine: &Engine| engine.serves() && engine.release.ends_with(release);
        while let Some(index) = self.engines.iter().position(serves) {
            self.crash(index, now);
        }
    }

    /// Takes a command up, as denvd does. Gives what served and was stopped by it.
    pub fn take_up(&mut self, command: Command, now: Timestamp) -> Option<(MemberId, Generation)> {
        let is_start = matches!(command.action, Action::Start(_));
        let verdict = match judge(&self.journal, &command) {
            Verdict::New if is_start && std::mem::take(&mut self.refuses) => {
                Verdict::Refused("not today".to_owned())
            }
            verdict => verdict,
        };
        let serving = self.engines.iter().find(|engine| engine.member == command.member && engine.serves());
        let serving = serving.map(|engine| (engine.member.clone(), engine.generation));
        let outcome = match verdict {
            Verdict::New => {
                self.journal = self.journal.take_up(&command);
                self.order(&command, now);
                CommandOutcome::Accepted
            }
            Verdict::Again => CommandOutcome::Accepted,
            Verdict::Refused(reason) => CommandOutcome::Refused { reason },
        };
        self.answers.push(CommandResult { id: command.id, outcome });
        serving.filter(|(member, _)| !self.engines.iter().any(|it| it.member == *member && it.serves()))
    }

    fn order(&mut self, command: &Command, now: Timestamp) {
        let (id, generation) = (&command.member, command.generation);
        let event = match &command.action {
            Action::Start(spec) => {
                *self.starts.entry((id.clone(), generation)).or_default() += 1;
                let policy = Policy::of(spec);
                let member = self.members.entry(id.clone()).or_insert_with(|| {
                    Member::new(generation, spec, Supervised::stopped(policy.clone()), now)
                });
                (member.generation, member.digest) = (generation, spec.digest());
                member.spec = Some(spec.clone());
                Event::Start(policy)
            }
            Action::Stop {} => {
                let Some(member) = self.members.get_mut(id) else {
                    let gone = Facts { stopped_at: Some(now), ..Facts::default() };
                    self.journal.note(id, generation, gone);
                    self.members.insert(id.clone(), Member::gone(generation, now));
                    return;
                };
                member.generation = generation;
                Event::Stop
            }
        };
        self.happen(id, event, now);
    }

    /// Something happens to a member, and denvd does what its supervisor decides.
    fn happen(&mut self, id: &MemberId, event: Event, now: Timestamp) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(member) = self.members.get_mut(id) else { return };
            let (next, actions) = decide(member.supervised.clone(), event, moment(now));
            member.supervised = next;
            let mine = |engine: &&mut Engine| engine.member == *id;
            for action in actions {
                match action {
                    supervisor::Action::Prepare => member.coming.push(Event::Prepared(Ok(()))),
                    supervisor::Action::Launch => {
                        let Some(spec) = &member.spec else { continue };
                        self.engines.push(Engine {
                            member: id.clone(),
                            generation: member.generation,
                            gpus: spec.claim.gpus.clone(),
                            age: 0,
                            ending: None,
                            release: release(&spec.argv),
                        });
                        events.push_back(Event::Launched(Ok(())));
                    }
                    supervisor::Action::Check => {
                        let serves = self.engines.iter().any(|it| it.member == *id && it.serves());
                        let answer = if serves { Ok(()) } else { Err("no answer".to_owned()) };
                        member.coming.push(Event::Checked(answer));
                    }
                    supervisor::Action::Terminate => {
                        self.engines.iter_mut().filter(mine).for_each(|engine| engine.ending = Some(0));
                    }
                    supervisor::Action::Kill => {
                        self.engines.iter_mut().filter(mine).for_each(|engine| engine.ending = Some(2));
                    }
                }
            }
        }
        self.note(id, now);
    }

    /// What the journal must know of it.
    fn note(&mut self, id: &MemberId, now: Timestamp) {
        let Some(member) = self.members.get_mut(id) else { return };
        let state = member.supervised.state();
        if member.entered != (member.generation, state) {
            (member.entered, member.since) = ((member.generation, state), now);
        }
        let engine = self.engines.iter().find(|engine| engine.member == *id);
        let reason = || member.supervised.reason().unwrap_or_default().to_owned();
        let facts = Facts {
            engine: engine.map(|engine| record(engine.generation)),
            was_healthy: member.supervised.was_healthy(),
            restarts: member.supervised.restarts(),
            failed: (state == MemberState::Failed).then(reason),
            stopped_at: (state == MemberState::Stopped).then_some(member.since),
        };
        self.journal.note(id, member.generation, facts);
    }

    /// A process is gone.
    fn bury(&mut self, member: &MemberId, how: &str, now: Timestamp) {
        if self.denvd_down_until.is_none() {
            self.happen(member, Event::Exited { how: how.to_owned(), log: String::new() }, now);
        }
    }

    /// denvd is back: it adopts what runs and finishes what it was told.
    fn resume(&mut self, now: Timestamp) {
        for (id, entry) in self.journal.members.clone() {
            let engine = self.engines.iter().find(|engine| engine.member == id);
            let Some(spec) = &entry.spec else {
                self.members.insert(id, Member::gone(entry.generation, now));
                continue;
            };
            let (supervised, event) = resumed(&entry, engine, spec, now);
            let mut member = Member::new(entry.generation, spec, supervised, now);
            member.digest = entry.digest.unwrap_or(member.digest);
            self.members.insert(id.clone(), member);
            match event {
                Some(event) => self.happen(&id, event, now),
                None => self.note(&id, now),
            }
        }
    }

    /// A second passes.
    pub fn act(&mut self, healed: bool, now: Timestamp) {
        if self.reclaim.is_some_and(|at| at <= now) {
            self.lose_state();
            self.cut = true;
            return;
        }
        for engine in &mut self.engines {
            engine.age += 1;
            engine.ending = engine.ending.map(|since| since + 1);
        }
        while let Some(at) = self.engines.iter().position(|engine| engine.ended(healed).is_some()) {
            let engine = self.engines.remove(at);
            self.bury(&engine.member, engine.ended(healed).unwrap_or_default(), now);
        }
        if let Some(until) = self.denvd_down_until {
            if until > now {
                return;
            }
            self.denvd_down_until = None;
            self.resume(now);
        }
        self.preparing.act(now);
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            let member = self.members.get_mut(&id).unwrap();
            let mut events = std::mem::take(&mut member.coming);
            if member.supervised.wake_at().is_some_and(|at| at <= moment(now)) {
                events.push(Event::Tick);
            }
            events.into_iter().for_each(|event| self.happen(&id, event, now));
        }
    }

    /// What is left of anything.
    pub fn leftovers(&self) -> Vec<String> {
        let said = |engine: &Engine| format!("{}@{} of {} s", engine.member, engine.generation, engine.age);
        self.engines.iter().map(said).collect()
    }
}

fn record(generation: Generation) -> EngineRecord {
    EngineRecord {
        generation,
        pid: 1,
        started_ticks: 0,
        boot: String::new(),
        port: 1,
        log_offset: 0,
        container: None,
    }
}

/// The supervisor's clock.
fn moment(now: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(now.as_second() - 1_000_000_000).unwrap_or(0))
}
