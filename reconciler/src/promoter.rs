//! Commits what environments leave to denv: a release that one stage has proven, for the next.
//!
//! When is the planner's decision; this only waits for it and has it published.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use denv_planner::{Proven, World, promotions};
use denv_schema::api::{Level, short};
use denv_schema::change::{ChangeRequest, FieldSetting};
use denv_schema::diff::ManifestKey;
use denv_schema::edit::EditError;
use denv_schema::manifest::Kind;
use denv_schema::{Name, StageId};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::orchestrator::State;
use crate::source::{Author, PublicationError, SourceHandle};
use crate::store::{Event, Store, StoreError};

/// A promotion that could not be published is tried again after this.
const RETRY: Duration = Duration::from_secs(60);
/// So many deployments of a stage are looked through for what was tried there.
const MOST_DEPLOYMENTS: u32 = 1_000;

/// Watches one tenant.
pub struct Promoter {
    pub store: Store,
    pub state: watch::Receiver<Arc<State>>,
    pub sources: Vec<SourceHandle>,
}

impl Promoter {
    /// Until nothing changes any more.
    pub async fn run(mut self) {
        loop {
            let wake = match self.pass().await {
                Ok(wake) => wake,
                Err(problem) => {
                    tracing::warn!("nothing is promoted at the moment: {problem}");
                    Some(RETRY)
                }
            };
            let sleep = async {
                match wake {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.state.changed() => if changed.is_err() { return },
                () = sleep => {}
            }
        }
    }

    /// Publishes what is due, and says how long until something else is.
    async fn pass(&mut self) -> Result<Option<Duration>, String> {
        let state = self.state.borrow_and_update().clone();
        let Some(catalog) = &state.catalog else { return Ok(None) };
        let now = Timestamp::now();
        let world = World { catalog, records: &state.records, observed: &state.observed, now };
        let hopeful = promotions(&world, &BTreeSet::new());
        if hopeful.is_empty() {
            return Ok(None);
        }
        let tried = self.tried(&hopeful).await.map_err(|error| crate::chain(&error))?;
        let proven = promotions(&world, &tried);
        for promotion in proven.iter().filter(|promotion| promotion.due <= now) {
            self.publish(promotion).await?;
        }
        let next = proven.iter().map(|promotion| promotion.due).filter(|due| *due > now).min();
        Ok(next.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or_default()))
    }

    /// What the stages that may be promoted to have ever deployed.
    async fn tried(&self, hopeful: &[Proven]) -> Result<BTreeSet<(StageId, Name)>, StoreError> {
        let mut tried = BTreeSet::new();
        for promotion in hopeful {
            for (stage, deployment) in self.store.deployments(Some(&promotion.to), MOST_DEPLOYMENTS).await? {
                tried.insert((stage, deployment.to));
            }
        }
        Ok(tried)
    }

    async fn publish(&self, promotion: &Proven) -> Result<(), String> {
        let Proven { from, to, release, .. } = promotion;
        let request = ChangeRequest {
            set: vec![FieldSetting {
                manifest: ManifestKey { kind: Kind::Stage, name: to.to_string() },
                field: "/spec/release".to_owned(),
                value: release.as_str().into(),
            }],
            message: Some(format!("Promote {release} from {from} to {to}")),
            ..ChangeRequest::default()
        };
        let author = Author { name: "denv".to_owned(), email: "denv@localhost".to_owned() };
        for source in &self.sources {
            let permission = Box::new(|_: &_, _: &_, _: &_| Ok(()));
            let published = source.publish(request.clone(), author.clone(), permission).await;
            match published.map_err(|gone| gone.to_string())? {
                // The stage stands in another source.
                Err(PublicationError::Edit(EditError::NotFound { .. })) => {}
                Err(error) => return Err(format!("`{release}` to {to}: {}", crate::chain(&error))),
                Ok(view) => {
                    // The branch says so already, and what it says is not planned yet.
                    let Some(commit) = view.commit else { return Ok(()) };
                    let commit = short(&commit);
                    let message = format!("promoted `{release}` from {from}, as commit {commit}");
                    tracing::info!(subject = %format!("stage {to}"), "{message}");
                    let subject = format!("stage {to}");
                    let event = Event { at: Timestamp::now(), subject, level: Level::Normal, message };
                    return self.store.note(&event).await.map_err(|error| crate::chain(&error));
                }
            }
        }
        Err(format!("`{release}` to {to}: no source has the manifest of that stage"))
    }
}
