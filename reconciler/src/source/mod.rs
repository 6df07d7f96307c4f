//! Git as the source of what should run: a branch is watched, each new revision is judged as a whole, and the last
//! accepted one stays in force whatever happens to the remote.
//!
//! It never writes to the remote, and refuses to know what a catalog is used for.

mod judge;
mod mirror;
mod packs;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::Catalog;
use denv_schema::api::{Level, RefusedView, SourceState, SourceView};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::store::{Event, Revision, Store, StoreError, Verdict};
use judge::{Judged, judge};
use mirror::{Mirror, MirrorError};

/// Where manifests come from.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub name: String,
    /// A path, `https://…`, `ssh://…` or `git@host:path`.
    pub url: String,
    pub branch: String,
    /// The folder of the repository that holds the manifests; empty for all of it.
    pub folder: String,
    /// Where the mirror is kept.
    pub mirror: PathBuf,
    pub poll: Duration,
}

/// A look asked for now; answered when it is done.
pub type Refresh = oneshot::Sender<()>;

pub struct Source {
    config: SourceConfig,
    store: Store,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
    view: watch::Sender<SourceView>,
    accepted: Option<Revision>,
    refused: Option<Revision>,
}

impl Source {
    pub async fn new(
        config: SourceConfig,
        store: Store,
        catalog: watch::Sender<Option<Arc<Catalog>>>,
    ) -> Result<(Self, watch::Receiver<SourceView>), StoreError> {
        let accepted = store.revision(&config.name, Verdict::Accepted).await?;
        let refused = store.revision(&config.name, Verdict::Refused).await?;
        let (view, views) = watch::channel(SourceView {
            name: config.name.clone(),
            url: shown(&config.url),
            branch: config.branch.clone(),
            state: SourceState::Starting,
            accepted: None,
            refused: None,
            problem: None,
            fetched_at: None,
        });
        Ok((Source { config, store, catalog, view, accepted, refused }, views))
    }

    /// Watches until nobody can ask any more.
    pub async fn run(mut self, mut refreshes: mpsc::Receiver<Refresh>) {
        if let Err(problem) = self.resume().await {
            tracing::warn!(source = self.config.name, "{problem}");
        }
        let mut waiting: Vec<Refresh> = Vec::new();
        loop {
            self.look().await;
            for refresh in waiting.drain(..) {
                // The asker may have gone; the look was taken all the same.
                let _ = refresh.send(());
            }
            tokio::select! {
                refresh = refreshes.recv() => match refresh {
                    Some(refresh) => waiting.push(refresh),
                    None => return,
                },
                () = tokio::time::sleep(self.config.poll) => {}
            }
            // One look answers all who asked before it began; those who ask meanwhile get the next.
            while let Ok(refresh) = refreshes.try_recv() {
                waiting.push(refresh);
            }
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
        let looked = blocking(move || {
            let mirror = Mirror::open(&config)?;
            let head = mirror.fetch(&config)?;
            if known.contains(&head) {
                mirror.tidy();
                return Ok(None);
            }
            judge(&mirror, &config, &head, accepted.as_deref(), &deployed).map(Some)
        });
        match looked.await {
            Ok(None) => {
                self.touch();
                self.show(None);
            }
            Ok(Some(judged)) => {
                self.touch();
                let kept = self.keep(judged).await;
                self.show(kept.err().map(|error| crate::chain(&error)));
            }
            Err(error) => self.show(Some(crate::chain(&error))),
        }
    }

    /// The revisions that have been judged already.
    fn known(&self) -> Vec<String> {
        // After a refusal, the accepted revision is news again: it may have been put back by hand.
        let newest = self.refused.as_ref().or(self.accepted.as_ref());
        let in_force = self.catalog.borrow().is_some() || self.refused.is_some();
        newest.filter(|_| in_force).map(|revision| revision.view.commit.clone()).into_iter().collect()
    }

    async fn keep(&mut self, judged: Judged) -> Result<(), StoreError> {
        match judged {
            Judged::Accepted { revision, catalog } => {
                self.store.judge(&self.config.name, Verdict::Accepted, &revision).await?;
                self.note(Level::Normal, format!("accepted {}", line(&revision))).await?;
                self.accepted = Some(revision);
                self.refused = None;
                self.catalog.send_replace(Some(catalog));
            }
            Judged::Refused { revision } => {
                self.store.judge(&self.config.name, Verdict::Refused, &revision).await?;
                let message = format!("refused {}: {}", line(&revision), revision.reason);
                self.note(Level::Warning, message).await?;
                self.refused = Some(revision);
            }
        }
        Ok(())
    }

    async fn note(&self, level: Level, message: String) -> Result<(), StoreError> {
        tracing::info!(source = self.config.name, "{message}");
        let subject = format!("source {}", self.config.name);
        self.store.note(&Event { at: Timestamp::now(), subject, level, message }).await
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
        self.view.send_modify(|view| {
            view.state = match (&problem, &self.refused, &self.accepted) {
                (Some(_), ..) => SourceState::Unreachable,
                (None, Some(_), _) => SourceState::Refused,
                (None, None, Some(_)) => SourceState::Ready,
                (None, None, None) => SourceState::Starting,
            };
            view.problem = problem;
            view.accepted = self.accepted.as_ref().map(|revision| revision.view.clone());
            view.refused = self.refused.as_ref().map(|revision| RefusedView {
                revision: revision.view.clone(),
                reason: revision.reason.clone(),
                diagnostics: revision.diagnostics.clone(),
            });
        });
    }
}

fn line(revision: &Revision) -> String {
    let commit = revision.view.commit.get(..10).unwrap_or(&revision.view.commit);
    format!("{commit} `{}` by {}", revision.view.summary, revision.view.author)
}

/// A URL without what may be a password in it.
fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    // A password that holds a `/` looks like a path behind a port which is none.
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let whole = port.ends_with(']') || port.chars().all(|c| c.is_ascii_digit());
    let user = if whole || authority.contains('@') { authority.rfind('@') } else { rest.rfind('@') };
    match user {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

/// Runs Git, which blocks, beside the asynchronous tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MirrorError> + Send + 'static,
) -> Result<T, MirrorError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(MirrorError::Interrupted))
}

#[cfg(test)]
mod tests;
