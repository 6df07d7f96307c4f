//! A bare mirror of the remote's branch. Manifests are read from the tree of a commit; nothing is checked out.

use std::path::{Path, PathBuf};

use denv_schema::api::RevisionView;
use denv_schema::diagnostic::{Code, Diagnostic, Diagnostics};
use denv_schema::tree::{Files, is_manifest};
use git2::{Direction, FetchOptions, ObjectType, Oid, Repository, Tree, TreeWalkMode, TreeWalkResult};
use jiff::Timestamp;

use super::{SourceConfig, packs, shown};

pub(super) struct Mirror(Repository);

#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    #[error("cannot open the mirror `{path}`; remove it, and it is made again")]
    Open { path: PathBuf, source: GitError },
    #[error("cannot fetch branch `{branch}` from `{url}`")]
    Fetch { branch: String, url: String, source: GitError },
    #[error("`{url}` has no branch `{branch}`")]
    NoBranch { branch: String, url: String },
    #[error("cannot read commit `{commit}` from the mirror")]
    Read { commit: String, source: GitError },
    #[error("the look at Git was interrupted")]
    Interrupted,
}

/// What went wrong in Git, in words; libgit2's numbers say nothing to those who read it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct GitError(String);

impl From<git2::Error> for GitError {
    fn from(error: git2::Error) -> Self {
        GitError(error.message().to_owned())
    }
}

/// Manifests are written by people: a larger file is something else, and would only fill memory.
const LARGEST_FILE: usize = 4 << 20;

impl Mirror {
    pub(super) fn open(config: &SourceConfig) -> Result<Self, MirrorError> {
        let path = &config.mirror;
        let opened = if path.join("HEAD").exists() {
            Repository::open_bare(path)
        } else {
            Repository::init_bare(path).and_then(|made| {
                made.config()?.set_bool("core.fsyncObjectFiles", true)?;
                Ok(made)
            })
        };
        opened.map(Mirror).map_err(|source| MirrorError::Open { path: path.clone(), source: source.into() })
    }

    /// The commit at the head of the remote's branch, fetched where it isn't here yet.
    pub(super) fn fetch(&self, config: &SourceConfig) -> Result<String, MirrorError> {
        let SourceConfig { url, branch, .. } = config;
        let failed = |source: git2::Error| MirrorError::Fetch {
            branch: branch.clone(),
            url: shown(url),
            source: source.into(),
        };
        let address = denv_git_transport::for_libgit2(url).map_err(failed)?;
        let mut remote = self.0.remote_anonymous(&address).map_err(failed)?;
        remote.connect(Direction::Fetch).map_err(failed)?;
        let wanted = format!("refs/heads/{branch}");
        let listed = remote.list().map_err(failed)?;
        let head = listed.iter().find(|head| head.name() == wanted).map(git2::RemoteHead::oid);
        let head = head.ok_or_else(|| MirrorError::NoBranch { branch: branch.clone(), url: shown(url) })?;
        let here = format!("refs/denv/heads/{branch}");
        let known = self.0.refname_to_id(&here).ok();
        let known_is_here = known.is_some_and(|known| self.0.find_commit(known).is_ok());
        if known.is_some() && !known_is_here {
            // Lost with the power, it may be; offered to the remote, it would fail every fetch.
            self.0.find_reference(&here).and_then(|mut lost| lost.delete()).map_err(failed)?;
        }
        if known != Some(head) || !known_is_here {
            let mut options = FetchOptions::new();
            options.download_tags(git2::AutotagOption::None).update_fetchhead(false);
            // On the same connection.
            remote.fetch(&[&format!("+{wanted}:{here}")], Some(&mut options), None).map_err(failed)?;
        }
        Ok(head.to_string())
    }

    /// Keeps the mirror small, in a look that found nothing new; the last thing to do with it.
    pub(super) fn tidy(self) {
        if let Err(error) = packs::merge(&self.0) {
            tracing::warn!("{}", crate::chain(&error));
        }
    }

