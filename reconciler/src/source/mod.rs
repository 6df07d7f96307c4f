//! Git as the source of what should run: a branch is watched, each new revision is judged as a whole, and the last
//! accepted one stays in force whatever happens to the remote.
//!
//! It writes to the remote only what a person asks it to publish, and refuses to know what a catalog is used for.

mod approval;
mod branch;
mod conditions;
mod config;
mod deletions;
mod handle;
mod judge;
mod mirror;
mod packs;
mod publication;
mod secret;
mod signers;

use std::sync::Arc;
use std::time::Duration;

use denv_schema::api::{AwaitingView, Level, RefusedView, SourceState, SourceView};
use denv_schema::{Catalog, Digest};
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::store::{Event, Revision, Store, StoreError, Verdict};
use conditions::Standing;
use config::shown;
use judge::{Ground, Judged, judge, short};
use mirror::{Mirror, MirrorError};

pub use approval::{Approval, ApprovalError};
pub use branch::{Author, PushError};
pub use config::SourceConfig;
pub use deletions::{DeletionShare, InvalidShare};
pub use handle::{Gone, Request, SourceHandle};
pub use publication::{Permission, Publication, PublicationError};
pub use secret::{InvalidReference, Secret, SecretError, SecretReference};

/// Looks that hooks ask for begin no closer together than this, so a storm of pushes is no storm of fetches.
const HOOKED_APART: Duration = Duration::from_secs(2);

pub struct Source {
    config: SourceConfig,
    store: Store,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    view: watch::Sender<SourceView>,
    requests: mpsc::Receiver<Request>,
    hooked: Arc<Notify>,
    accepted: Option<Revision>,
    held_back: Option<HeldBack>,
    /// The signers by which the revision that is held back was judged, in this process.
    judged_by: Option<Option<Digest>>,
}

/// The newest revision, where it is not in force.
struct HeldBack {
    /// Refused, or awaiting approval.
    verdict: Verdict,
    revision: Revision,
}

impl Source {
    pub async fn new(
        config: SourceConfig,
        store: Store,
        catalog: watch::Sender<Option<Arc<Catalog>>>,
    ) -> Result<(Self, SourceHandle), StoreError> {
        let accepted = store.revision(&config.name, Verdict::Accepted).await?;
        let mut held_back = None;
        for verdict in [Verdict::Refused, Verdict::Awaiting] {
            let kept = store.revision(&config.name, verdict).await?;
            held_back = held_back.or(kept.map(|revision| HeldBack { verdict, revision }));
        }
        let (view, views) = watch::channel(SourceView {
            name: config.name.clone(),
            url: shown(&config.url),
            branch: config.branch.clone(),
            state: SourceState::Starting,
            accepted: None,
            refused: None,
            awaiting: None,
            conditions: Vec::new(),
            problem: None,
            fetched_at: None,
        });
        let (sender, requests) = mpsc::channel(16);
        let hooked = Arc::new(Notify::new());
        let handle = SourceHandle::new(config.clone(), sender, Arc::clone(&hooked), views);
        let source =
            Source { config, store, catalog, view, requests, hooked, accepted, held_back, judged_by: None };
        Ok((source, handle))
    }

    /// Watches until nobody can ask any more.
    pub async fn run(mut self) {
        if let Err(problem) = self.resume().await {
            tracing::warn!(source = self.config.name, "{problem}");
        }
        let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
        loop {
            let began = Instant::now();
            self.look().await;
            for asker in waiting.drain(..) {
                // The asker may have gone; the look was taken all the same.
                let _ = asker.send(());
            }
            let mut due = began + self.config.poll;
            while waiting.is_empty() {
                tokio::select! {
                    request = self.requests.recv() => match request {
                        Some(request) => self.asked(request, &mut waiting).await,
                        None => return,
                    },
                    () = self.hooked.notified() => due = due.min(began + HOOKED_APART),
                    () = tokio::time::sleep_until(due) => break,
                }
            }
            // One look answers all who asked before it began; those who ask meanwhile get the next.
            while let Ok(request) = self.requests.try_recv() {
                self.asked(request, &mut waiting).await;
            }
        }
    }

    async fn asked(&mut self, request: Request, waiting: &mut Vec<oneshot::Sender<()>>) {
        match request {
            Request::Look(asker) => waiting.push(asker),
            Request::Approve(approval) => self.approve(approval).await,
            Request::Publish(publication) => self.publish(*publication).await,
        }
    }

    /// Puts the revision that was in force back in force, from the mirror alone.
    async fn resume(&mut self) -> Result<(), String> {
        let Some(accepted) = &self.accepted else { return Ok(()) };
        let (config, commit) = (self.config.clone(), accepted.view.commit.clone());
        let files = blocking(move || Mirror::open(&config)?.files(&commit, &config.folder)).await;
        let (files, _) = files.map_err(|error| crate::chain(&error))?;
        // It was judged when it was accepted; only what it means is needed again.
        let catalog = Catalog::from_files(&files).map_err(|found| found.to_string())?;
        self.catalog.send_replace(Some(Arc::new(catalog)));
        Ok(())
    }

