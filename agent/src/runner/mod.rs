//! The host's queue: takes commands up through the journal, keeps one task per member that drives its engine, and
//! shows what is. After a restart of denvd it adopts what still runs. It refuses to know who sends commands and
//! who asks for members.

mod member;
mod ports;
mod probe;
mod resume;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::launch::LaunchSpec;
use denv_schema::wire::{
    Action, Command, CommandId, CommandOutcome, Generation, MemberReport, MemberState, Term,
};
use denv_schema::{Digest, MemberId};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

pub use view::{Answers, MemberView, View};

use crate::journal::store::{Disk, OpenError, Store};
use crate::journal::{Desired, Facts, Verdict};
use crate::runtimes::{EnginePath, Images, LogFile, Marks};
use crate::supervisor::{Event, Policy, Supervised, decide};
use crate::weights::WeightStore;
use member::{Member, Note, Order};
use ports::Ports;

/// What the runner is given of the host.
pub struct Setup {
    /// Absolute; holds the engines' logs and working folder.
    pub state_dir: PathBuf,
    pub engine_path: EnginePath,
    pub weights: Arc<WeightStore>,
    /// None: engines are not started from images here.
    pub images: Option<Arc<Images>>,
}

/// The queue at work. Dropping it stops supervision and leaves all engines running.
pub struct Runner {
    handle: Handle,
    task: JoinHandle<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Journal(#[from] OpenError),
    #[error("cannot make the folder `{path}`; denvd must be able to write its state folder (`--state-dir`)")]
    Folder { path: PathBuf, source: std::io::Error },
}

/// How others ask the runner, and see what it shows.
#[derive(Clone)]
pub struct Handle {
    requests: mpsc::Sender<Request>,
    view: watch::Receiver<View>,
    answers: watch::Receiver<Answers>,
}

enum Request {
    Command(Box<Command>),
    Taken(CommandId),
    Term(Term),
}

/// What every member's task shares.
struct Host {
    dir: PathBuf,
    logs: PathBuf,
    engine_path: EnginePath,
    weights: Arc<WeightStore>,
    images: Option<Arc<Images>>,
    marks: Marks,
    ports: Ports,
    began: Instant,
}

/// How often what could not be written is tried again, and problems are looked for.
const RETRY: Duration = Duration::from_secs(1);
const FAULT: &str =
    "a member's task ended by a fault of denvd; restart denvd, which takes the engine up again";

impl Runner {
    /// Resumes from the journal: adopts engines that run, restarts those that ended, finishes stops.
    pub async fn resume(setup: Setup, disk: Arc<dyn Disk>) -> Result<Runner, ResumeError> {
        let store = Store::open(disk)?;
        let (dir, logs) = (setup.state_dir.join("run"), setup.state_dir.join("logs"));
        for path in [&dir, &logs] {
            std::fs::create_dir_all(path)
                .map_err(|source| ResumeError::Folder { path: path.clone(), source })?;
        }
        let host = Arc::new(Host {
            dir,
            logs,
            engine_path: setup.engine_path,
            weights: setup.weights,
            images: setup.images,
            marks: Marks::new(&setup.state_dir),
            ports: Ports::default(),
            began: Instant::now(),
        });
        let (requests, inbox) = mpsc::channel(64);
        let (notes, noted) = mpsc::unbounded_channel();
        let (view, answers) = (Arc::new(watch::Sender::default()), watch::Sender::default());
        let handle = Handle { requests, view: view.subscribe(), answers: answers.subscribe() };
        let mut queue = Queue {
            store,
            host,
            orders: BTreeMap::new(),
            deferred: VecDeque::new(),
            tasks: JoinSet::new(),
            has_fault: false,
            view,
            answers,
            notes,
        };
        queue.resume().await;
        queue.look_for_problems();
        Ok(Runner { handle, task: tokio::spawn(queue.run(inbox, noted)) })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Done when supervision has ended by itself, which it never should.
    pub async fn broken(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the runner ended");
        }
    }

