//! Gathers the world, has it planned, and carries the plan out: each step is in the store before its effect begins.
//!
//! It owns the records. It makes no choices: those are the planner's.

mod execute;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_planner::actions::{Refusal, act, scale};
use denv_planner::{
    Observed, Plan, Records, Subject, WaitingOn, World, knows_what_serves, plan, routes, vet,
};
use denv_schema::api::{Level, RolloutRequest, ScaleRequest};
use denv_schema::wire::{CommandOutcome, CommandResult, Term};
use denv_schema::{Catalog, Name, StageId};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::link::{Queues, Serving};
use crate::observation::Observation;
use crate::store::{Event, Store, StoreError};

/// The world as last planned, for those who show it.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub catalog: Option<Arc<Catalog>>,
    pub records: Records,
    pub observed: Observed,
    pub plan: Plan,
    /// What keeps denv itself from acting, for people.
    pub problem: Option<String>,
}

/// What a person may ask of a stage.
pub enum Asked {
    Rollout(RolloutRequest),
    Scale(ScaleRequest),
}

/// What a person asks of a stage.
pub struct Ask {
    pub stage: StageId,
    pub what: Asked,
    pub who: String,
    pub answer: oneshot::Sender<Result<(), AskError>>,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the control plane cannot write its store")]
    Store(#[source] StoreError),
}

pub struct Orchestrator {
    pub store: Store,
    pub term: Term,
    pub records: Records,
    pub catalog: watch::Receiver<Option<Arc<Catalog>>>,
    pub observation: Arc<Observation>,
    pub answers: mpsc::Receiver<CommandResult>,
    pub asks: mpsc::Receiver<Ask>,
    pub queues: Arc<Queues>,
    pub state: watch::Sender<Arc<State>>,
    pub serving: watch::Sender<Arc<Serving>>,
    /// A write failed, and may have been done all the same: what is in memory is not to be trusted.
    pub doubtful: bool,
}

/// Reports come in bursts: what changes within this, at least, is planned at once.
const GATHER: Duration = Duration::from_millis(20);
const LONGEST_GATHER: Duration = Duration::from_millis(300);
/// Between tries while the store can't be written.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Plans of one pass: each carries the steps the one before made possible. A planner that needs more is at odds with
/// itself, and is stopped before it does harm.
const MOST_ROUNDS: usize = 1_000;
/// Between plans while what is planned is not to be trusted.
const PLAN_RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);

