//! What people have the control plane change: read, edited, judged, allowed, committed and pushed, in this order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use denv_schema::change::{ChangeRequest, ChangeView};
use denv_schema::diagnostic::counted;
use denv_schema::diff::{Configuration, Diff, diff};
use denv_schema::edit::{self, Edit, EditError};
use denv_schema::tree::Files;
use denv_schema::{Catalog, Diagnostics, Digest, Name, Reading};
use tokio::sync::oneshot;

use super::branch::{Author, PushError};
use super::config::SourceConfig;
use super::mirror::{Mirror, MirrorError};
use super::{Source, blocking};
use crate::store::StoreError;

/// Says whether the asker may make this change; if not, why.
pub type Permission = Box<dyn Fn(&Diff, &Catalog, &Catalog) -> Result<(), String> + Send>;

/// A change that somebody asks for.
pub struct Publication {
    pub request: ChangeRequest,
    pub author: Author,
    pub permission: Permission,
    pub(super) answer: oneshot::Sender<Result<ChangeView, PublicationError>>,
}

#[derive(Debug, thiserror::Error)]
pub enum PublicationError {
    #[error("{} in the manifests", counted(.0.len(), "fault"))]
    Invalid(Diagnostics),
    #[error(transparent)]
    Edit(EditError),
    #[error("branch `{branch}` stands at {head} and not at {wanted}")]
    OtherBase { branch: String, head: String, wanted: String },
    #[error("{0}")]
    Denied(String),
    #[error("branch `{0}` exists already; choose another name, or delete it")]
    BranchExists(String),
    #[error("what is to be changed stands in another source, in `{0}`; change it there")]
    Elsewhere(String),
    #[error("`{0}` was changed by somebody else meanwhile; look at it and apply again")]
    Conflict(String),
    #[error(
        "this source demands signed commits, and the control plane has no key to sign with; set one, or commit yourself"
    )]
    Unsigned,
    #[error(transparent)]
    Push(#[from] PushError),
    #[error("source `{0}` of the same tenant is not read yet; try again in a moment")]
    Unread(String),
    #[error("cannot read the source")]
    Mirror(#[source] anyhow::Error),
    #[error("the control plane cannot read its store")]
    Store(#[source] StoreError),
}

/// How often a change is made anew on a branch that moves.
const MOST_TRIES: usize = 5;

impl Source {
    pub(super) async fn publish(&mut self, publication: Publication) {
        let Publication { request, author, permission, answer } = publication;
        let config = self.config.clone();
        let outcome = match self.store.deployed_releases().await {
            Err(error) => Err(PublicationError::Store(error)),
            Ok(deployed) => {
                let others = self.shelf.lock().await.others(&self.config.name);
                let remote = Arc::clone(&config.remote);
                match others {
                    Err(other) => Err(mirror(MirrorError::Unread { other })),
                    Ok(others) => {
                        let work = Work { config, request, author, permission, deployed, others };
                        let work = move || Ok(denv_git_transport::with(&remote, || work.run()));
                        blocking(work).await.unwrap_or_else(|error| Err(mirror(error)))
                    }
                }
            }
        };
        // Who asked sees what it means: it is in force when the answer comes.
        if outcome.as_ref().is_ok_and(|view| view.commit.is_some() && view.branch == self.config.branch) {
            self.look().await;
        }
        let _ = answer.send(outcome);
    }
}

fn mirror(error: MirrorError) -> PublicationError {
    PublicationError::Mirror(error.into())
}

struct Work {
    config: SourceConfig,
    request: ChangeRequest,
    author: Author,
    permission: Permission,
    deployed: BTreeMap<Name, Digest>,
    /// What the tenant's other sources have in force: referred to, and not to be changed here.
    others: Files,
}

/// The change on top of one commit.
struct Draft {
    base: String,
    files: Files,
    edit: Edit,
    diff: Diff,
}

impl Work {
    fn run(&self) -> Result<ChangeView, PublicationError> {
        let config = &self.config;
        let signs = config.signing_key.is_some() || config.allowed_signers.is_none();
        if !signs && !self.request.dry_run {
            return Err(PublicationError::Unsigned);
        }
        let branch = self.request.branch.as_ref().unwrap_or(&config.branch);
        let apart = *branch != config.branch;
        let mut first: Option<Draft> = None;
        for _ in 0..MOST_TRIES {
            let opened = Mirror::open(config).map_err(mirror)?;
            let draft = self.draft(&opened)?;
            if let Some(first) = &first {
                self.still_applies(first, &draft)?;
            }
            let message = self.request.message.clone().unwrap_or_else(|| summary(&draft.diff));
            if self.request.dry_run || draft.diff.is_empty() {
                return Ok(self.view(draft, branch, None, message));
            }
            if apart && opened.remote_branch(config, branch).map_err(mirror)?.is_some() {
                return Err(PublicationError::BranchExists(branch.clone()));
            }
            let commit = opened.commit(config, &draft.base, &draft.edit.files, &self.author, &message)?;
            let expected = (!apart).then_some(draft.base.as_str());
            match opened.push(config, &commit, branch, expected) {
                Ok(()) => return Ok(self.view(draft, branch, Some(commit), message)),
                Err(PushError::Moved { .. }) => drop(first.get_or_insert(draft)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(PushError::Moved { branch: branch.clone() }.into())
    }

    /// The change on top of where the branch stands now.
    fn draft(&self, opened: &Mirror) -> Result<Draft, PublicationError> {
        let config = &self.config;
        let base = opened.fetch(config).map_err(mirror)?;
        if let Some(wanted) = self.request.if_base.as_ref().filter(|wanted| !stands_at(&base, wanted)) {
            let (branch, wanted) = (config.branch.clone(), wanted.clone());
            return Err(PublicationError::OtherBase { branch, head: base, wanted });
        }
        let (mut files, unreadable) = opened.files(&base, &config.folder).map_err(mirror)?;
        if !unreadable.is_empty() {
            return Err(PublicationError::Invalid(unreadable));
        }
        files.extend(self.others.clone());
        let reading = Reading::of(&files);
        let edit = self.edited(&files, &reading)?;
        if let Some(path) = edit.files.keys().find(|path| self.others.contains_key(*path)) {
            return Err(PublicationError::Elsewhere(path.clone()));
        }
        let reading = reading.again(&self.with_others(files.clone()));
        let after = reading.again(&self.with_others(edit.applied_to(&files)));
        let catalog = after.catalog(&self.deployed).map_err(PublicationError::Invalid)?;
        // A head that is not valid, and was refused, may well be put right this way.
        let before = reading.catalog(&BTreeMap::new()).unwrap_or_default();
        let before = Configuration { reading, catalog: before };
        let after = Configuration { reading: after, catalog };
        let diff = diff(&before, &after);
        (self.permission)(&diff, &before.catalog, &after.catalog).map_err(PublicationError::Denied)?;
        Ok(Draft { base, files, edit, diff })
    }

    fn with_others(&self, mut files: Files) -> Files {
        files.extend(self.others.iter().map(|(path, text)| (path.clone(), text.clone())));
        files
    }

    /// All that is asked for, one after the other, as one edit.
    fn edited(&self, files: &Files, reading: &Reading) -> Result<Edit, PublicationError> {
        let wanted = self.request.manifests.iter();
        let wanted: Files = wanted.map(|(path, text)| (path.clone(), text.clone().into_bytes())).collect();
        let failed = |error: EditError| match error {
            EditError::Invalid(found) => PublicationError::Invalid(found),
            other => PublicationError::Edit(other),
        };
        let mut whole = edit::apply(files, reading, &wanted).map_err(failed)?;
        for setting in &self.request.set {
            let files = whole.applied_to(files);
            let reading = reading.again(&files);
            let more = edit::patch(&files, &reading, &setting.manifest, &setting.field, &setting.value);
            whole.then(more.map_err(failed)?);
        }
        if !self.request.delete.is_empty() {
            let files = whole.applied_to(files);
            let more = edit::delete(&files, &reading.again(&files), &self.request.delete);
            whole.then(more.map_err(failed)?);
        }
        Ok(whole)
    }

    /// A branch that moved has left alone what this change touches.
    fn still_applies(&self, first: &Draft, now: &Draft) -> Result<(), PublicationError> {
        let touched: BTreeSet<&String> = first.edit.files.keys().chain(now.edit.files.keys()).collect();
        match touched.into_iter().find(|path| first.files.get(*path) != now.files.get(*path)) {
            // Another manifest of the same file may have changed: what would be changed here is the same then.
            Some(path) if first.diff != now.diff => Err(PublicationError::Conflict(path.clone())),
            _ => Ok(()),
        }
    }

    fn view(&self, draft: Draft, branch: &str, commit: Option<String>, message: String) -> ChangeView {
        let moving = draft.diff.effects().into_iter().filter(|effect| effect.moves_units());
        let stages: BTreeSet<_> = moving.filter_map(|effect| effect.stage()).cloned().collect();
        ChangeView {
            source: self.config.name.clone(),
            branch: branch.to_owned(),
            base: draft.base,
            commit,
            message,
            diff: draft.diff,
            files: draft.edit.files.into_keys().collect(),
            rewritten: draft.edit.rewritten,
            stages: stages.into_iter().collect(),
        }
    }
}

/// A commit may be named by its beginning, as Git shows it.
fn stands_at(head: &str, wanted: &str) -> bool {
    wanted.len() >= 7 && head.starts_with(&wanted.to_lowercase())
}

/// `Change Stage chat/prod`, `Add Key a and 2 more`.
fn summary(diff: &Diff) -> String {
    use denv_schema::diff::Change;
    let Some(first) = diff.changes.first() else { return "Change nothing".to_owned() };
    let verb = match first.change {
        Change::Added => "Add",
        Change::Removed => "Remove",
        Change::Changed => "Change",
    };
    let more = diff.changes.len() - 1;
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{verb} {} {}{more}", first.kind, first.name)
}
