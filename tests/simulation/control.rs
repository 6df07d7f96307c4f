//! The reconciler's own parts in a simulated world: its orchestrator, its store, and the queues of hosts in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;

use denv_planner::{Observed, Plan, Records, Step};
use denv_reconciler::link::{Queues, Serving};
use denv_reconciler::observation::Observation;
use denv_reconciler::orchestrator::{Orchestrator, State};
use denv_reconciler::store::{Commit, Store};
use denv_schema::wire::{Artifact, Command, CommandOutcome, CommandResult, Term};
use denv_schema::{Digest, Name};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc, watch};

/// What survives a process, and the process.
pub struct Control {
    runtime: Runtime,
    /// In memory, where the system has such a folder.
    _folder: TempDir,
    store: Store,
    orchestrator: Orchestrator,
    queues: Arc<Queues>,
}

impl Control {
    pub fn new(now: Timestamp) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let memory = std::path::Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let path = folder.path().join("denv.db");
        let store = runtime.block_on(Store::open(&path, &"default".parse().unwrap())).unwrap();
        let queues = Arc::new(Queues::default());
        let orchestrator = runtime.block_on(lead(&store, &queues, now));
        Control { runtime, _folder: folder, store, orchestrator, queues }
    }

    /// One that has taken up another's records, with what hosts have not answered yet.
    pub fn of(records: &Records, deployed: &BTreeMap<Name, Digest>, now: Timestamp) -> Self {
        let mut control = Control::new(now);
        let commands = records.units.iter().flat_map(|(id, unit)| {
            let asked = |(_, command): &(&Name, Command)| {
                records.pending.contains(&command.id) || records.refused.contains_key(&command.id)
            };
            unit.commands().filter(asked).map(|(host, command)| (host.clone(), id.clone(), command))
        });
        let commands: Vec<_> = commands.collect();
        let commit = Commit {
            stages: records.stages.clone(),
            units: records.units.iter().map(|(id, unit)| (id.clone(), Some(Arc::clone(unit)))).collect(),
            host_faults: records.hosts.iter().map(|(host, it)| (host.clone(), Some(it.clone()))).collect(),
            commands: commands.clone(),
            deployed: deployed.clone(),
            ..Commit::default()
        };
        control.runtime.block_on(control.store.commit(control.term(), &commit)).unwrap();
        for (host, _, command) in commands {
            if let Some(reason) = records.refused.get(&command.id) {
                let outcome = CommandOutcome::Refused { reason: reason.clone() };
                control.answer(&host, &CommandResult { id: command.id, outcome });
            }
        }
        control.restart(now);
        control
    }

    /// What each release meant when it was deployed.
    pub fn deployed(&self) -> BTreeMap<Name, Digest> {
        self.runtime.block_on(self.store.deployed_releases()).unwrap()
    }

    /// The process ended, and another leads: what it knows is what is in the store.
    pub fn restart(&mut self, now: Timestamp) {
        self.queues = Arc::new(Queues::default());
        self.orchestrator = self.runtime.block_on(lead(&self.store, &self.queues, now));
    }

    pub fn term(&self) -> Term {
        self.orchestrator.term
    }

    pub fn records(&self) -> &Records {
        &self.orchestrator.records
    }

    /// Writes what steps change and wakes the queues that they fill.
    pub fn carry_out(&mut self, steps: &[Step]) {
        self.runtime.block_on(self.orchestrator.carry_out(steps)).unwrap();
    }

    /// A host has answered: it is in the store, and known to the orchestrator only when its next report is heard.
    pub fn answer(&self, host: &Name, result: &CommandResult) {
        self.runtime.block_on(self.store.answer(host, result)).unwrap();
    }

    pub fn answered(&mut self, result: CommandResult) {
        self.orchestrator.answered(result);
    }

    pub fn wake(&self, host: &Name) {
        self.queues.wake(host);
    }

    /// What hosts are to prepare, as planned.
    pub fn prefetch(&self, planned: &Plan) {
        self.queues.prefetch(&planned.prefetch);
    }

    /// What a host is to prepare.
    pub fn artifacts(&self, host: &Name) -> Vec<Artifact> {
        self.queues.artifacts(host)
    }

    /// A host's new stream, and what wakes it.
    pub fn attach(&self, host: &Name) -> Arc<Notify> {
        self.queues.attach(host)
    }

    /// What a host has not answered, in the term of now.
    pub fn queued(&self, host: &Name) -> Vec<Command> {
        let mut commands = self.runtime.block_on(self.store.queued(host)).unwrap();
        commands.iter_mut().for_each(|command| command.term = self.term());
        commands
    }
}

async fn lead(store: &Store, queues: &Arc<Queues>, now: Timestamp) -> Orchestrator {
    let term = store.lead(now).await.unwrap();
    let observation = Observation::load(store, Timestamp::UNIX_EPOCH).await.unwrap();
    let (_, catalog) = watch::channel(None);
    let ((_, answers), (_, asks)) = (mpsc::channel(1), mpsc::channel(1));
    Orchestrator {
        records: store.records().await.unwrap(),
        store: store.clone(),
        term,
        catalog,
        observation: Arc::new(observation),
        answers,
        asks,
        queues: Arc::clone(queues),
        state: watch::channel(Arc::new(State::default())).0,
        serving: watch::channel(Arc::new(Serving::default())).0,
        doubtful: false,
    }
}

/// Whether a host's queue has been woken since it was looked at.
pub fn is_woken(queue: &Notify) -> bool {
    queue.notified().now_or_never().is_some()
}

/// What a process finds of what was heard before it: nobody is connected yet.
pub fn reloaded(mut saved: Observed, now: Timestamp) -> Observed {
    saved.since = now;
    saved.hosts.values_mut().for_each(|host| host.connected = false);
    saved.gateways.values_mut().for_each(|gateway| gateway.connected = false);
    saved
}
