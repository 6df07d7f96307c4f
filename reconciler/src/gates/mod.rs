//! Runs the gates that deployments have open, and evaluates the alarms of stages. When a gate is run and what follows
//! from it is the planner's decision, what answers and measures mean is that of `denv-gates`: this asks, keeps reports, and
//! tells the world what came of it.

mod alarms;
mod ask;
mod reference;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use denv_gates::Outcome;
use denv_planner::{Part, Trial};
use denv_schema::secret::SecretReference;
use denv_schema::{Catalog, StageId};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::link::Engines;
use crate::measurement::{LOOK, Measurement};
use crate::observation::Observation;
use crate::orchestrator::State;
use crate::store::Store;

/// Watches one tenant.
pub struct Gates {
    pub store: Store,
    pub state: watch::Receiver<Arc<State>>,
    pub observation: Arc<Observation>,
    pub measurement: Arc<Measurement>,
    pub engines: Arc<Engines>,
    /// The control plane's secrets that manifests may refer to.
    pub secrets: Arc<BTreeSet<SecretReference>>,
}

/// A trial that a deployment has open.
#[derive(Clone, Debug)]
struct Open {
    stage: StageId,
    deployment: u64,
    part: Part,
    trial: Trial,
    /// The reference has answered.
    has_reference: bool,
}

impl Open {
    /// What tells it from any other.
    fn key(&self) -> (StageId, u64, Part, u32) {
        (self.stage.clone(), self.deployment, self.part, self.trial.attempt)
    }
}

impl Gates {
    /// Until nothing changes any more.
    pub async fn run(mut self) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut runs, mut running) = (JoinSet::new(), BTreeMap::<_, AbortHandle>::new());
        loop {
            tokio::select! {
                _ = looks.tick() => self.look(),
                changed = self.state.changed() => if changed.is_err() { return },
                // What a run came to is told by itself.
                Some(_) = runs.join_next() => continue,
            }
            let state = self.state.borrow_and_update().clone();
            let Some(catalog) = &state.catalog else { continue };
            let open = open(&state);
            running.retain(|key, run| {
                let is_open = open.iter().any(|open| open.key() == *key);
                if !is_open {
                    run.abort();
                }
                is_open
            });
            for open in open {
                if !running.contains_key(&open.key()) {
                    let key = open.key();
                    running.insert(key, runs.spawn(self.runner(catalog).run(open)));
                }
            }
        }
    }

    fn runner(&self, catalog: &Arc<Catalog>) -> trial::Runner {
        trial::Runner {
            store: self.store.clone(),
            observation: Arc::clone(&self.observation),
            engines: Arc::clone(&self.engines),
            secrets: Arc::clone(&self.secrets),
            catalog: Arc::clone(catalog),
        }
    }
}

/// The trials that nothing has come of yet.
fn open(state: &State) -> Vec<Open> {
    let mut found = Vec::new();
    for (stage, record) in &state.records.stages {
        let Some(deployment) = record.deployment.as_ref().filter(|it| !it.phase.is_over()) else { continue };
        let reference = deployment.gates.trials.get(&Part::Reference).and_then(|trial| trial.ended.as_ref());
        let has_reference = reference.is_some_and(|ended| ended.outcome == Outcome::Pass);
        let trials = deployment.gates.trials.iter().filter(|(_, trial)| trial.ended.is_none());
        found.extend(trials.map(|(part, trial)| Open {
            stage: stage.clone(),
            deployment: deployment.number,
            part: *part,
            trial: trial.clone(),
            has_reference,
        }));
    }
    found
}