impl Orchestrator {
    /// Runs until another process leads, or everything it listens to is gone.
    pub async fn run(mut self) -> Result<(), StoreError> {
        let mut observed_changes = self.observation.changes();
        loop {
            let began = Instant::now();
            let passed = self.pass().await;
            // Where a pass takes long, most of the time is for those who are heard in it.
            let gather = (began.elapsed() * 2).clamp(GATHER, LONGEST_GATHER);
            let wake_at = match passed {
                Ok(wake_at) => wake_at,
                Err(error @ StoreError::Deposed { .. }) => return Err(error),
                Err(error) => {
                    let chain = crate::chain(&error);
                    tracing::error!(error = %chain, "nothing is started or stopped until the store can be written");
                    self.state.send_modify(|state| Arc::make_mut(state).problem = Some(chain));
                    Some(Timestamp::now() + jiff::SignedDuration::try_from(STORE_RETRY).unwrap_or_default())
                }
            };
            let wake = async {
                match wake_at {
                    Some(at) => {
                        let wait =
                            Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                        tokio::time::sleep(wait + Duration::from_millis(1)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.catalog.changed() => if changed.is_err() { return Ok(()) },
                changed = observed_changes.changed() => if changed.is_err() { return Ok(()) },
                Some(answer) = self.answers.recv() => self.answered(answer),
                Some(ask) = self.asks.recv() => self.asked(ask).await,
                () = wake => {}
            }
            tokio::time::sleep(gather).await;
            while let Ok(answer) = self.answers.try_recv() {
                self.answered(answer);
            }
            observed_changes.mark_unchanged();
        }
    }

    /// Plans and acts until there is nothing to do but wait. Gives the time to plan again.
    async fn pass(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.remember().await?;
        let Some(catalog) = self.catalog.borrow_and_update().clone() else {
            self.publish(None, self.observation.snapshot(), Plan::default(), None);
            return Ok(None);
        };
        let mut told = unsound(&self.state.borrow().plan);
        for _ in 0..MOST_ROUNDS {
            // Records and catalog are read before observed, so a finished step never looks undone.
            let observed = self.observation.snapshot();
            let now = Timestamp::now();
            let world = World { catalog: &catalog, records: &self.records, observed: &observed, now };
            let planned = vet(&world, plan(&world));
            let is_unsound = self.tell_of_unsound(&planned, &mut told, now).await?;
            if planned.steps.is_empty() {
                let again = is_unsound.then(|| now + PLAN_RETRY);
                let wake_at = planned.wake_at.into_iter().chain(again).min();
                self.queues.prefetch(&planned.prefetch);
                self.publish(Some(&catalog), observed, planned, None);
                return Ok(wake_at);
            }
            self.carry_out(&planned.steps).await?;
        }
        let problem =
            format!("the planner did not come to rest in {MOST_ROUNDS} rounds; denv waits and tries again");
        tracing::error!("{problem}");
        self.publish(Some(&catalog), self.observation.snapshot(), Plan::default(), Some(problem));
        Ok(Some(Timestamp::now() + PLAN_RETRY))
    }

    /// Whether parts of a plan would break an invariant. Each is told once, however often it is planned.
    async fn tell_of_unsound(
        &self,
        planned: &Plan,
        told: &mut BTreeMap<Subject, WaitingOn>,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let found = unsound(planned);
        for (subject, on) in found.iter().filter(|(subject, on)| told.get(subject) != Some(on)) {
            let (subject, message) = (subject.to_string(), on.to_string());
            tracing::error!("{subject} {message}");
            self.store.note(&Event { at, subject, level: Level::Warning, message }).await?;
        }
        *told = found;
        Ok(!told.is_empty())
    }

    /// After a write of which nobody knows whether it was done, the store is asked.
    async fn remember(&mut self) -> Result<(), StoreError> {
        if self.doubtful {
            let (records, asked) = (self.store.records().await?, self.store.asked_hosts().await?);
            self.records = records;
            self.doubtful = false;
            self.wake(asked);
        }
        Ok(())
    }

    /// A host has answered a command, and its report after that was heard.
    pub fn answered(&mut self, answer: CommandResult) {
        // What was withdrawn meanwhile is of no account.
        let is_awaited = self.records.pending.remove(&answer.id);
        if let (true, CommandOutcome::Refused { reason }) = (is_awaited, answer.outcome) {
            self.records.refused.insert(answer.id, reason);
        }
    }

    async fn asked(&mut self, ask: Ask) {
        if let Err(error) = self.remember().await {
            let _ = ask.answer.send(Err(AskError::Store(error)));
            return;
        }
        let now = Timestamp::now();
        let steps = match &ask.what {
            Asked::Rollout(request) => act(&self.records, &ask.stage, request, &ask.who, now),
            Asked::Scale(request) => {
                let catalog = self.catalog.borrow().clone();
                let spec = catalog.as_ref().and_then(|catalog| catalog.stages.get(&ask.stage));
                match spec {
                    Some(spec) => scale(spec, &ask.stage, request.units, &ask.who, now),
                    None => Err(Refusal::NoStage(ask.stage.clone())),
                }
            }
        };
        let done = match steps {
            Ok(steps) => self.carry_out(&steps).await.map_err(AskError::Store),
            Err(refusal) => Err(AskError::Refused(refusal)),
        };
        // The asker may have gone; what was asked is done all the same.
        let _ = ask.answer.send(done);
    }

    fn publish(
        &self,
        catalog: Option<&Arc<Catalog>>,
        observed: Observed,
        plan: Plan,
        problem: Option<String>,
    ) {
        if let Some(catalog) = catalog {
            self.tell_gateways(catalog, &observed);
        }
        let (catalog, records) = (catalog.cloned(), self.records.clone());
        self.state.send_replace(Arc::new(State { catalog, records, observed, plan, problem }));
    }

    fn tell_gateways(&self, catalog: &Arc<Catalog>, observed: &Observed) {
        let world = World { catalog, records: &self.records, observed, now: Timestamp::now() };
        if !knows_what_serves(&world) {
            return;
        }
        let routes = routes(&world);
        self.serving.send_if_modified(|serving| {
            if serving.is_of(catalog) && serving.routes == routes {
                return false;
            }
            let config = serving.config_of(catalog);
            *serving = Arc::new(Serving { catalog: Some(Arc::clone(catalog)), config, routes });
            true
        });
    }

    fn wake(&self, hosts: impl IntoIterator<Item = Name>) {
        for host in hosts {
            self.queues.wake(&host);
        }
    }
}

/// What of a plan stands still because it would break an invariant.
fn unsound(plan: &Plan) -> BTreeMap<Subject, WaitingOn> {
    let waiting = plan.waiting.iter().filter(|(_, on)| matches!(on, WaitingOn::Unsound { .. }));
    waiting.map(|(subject, on)| (subject.clone(), on.clone())).collect()
}
