//! Commit statuses: what became of a revision, said on the forge where its pull request was. It watches and tells; a
//! forge that is slow, away or of another mind holds up nothing else.

mod saying;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use denv_forge::{Client, ForgeError, Status};
use denv_schema::Catalog;
use denv_schema::api::SourceView;
use tokio::sync::watch;

use crate::orchestrator::State;
use crate::source::{ForgeConfig, SecretError, SourceHandle};
use saying::{Saying, sayings};

/// What happens within this is said at once: forges mind many small requests.
const GATHER: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(10);

/// The statuses of one source's commits.
pub struct Statuses {
    context: String,
    forge: ForgeConfig,
    source: watch::Receiver<SourceView>,
    state: watch::Receiver<Arc<State>>,
    catalog: watch::Receiver<Option<Arc<Catalog>>>,
    /// What was said last of each commit.
    said: BTreeMap<String, Saying>,
}

#[derive(Debug, thiserror::Error)]
enum SayError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Forge(#[from] ForgeError),
}

impl Statuses {
    /// Nothing for a source that names no forge.
    pub fn of(
        source: &SourceHandle,
        state: watch::Receiver<Arc<State>>,
        catalog: watch::Receiver<Option<Arc<Catalog>>>,
    ) -> Option<Self> {
        let forge = source.config().forge.clone()?;
        let context = format!("denv/{}", source.name());
        Some(Statuses { context, forge, source: source.changes(), state, catalog, said: BTreeMap::new() })
    }

    /// Says what is new until the source is gone.
    pub async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        loop {
            let pause = match self.say().await {
                Ok(()) => {
                    retry = FIRST_RETRY;
                    None
                }
                Err(error) => {
                    let asked = match &error {
                        SayError::Forge(error) => error.wait(),
                        SayError::Secret(_) => None,
                    };
                    tracing::warn!(
                        context = self.context,
                        "cannot set a commit's status: {}",
                        crate::chain(&error)
                    );
                    let pause = asked.unwrap_or(retry).min(LONGEST_RETRY);
                    retry = (retry * 2).min(LONGEST_RETRY);
                    Some(pause)
                }
            };
            match pause {
                // Whatever changes meanwhile is said with it.
                Some(pause) => tokio::time::sleep(pause).await,
                None => {
                    let gone = tokio::select! {
                        changed = self.source.changed() => changed.is_err(),
                        changed = self.state.changed() => changed.is_err(),
                    };
                    if gone {
                        return;
                    }
                    tokio::time::sleep(GATHER).await;
                }
            }
        }
    }

    async fn say(&mut self) -> Result<(), SayError> {
        let wanted = self.wanted();
        self.said.retain(|commit, _| wanted.iter().any(|saying| saying.commit == *commit));
        let new: Vec<Saying> =
            wanted.into_iter().filter(|saying| self.said.get(&saying.commit) != Some(saying)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let client = Client::new(self.forge.address.clone(), self.forge.token.read()?.expose().to_owned())?;
        for saying in new {
            let status = Status {
                state: saying.state,
                context: self.context.clone(),
                description: saying.description.clone(),
            };
            match client.set_status(&saying.commit, &status).await {
                Ok(()) => {}
                Err(error) if error.may_pass() => return Err(error.into()),
                // The same would be refused again; the next saying may not be.
                Err(error) => {
                    tracing::warn!(
                        context = self.context,
                        "cannot set a commit's status: {}",
                        crate::chain(&error)
                    );
                }
            }
            self.said.insert(saying.commit.clone(), saying);
        }
        Ok(())
    }

    fn wanted(&mut self) -> Vec<Saying> {
        let source = self.source.borrow_and_update().clone();
        let state = Arc::clone(&self.state.borrow_and_update());
        let in_force = self.catalog.borrow().clone();
        let planned = state
            .catalog
            .as_ref()
            .filter(|planned| in_force.as_ref().is_some_and(|in_force| Arc::ptr_eq(planned, in_force)));
        sayings(&source, planned.map(|catalog| (&**catalog, &state.records)))
    }
}
