//! One member's task: it tells the supervisor what happens, and does what the supervisor decides.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::launch::{LaunchSpec, PORT, WEIGHTS};
use denv_schema::wire::{Generation, MemberReport, MemberState};
use denv_schema::{Digest, MemberId};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use super::view::{MemberView, View};
use super::{Host, probe};
use crate::journal::Facts;
use crate::runtimes::{Engine, Environment, ImageError, Launch, Room};
use crate::supervisor::{Action, Event, LaunchFailure, Phase, Policy, Supervised, decide};

pub(super) enum Order {
    Start { generation: Generation, spec: Arc<LaunchSpec> },
    Stop { generation: Generation },
}

/// What the journal is to know.
pub(super) struct Note {
    pub(super) member: MemberId,
    pub(super) generation: Generation,
    pub(super) facts: Facts,
}

pub(super) struct Member {
    host: Arc<Host>,
    id: MemberId,
    generation: Generation,
    spec: Arc<LaunchSpec>,
    digest: Digest,
    supervised: Supervised,
    engine: Option<Engine>,
    /// What its engine was given and no reason may show.
    secrets: Vec<String>,
    /// The verified weights of the next launch.
    weights: Option<PathBuf>,
    preparing: Option<Slow<Result<Option<PathBuf>, String>>>,
    checking: Option<Slow<Result<(), String>>>,
    /// The state it was last seen in, and since when.
    entered: Option<(Generation, MemberState)>,
    since: Timestamp,
    noted: Facts,
}