    /// Fetches, and judges the revision if it is a new one.
    async fn look(&mut self) {
        let (config, known) = (self.config.clone(), self.known());
        let deployed = match self.store.deployed_releases().await {
            Ok(deployed) => deployed,
            Err(error) => return self.show(Some(crate::chain(&error))),
        };
        let accepted = self.accepted.as_ref().map(|revision| revision.view.commit.clone());
        let in_force = self.catalog.borrow().clone();
        let looked = blocking(move || {
            let mirror = Mirror::open(&config)?;
            let head = mirror.fetch(&config)?;
            let signers = config.signers()?;
            let by = signers.as_ref().map(|signers| signers.digest);
            if known.is_some_and(|known| known.is(&head, by.as_ref())) {
                mirror.tidy();
                return Ok(None);
            }
            let ground = Ground {
                accepted: accepted.as_deref(),
                in_force,
                deployed: &deployed,
                signers: signers.as_ref().map(|signers| &signers.allowed),
                share: config.deletion_share,
                approved: false,
            };
            Ok(Some((judge(&mirror, &config, &head, &ground)?, by)))
        });
        match looked.await {
            Ok(None) => {
                self.touch();
                self.show(None);
            }
            Ok(Some((judged, by))) => {
                self.touch();
                let kept = self.keep(judged).await;
                if kept.is_ok() {
                    self.judged_by = Some(by);
                }
                self.show(kept.err().map(|error| crate::chain(&error)));
            }
            Err(error) => self.show(Some(crate::chain(&error))),
        }
    }

    /// The revision that has been judged already.
    fn known(&self) -> Option<Known> {
        // After a refusal, the accepted revision is news again: it may have been put back by hand.
        match (&self.held_back, &self.accepted) {
            (Some(held), _) => {
                Some(Known { commit: held.revision.view.commit.clone(), by: Some(self.judged_by?) })
            }
            (None, Some(accepted)) if self.catalog.borrow().is_some() => {
                Some(Known { commit: accepted.view.commit.clone(), by: None })
            }
            (None, _) => None,
        }
    }

    async fn keep(&mut self, judged: Judged) -> Result<(), StoreError> {
        match judged {
            Judged::Accepted { revision, catalog } => {
                let message = format!("accepted {}", line(&revision));
                self.accept(revision, catalog, message).await
            }
            Judged::HeldBack(held) => self.hold_back(held).await,
        }
    }

    async fn accept(
        &mut self,
        revision: Revision,
        catalog: Arc<Catalog>,
        message: String,
    ) -> Result<(), StoreError> {
        let event = self.event(Level::Normal, message);
        self.store.judge(&self.config.name, Verdict::Accepted, &revision, &event).await?;
        self.accepted = Some(revision);
        self.held_back = None;
        self.catalog.send_replace(Some(catalog));
        Ok(())
    }

    async fn hold_back(&mut self, mut held: HeldBack) -> Result<(), StoreError> {
        if let Some(before) = &self.held_back
            && before.verdict == held.verdict
        {
            // Judged again, as after a restart; only another outcome is news.
            let judged = std::mem::replace(&mut held.revision.view.at, before.revision.view.at);
            if held.revision == before.revision {
                return Ok(());
            }
            held.revision.view.at = judged;
        }
        let (shown, reason) = (line(&held.revision), &held.revision.reason);
        let message = match held.verdict {
            Verdict::Awaiting => format!(
                "{shown} would delete {reason}; it waits for `denv source approve {} {}`",
                self.config.name,
                short(&held.revision.view.commit)
            ),
            Verdict::Accepted | Verdict::Refused => format!("refused {shown}: {reason}"),
        };
        let event = self.event(Level::Warning, message);
        self.store.judge(&self.config.name, held.verdict, &held.revision, &event).await?;
        self.held_back = Some(held);
        Ok(())
    }

    fn event(&self, level: Level, message: String) -> Event {
        tracing::info!(source = self.config.name, "{message}");
        Event { at: Timestamp::now(), subject: format!("source {}", self.config.name), level, message }
    }

    fn touch(&self) {
        self.view.send_modify(|view| view.fetched_at = Some(Timestamp::now()));
    }

    /// Shows where things stand to those who look.
    fn show(&self, problem: Option<String>) {
        if let Some(problem) = &problem
            && self.view.borrow().problem.as_ref() != Some(problem)
        {
            tracing::warn!(source = self.config.name, "{problem}");
        }
        let standing = Standing {
            accepted: self.accepted.as_ref(),
            held_back: self.held_back.as_ref(),
            problem: problem.as_deref(),
        };
        let held = |verdict: Verdict| self.held_back.as_ref().filter(|held| held.verdict == verdict);
        self.view.send_modify(|view| {
            view.state = standing.state();
            view.conditions = standing.conditions(&view.conditions, Timestamp::now());
            view.accepted = self.accepted.as_ref().map(|revision| revision.view.clone());
            view.refused = held(Verdict::Refused).map(|held| RefusedView {
                revision: held.revision.view.clone(),
                reason: held.revision.reason.clone(),
                diagnostics: held.revision.diagnostics.clone(),
            });
            view.awaiting = held(Verdict::Awaiting).map(|held| AwaitingView {
                revision: held.revision.view.clone(),
                reason: held.revision.reason.clone(),
                deletions: held.revision.deletions.clone(),
            });
            view.problem.clone_from(&problem);
        });
    }
}

/// A revision that needs no judging.
struct Known {
    commit: String,
    /// By which signers; whoever has accepted a revision does not take that back.
    by: Option<Option<Digest>>,
}

impl Known {
    fn is(&self, head: &str, by: Option<&Digest>) -> bool {
        self.commit == head && self.by.as_ref().is_none_or(|known| known.as_ref() == by)
    }
}

fn line(revision: &Revision) -> String {
    format!("{} `{}` by {}", short(&revision.view.commit), revision.view.summary, revision.view.author)
}

/// Runs Git, which blocks, beside the asynchronous tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MirrorError> + Send + 'static,
) -> Result<T, MirrorError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(MirrorError::Interrupted))
}

#[cfg(test)]
mod tests;
