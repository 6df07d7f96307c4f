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
mod local;
mod mirror;
mod packs;
mod publication;
mod rejection;
mod secret;
pub mod settings;
mod shelf;
mod signers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::api::{AwaitingView, Level, RefusedView, SourceState, SourceView, short};
use denv_schema::tree::Files;
use denv_schema::{Catalog, Digest};
use jiff::Timestamp;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::store::{Event, Revision, Store, StoreError, Verdict};
use conditions::Standing;
use config::{Signers, shown};
use judge::{Ground, Judged, judge};
use mirror::{Mirror, MirrorError};
use shelf::Content;

pub use approval::{Approval, ApprovalError};
pub use branch::{Author, PushError};
pub use config::{ForgeConfig, SourceConfig};
pub use deletions::{DeletionShare, InvalidShare};
pub use handle::{Gone, Request, SourceHandle};
pub use publication::{Permission, Publication, PublicationError};
pub use secret::{InvalidReference, Secret, SecretError, SecretReference};
pub use shelf::Shelf;

/// Looks that hooks ask for begin no closer together than this, so a storm of pushes is no storm of fetches.
const HOOKED_APART: Duration = Duration::from_secs(2);

pub struct Source {
    config: SourceConfig,
    store: Store,
    shelf: Shelf,
    view: watch::Sender<SourceView>,
    requests: mpsc::Receiver<Request>,
    hooked: Arc<Notify>,
    accepted: Option<Revision>,
    held_back: Option<HeldBack>,
    /// What the revision that is held back was judged by, in this process.
    judged_by: Option<JudgedBy>,
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
        shelf: &Shelf,
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
        let shelf = shelf.clone();
        shelf.lock().await.register(&config.name, accepted.is_some(), Arc::clone(&hooked));
        let source =
            Source { config, store, shelf, view, requests, hooked, accepted, held_back, judged_by: None };
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
        let mut content = self.shelf.lock().await;
        let (config, commit) = (self.config.clone(), accepted.view.commit.clone());
        let files = blocking(move || Mirror::open(&config)?.files(&commit, &config.folder)).await;
        let (files, _) = files.map_err(|error| crate::chain(&error))?;
        // While another source is not read yet, that one will put all in force.
        let together = content.together(&self.config.name, files.clone());
        let Ok((all, own)) = together else {
            content.put(&self.config.name, files);
            return Ok(());
        };
        content.put(&self.config.name, own);
        // It was judged when it was accepted; only what it means is needed again.
        let read = blocking(move || Ok((content.read(&all).catalog(&BTreeMap::new()), content))).await;
        // The shelf is held until it is published.
        let (catalog, _content) = read.map_err(|error| crate::chain(&error))?;
        let catalog = catalog.map_err(|found| found.to_string())?;
        self.shelf.publish(Arc::new(catalog));
        Ok(())
    }

    /// Fetches, and judges the revision if it is a new one.
    async fn look(&mut self) {
        let problem = self.looked().await.err();
        self.show(problem);
    }

    async fn looked(&mut self) -> Result<(), String> {
        let config = self.config.clone();
        let fetched = blocking(move || Ok((Mirror::open(&config)?.fetch(&config)?, config.signers()?)));
        let (head, signers) = fetched.await.map_err(|error| crate::chain(&error))?;
        self.touch();
        let content = self.shelf.lock().await;
        let by = JudgedBy { signers: signers.as_ref().map(|signers| signers.digest), shelf: content.version };
        let config = self.config.clone();
        if self.is_known(&head, by, &content) {
            drop(content);
            let tidied = blocking(move || {
                Mirror::open(&config)?.tidy();
                Ok(())
            });
            return tidied.await.map_err(|error| crate::chain(&error));
        }
        let (judged, mut content) = self.judged(head, signers, content, false).await?;
        let kept = match judged {
            Judged::Accepted { revision, catalog, files } => {
                let message = format!("accepted {}", line(&revision));
                self.accept(&mut content, revision, catalog, files, message).await
            }
            Judged::HeldBack(held) => self.hold_back(held).await,
        };
        kept.map_err(|error| crate::chain(&error))?;
        self.judged_by = Some(by);
        Ok(())
    }

    /// Judges a commit that is in the mirror. The shelf is held until what comes of it is kept.
    async fn judged(
        &self,
        commit: String,
        signers: Option<Signers>,
        content: OwnedMutexGuard<Content>,
        approved: bool,
    ) -> Result<(Judged, OwnedMutexGuard<Content>), String> {
        let deployed = self.store.deployed_releases().await.map_err(|error| crate::chain(&error))?;
        let accepted = self.accepted.as_ref().map(|revision| revision.view.commit.clone());
        let (config, in_force) = (self.config.clone(), self.shelf.catalog());
        let judged = blocking(move || {
            let ground = Ground {
                shelf: &content,
                accepted: accepted.as_deref(),
                in_force,
                deployed: &deployed,
                signers: signers.as_ref().map(|signers| &signers.allowed),
                share: config.deletion_share,
                approved,
            };
            Ok((judge(&Mirror::open(&config)?, &config, &commit, &ground)?, content))
        });
        judged.await.map_err(|error| crate::chain(&error))
    }

    /// Whether the revision needs no judging.
    fn is_known(&self, head: &str, by: JudgedBy, content: &Content) -> bool {
        // After a refusal, the accepted revision is news again: it may have been put back by hand.
        match (&self.held_back, &self.accepted) {
            (Some(held), _) => held.revision.view.commit == head && self.judged_by == Some(by),
            // Whoever has accepted a revision does not take that back.
            (None, Some(accepted)) => {
                accepted.view.commit == head
                    && self.shelf.catalog().is_some()
                    && !content.is_unread(&self.config.name)
            }
            (None, None) => false,
        }
    }

    async fn accept(
        &mut self,
        content: &mut Content,
        revision: Revision,
        catalog: Arc<Catalog>,
        files: Files,
        message: String,
    ) -> Result<(), StoreError> {
        let event = self.event(Level::Normal, message);
        self.store.judge(&self.config.name, Verdict::Accepted, &revision, &event).await?;
        self.accepted = Some(revision);
        self.held_back = None;
        content.put(&self.config.name, files);
        self.shelf.publish(catalog);
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

/// What a revision's judgement rests on besides itself; when it changes, what is held back is judged again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct JudgedBy {
    signers: Option<Digest>,
    /// What the tenant's sources had in force.
    shelf: u64,
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