/// Something under way.
type Slow<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Member {
    pub(super) fn new(
        host: Arc<Host>,
        id: MemberId,
        generation: Generation,
        spec: Arc<LaunchSpec>,
        supervised: Supervised,
    ) -> Self {
        Member {
            digest: spec.digest(),
            host,
            id,
            generation,
            spec,
            supervised,
            engine: None,
            secrets: Vec::new(),
            weights: None,
            preparing: None,
            checking: None,
            entered: None,
            since: Timestamp::now(),
            noted: Facts::default(),
        }
    }

    /// What it had before denvd was restarted.
    pub(super) fn resume(&mut self, engine: Option<Engine>, digest: Option<Digest>, noted: Facts) {
        self.engine = engine;
        self.secrets = self.engine.as_ref().map_or_else(Vec::new, |engine| engine.secrets(&self.spec.env));
        self.digest = digest.unwrap_or(self.digest);
        self.noted = noted;
    }

    /// Ends when nobody can give orders any more.
    pub(super) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        notes: mpsc::UnboundedSender<Note>,
        view: Arc<watch::Sender<View>>,
        actions: Vec<Action>,
    ) {
        let mut first = VecDeque::new();
        for action in actions {
            first.extend(self.act(action).await);
        }
        self.handle(first).await;
        loop {
            self.show(&view);
            self.note(&notes);
            let wake_at = self.supervised.wake_at().map(|at| self.host.began + at);
            let event = tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.take_order(order),
                    None => return,
                },
                how = ended(&mut self.engine) => self.buried(how),
                prepared = finished(&mut self.preparing) => Event::Prepared(prepared.map(|path| self.weights = path)),
                checked = finished(&mut self.checking) => Event::Checked(checked),
                () = sleep_until(wake_at) => Event::Tick,
            };
            self.handle(VecDeque::from([event])).await;
        }
    }

    fn take_order(&mut self, order: Order) -> Event {
        match order {
            Order::Start { generation, spec } => {
                self.generation = generation;
                self.digest = spec.digest();
                self.spec = spec;
                Event::Start(Policy::of(&self.spec))
            }
            Order::Stop { generation } => {
                self.generation = generation;
                Event::Stop
            }
        }
    }

    /// The engine is gone.
    fn buried(&mut self, how: String) -> Event {
        let offset = self.engine.take().map_or(0, |engine| engine.record().log_offset);
        let log = self.host.log(&self.id).tail(offset, &self.secrets);
        tracing::info!(member = %self.id, "the engine {how}");
        Event::Exited { how, log }
    }

    async fn handle(&mut self, mut events: VecDeque<Event>) {
        while let Some(event) = events.pop_front() {
            let (next, actions) = decide(self.supervised.clone(), event, self.host.now());
            self.supervised = next;
            for action in actions {
                events.extend(self.act(action).await);
            }
            // What nobody waits for is given up.
            if !matches!(self.supervised.phase(), Phase::Preparing) {
                self.preparing = None;
            }
            if !matches!(self.supervised.phase(), Phase::Running(_)) {
                self.checking = None;
            }
        }
        let state = self.supervised.state();
        if self.entered != Some((self.generation, state)) {
            self.entered = Some((self.generation, state));
            self.since = Timestamp::now();
            let reason = self.supervised.reason();
            tracing::info!(member = %self.id, generation = self.generation, ?state, reason, "entered a state");
        }
        if *self.supervised.phase() == Phase::Stopped {
            self.host.ports.release(&self.id);
        }
    }

    async fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Prepare => {
                self.preparing = Some(Box::pin(prepare(self.host.clone(), self.spec.clone())));
                None
            }
            Action::Launch => Some(Event::Launched(self.launch().await)),
            Action::Check => {
                let port = self.engine.as_ref()?.record().port;
                // Its end would be seen: that it has none to be asked means that it lives.
                let Some(probe) = &self.spec.probe else { return Some(Event::Checked(Ok(()))) };
                self.checking = Some(Box::pin(probe::check(port, probe.path.clone(), probe.timeout.get())));
                None
            }
            Action::Terminate => {
                self.engine.as_ref()?.terminate();
                None
            }
            Action::Kill => {
                self.engine.as_ref()?.kill();
                None
            }
        }
    }

    async fn launch(&mut self) -> Result<(), LaunchFailure> {
        let again = |reason: String| LaunchFailure { reason, permanent: false };
        let port =
            self.host.ports.give(&self.id).map_err(|error| again(format!("cannot get a port: {error}")))?;
        let weights = self.weights.as_ref().map(|path| path.to_string_lossy());
        let needs_weights = |text: &String| text.contains(WEIGHTS);
        if weights.is_none()
            && (self.spec.argv.iter().any(needs_weights) || self.spec.env.values().any(needs_weights))
        {
            let reason = format!("the engine's command uses `{WEIGHTS}`, and its release names no weights");
            return Err(LaunchFailure { reason, permanent: true });
        }
        let port_text = port.to_string();
        let fill =
            |text: &str| text.replace(PORT, &port_text).replace(WEIGHTS, weights.as_deref().unwrap_or(""));
        let argv: Vec<String> = self.spec.argv.iter().map(|text| fill(text)).collect();
        let environment = Environment::resolve(&self.spec.env, fill)
            .map_err(|error| LaunchFailure { reason: error.to_string(), permanent: true })?;
        let log = self.host.log(&self.id);
        let room = self.room()?;
        let launch = Launch {
            argv: &argv,
            environment: &environment,
            path: &self.host.engine_path,
            dir: &self.host.dir,
            log: &log,
            port,
            marks: &self.host.marks,
            member: &self.id,
            generation: self.generation,
            room,
        };
        let launched = Engine::launch(&launch).await;
        self.secrets = environment.secrets;
        let engine = launched
            .map_err(|error| LaunchFailure { reason: error.to_string(), permanent: error.is_permanent() })?;
        let record = engine.record();
        tracing::info!(member = %self.id, generation = self.generation, pid = record.pid, port, "started the engine");
        self.engine = Some(engine);
        Ok(())
    }

    /// The container that its engine is to run in.
    fn room(&self) -> Result<Option<Room<'_>>, LaunchFailure> {
        let Some(container) = &self.spec.container else { return Ok(None) };
        let images = self.host.images.as_ref();
        let images = images
            .ok_or_else(|| LaunchFailure { reason: ImageError::NoPodman.to_string(), permanent: true })?;
        let (podman, weights) = (images.podman(), self.weights.as_deref());
        Ok(Some(Room { podman, container, weights, accelerated: !self.spec.claim.gpus.is_empty() }))
    }

    pub(super) fn show(&self, view: &watch::Sender<View>) {
        let running = matches!(self.supervised.phase(), Phase::Running(_));
        let port = self.engine.as_ref().filter(|_| running).map(|engine| engine.record().port);
        let report = MemberReport {
            generation: self.generation,
            spec: self.digest,
            state: self.supervised.state(),
            since: self.since,
            claim: (self.supervised.state() != MemberState::Stopped).then(|| self.spec.claim.clone()),
            restarts: self.supervised.restarts(),
            ends_in_a_row: self.supervised.ends_in_a_row(),
            reason: self.supervised.reason().map(str::to_owned),
        };
        let shown = MemberView { report, port, spec: Some(self.spec.clone()) };
        view.send_if_modified(|view| {
            let changed = view.members.get(&self.id) != Some(&shown);
            if changed {
                view.members.insert(self.id.clone(), shown);
            }
            changed
        });
    }

    fn note(&mut self, notes: &mpsc::UnboundedSender<Note>) {
        let state = self.supervised.state();
        let facts = Facts {
            engine: self.engine.as_ref().map(|engine| engine.record().clone()),
            was_healthy: self.supervised.was_healthy(),
            restarts: self.supervised.restarts(),
            failed: (state == MemberState::Failed)
                .then(|| self.supervised.reason().unwrap_or_default().to_owned()),
            stopped_at: (state == MemberState::Stopped).then_some(self.since),
        };
        if facts != self.noted {
            self.noted = facts.clone();
            // When the queue has ended, denvd is ending: the next one looks for itself.
            let _ = notes.send(Note { member: self.id.clone(), generation: self.generation, facts });
        }
    }
}

/// Between tries of what may pass.
const PREPARE_AGAIN: Duration = Duration::from_secs(5);

/// The verified weights, once all that an engine is started from is on the host.
async fn prepare(host: Arc<Host>, spec: Arc<LaunchSpec>) -> Result<Option<PathBuf>, String> {
    if let Some(container) = &spec.container {
        let images = host.images.clone().ok_or_else(|| ImageError::NoPodman.to_string())?;
        // An engine that served must come back once the registry, or a slow podman, does; one that never did has its time.
        while let Err(error) = images.clone().prepare(container.image.clone()).await {
            if !error.may_pass() {
                return Err(error.to_string());
            }
            tracing::warn!(image = container.image, "not prepared yet: {error}");
            tokio::time::sleep(PREPARE_AGAIN).await;
        }
    }
    let Some(weights) = spec.weights.clone() else { return Ok(None) };
    host.weights.clone().prepare(weights).await.map(Some).map_err(|error| error.to_string())
}

async fn ended(engine: &mut Option<Engine>) -> String {
    match engine {
        Some(engine) => engine.ended().await,
        None => std::future::pending().await,
    }
}

async fn finished<T>(slow: &mut Option<Slow<T>>) -> T {
    let result = match slow {
        Some(slow) => slow.await,
        None => std::future::pending().await,
    };
    *slow = None;
    result
}

async fn sleep_until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