    pub(super) fn revision(&self, commit: &str) -> Result<RevisionView, MirrorError> {
        let read =
            |source: git2::Error| MirrorError::Read { commit: commit.to_owned(), source: source.into() };
        let found = Oid::from_str(commit).and_then(|oid| self.0.find_commit(oid)).map_err(read)?;
        Ok(RevisionView {
            commit: commit.to_owned(),
            author: found.author().name().unwrap_or("unknown").to_owned(),
            summary: found.summary().ok().flatten().unwrap_or_default().to_owned(),
            at: Timestamp::now(),
        })
    }

    /// Whether `ancestor` is `commit` or came before it.
    pub(super) fn descends(&self, commit: &str, ancestor: &str) -> Result<bool, MirrorError> {
        let read =
            |source: git2::Error| MirrorError::Read { commit: commit.to_owned(), source: source.into() };
        let (new, old) = (Oid::from_str(commit).map_err(read)?, Oid::from_str(ancestor).map_err(read)?);
        Ok(new == old || self.0.graph_descendant_of(new, old).map_err(read)?)
    }

    /// The manifests in a commit's tree, below `folder`, as a checkout would hold them: links inside the tree are
    /// followed. What can't be read as a manifest is told, not passed over.
    pub(super) fn files(&self, commit: &str, folder: &str) -> Result<(Files, Diagnostics), MirrorError> {
        let read =
            |source: git2::Error| MirrorError::Read { commit: commit.to_owned(), source: source.into() };
        let oid = Oid::from_str(commit).map_err(read)?;
        let tree = self.0.find_commit(oid).and_then(|commit| commit.tree()).map_err(read)?;
        let folder = if folder.is_empty() { String::new() } else { format!("{}/", folder.trim_matches('/')) };
        let (mut files, mut found, mut failed) = (Files::new(), Diagnostics::default(), None);
        let walked = tree.walk(TreeWalkMode::PreOrder, |parent, entry| {
            let path = format!("{parent}{}", entry.name().unwrap_or_default());
            let is_file = entry.kind() == Some(ObjectType::Blob);
            let Some(inside) = path.strip_prefix(&folder).filter(|inside| is_file && is_manifest(inside))
            else {
                return TreeWalkResult::Ok;
            };
            match self.content(&tree, &path, entry.id(), entry.filemode()) {
                Ok(Ok(content)) => drop(files.insert(inside.to_owned(), content)),
                Ok(Err(unreadable)) => found.push(unreadable.diagnostic(inside)),
                Err(error) => {
                    failed = Some(error);
                    return TreeWalkResult::Abort;
                }
            }
            TreeWalkResult::Ok
        });
        failed.map_or(walked, Err).map_err(read)?;
        Ok((files, found))
    }

    /// What a file holds, or what the file holds that it leads to.
    fn content(
        &self,
        tree: &Tree<'_>,
        path: &str,
        id: Oid,
        mode: i32,
    ) -> Result<Result<Vec<u8>, Unreadable>, git2::Error> {
        let mut blob = self.0.find_blob(id)?;
        if mode == LINK {
            let target = std::str::from_utf8(blob.content()).ok().and_then(|target| resolve(path, target));
            let entry = target.and_then(|target| tree.get_path(Path::new(&target)).ok());
            let entry = entry.filter(|it| it.kind() == Some(ObjectType::Blob) && it.filemode() != LINK);
            let Some(entry) = entry else { return Ok(Err(Unreadable::Link)) };
            blob = self.0.find_blob(entry.id())?;
        }
        Ok(if blob.size() <= LARGEST_FILE { Ok(blob.content().to_vec()) } else { Err(Unreadable::TooLarge) })
    }
}

/// The mode of links in Git's trees.
const LINK: i32 = 0o120_000;

enum Unreadable {
    Link,
    TooLarge,
}

impl Unreadable {
    fn diagnostic(&self, file: &str) -> Diagnostic {
        let (message, hint) = match self {
            Unreadable::Link => {
                ("the file is a link that leads to no file in the repository", "copy the file instead")
            }
            Unreadable::TooLarge => ("the file is larger than 4 MiB", "split it"),
        };
        Diagnostic {
            file: file.to_owned(),
            line: 0,
            column: 0,
            code: Code::Unreadable,
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        }
    }
}

/// Where a link at `path` leads, from the tree's root; none if that is outside.
fn resolve(path: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