    /// Stops supervision and leaves all engines running.
    pub async fn halt(mut self) {
        self.task.abort();
        // It was cancelled; nothing else is of interest.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Handle {
    /// Its answer comes in [`Handle::answers`], once it is recorded.
    pub async fn command(&self, command: Command) {
        self.send(Request::Command(Box::new(command))).await;
    }

    /// The answer to this command needs no repeating.
    pub async fn answer_taken(&self, id: CommandId) {
        self.send(Request::Taken(id)).await;
    }

    /// There is a leader with this term.
    pub async fn see_term(&self, term: Term) {
        self.send(Request::Term(term)).await;
    }

    pub fn view(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    pub fn answers(&self) -> watch::Receiver<Answers> {
        self.answers.clone()
    }

    async fn send(&self, request: Request) {
        // When the runner has ended, denvd is ending: the command will be delivered again.
        let _ = self.requests.send(request).await;
    }
}

/// The owner of the journal and of the members' tasks.
struct Queue {
    store: Store,
    host: Arc<Host>,
    /// To the task of each member of which something is left.
    orders: BTreeMap<MemberId, mpsc::UnboundedSender<Order>>,
    /// Commands that could not be written down yet, in their order.
    deferred: VecDeque<Command>,
    tasks: JoinSet<()>,
    has_fault: bool,
    view: Arc<watch::Sender<View>>,
    answers: watch::Sender<Answers>,
    notes: mpsc::UnboundedSender<Note>,
}

impl Queue {
    async fn run(mut self, mut inbox: mpsc::Receiver<Request>, mut noted: mpsc::UnboundedReceiver<Note>) {
        let mut retry = tokio::time::interval(RETRY);
        retry.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                request = inbox.recv() => match request {
                    Some(Request::Command(command)) => self.command(*command).await,
                    Some(Request::Taken(id)) => self.answers.send_modify(|answers| answers.take(&id)),
                    Some(Request::Term(term)) => self.store.see_term(term).await,
                    None => return,
                },
                Some(note) = noted.recv() => self.note(note).await,
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "{FAULT}");
                        self.has_fault = true;
                    }
                }
                _ = retry.tick() => {
                    self.store.flush().await;
                    self.take_up_deferred().await;
                }
            }
            self.look_for_problems();
        }
    }

    async fn command(&mut self, command: Command) {
        self.deferred.retain(|other| other.id != command.id);
        self.deferred.push_back(command);
        self.take_up_deferred().await;
    }

    /// Takes up what can be written down. The rest stays unanswered and untouched.
    async fn take_up_deferred(&mut self) {
        while let Some(command) = self.deferred.pop_front() {
            match self.store.take_up(&command).await {
                Ok(verdict) => self.carry_out(command, verdict).await,
                Err(_) => {
                    self.deferred.push_front(command);
                    return;
                }
            }
        }
    }

    async fn carry_out(&mut self, command: Command, verdict: Verdict) {
        let Command { id, member, generation, action, .. } = command;
        let outcome = match verdict {
            Verdict::New => {
                tracing::info!(%member, generation, "took up {}", id.0);
                match action {
                    Action::Start(spec) => self.start(&member, generation, Arc::new(spec)),
                    Action::Stop {} => self.stop(&member, generation).await,
                }
                CommandOutcome::Accepted
            }
            Verdict::Again => {
                self.show_stopped(&member);
                CommandOutcome::Accepted
            }
            Verdict::Refused(reason) => {
                tracing::warn!(%member, generation, "refused {}: {reason}", id.0);
                CommandOutcome::Refused { reason }
            }
        };
        self.answers.send_modify(|answers| answers.add(id, outcome));
    }

    fn start(&mut self, member: &MemberId, generation: Generation, spec: Arc<LaunchSpec>) {
        if let Some(orders) = self.orders.get(member) {
            let order = Order::Start { generation, spec: spec.clone() };
            if orders.send(order).is_ok() {
                return;
            }
        }
        let policy = Policy::of(&spec);
        let supervised = Supervised::stopped(policy.clone());
        let (supervised, actions) = decide(supervised, Event::Start(policy), self.host.now());
        let task = Member::new(self.host.clone(), member.clone(), generation, spec, supervised);
        self.spawn(member.clone(), task, actions);
    }

    async fn stop(&mut self, member: &MemberId, generation: Generation) {
        let ordered = self.orders.get(member).map(|orders| orders.send(Order::Stop { generation }));
        if !matches!(ordered, Some(Ok(()))) {
            // Nothing of it was here.
            let facts = Facts { stopped_at: Some(Timestamp::now()), ..Facts::default() };
            self.store.note(member, generation, facts).await;
            self.show_stopped(member);
        }
    }

    fn spawn(&mut self, id: MemberId, member: Member, actions: Vec<crate::supervisor::Action>) {
        let (orders, ordered) = mpsc::unbounded_channel();
        let (notes, view) = (self.notes.clone(), self.view.clone());
        // Before its task runs, so that whoever looks next finds it.
        member.show(&view);
        self.tasks.spawn(member.run(ordered, notes, view, actions));
        self.orders.insert(id, orders);
    }

    async fn note(&mut self, note: Note) {
        let Note { member, generation, facts } = note;
        let stopped = facts.stopped_at.is_some();
        self.store.note(&member, generation, facts).await;
        let entry = self.store.journal().members.get(&member);
        let is_newest = entry.is_none_or(|entry| entry.generation == generation);
        if stopped && is_newest {
            // Its task ends when nobody can give it orders.
            self.orders.remove(&member);
            self.view.send_modify(View::forget_long_stopped);
        }
    }

    /// Shows a member that was stopped, also when that was long ago.
    fn show_stopped(&self, member: &MemberId) {
        let Some(entry) = self.store.journal().members.get(member) else { return };
        let (Desired::Stopped, Some(since)) = (entry.desired, entry.facts.stopped_at) else { return };
        let report = MemberReport {
            generation: entry.generation,
            // One that was stopped before it was ever started has no spec to name.
            spec: entry.digest.unwrap_or(Digest::from_bytes([0; 32])),
            state: MemberState::Stopped,
            since,
            claim: None,
            restarts: entry.facts.restarts,
            ends_in_a_row: 0,
            reason: None,
        };
        let shown = MemberView { report, port: None, spec: None };
        self.view.send_modify(|view| {
            view.members.insert(member.clone(), shown);
            view.forget_long_stopped();
        });
    }

    fn look_for_problems(&self) {
        let missing = self.host.engine_path.missing();
        let missing = missing.map(|dir| format!("the engine path `{}` is not a folder", dir.display()));
        let fault = self.has_fault.then_some(FAULT);
        let known = self.store.problem().into_iter().chain(fault).map(str::to_owned);
        let problems: Vec<String> = known.chain(missing).collect();
        self.view.send_if_modified(|view| {
            let changed = view.problems != problems;
            view.problems = problems;
            changed
        });
    }
}

impl Host {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn log(&self, member: &MemberId) -> LogFile {
        LogFile::new(&self.logs, member.as_str())
    }
}
