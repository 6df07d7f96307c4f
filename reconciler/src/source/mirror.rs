//! A bare mirror of the remote's branch. Manifests are read from the tree of a commit; nothing is checked out.

use std::path::PathBuf;

use denv_repository::{Blobs, GitError};
use denv_schema::Diagnostics;
use denv_schema::api::RevisionView;
use denv_schema::tree::Files;
use git2::{Direction, FetchOptions, Oid, Repository};
use jiff::Timestamp;

use super::signers::InvalidSigners;
use super::{SourceConfig, packs, shown};

pub(super) struct Mirror(Repository);

#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    #[error("cannot open the mirror `{path}`; remove it, and it is made again")]
    Open { path: PathBuf, source: GitError },
    #[error("cannot fetch branch `{branch}` from `{url}`")]
    Fetch { branch: String, url: String, source: GitError },
    #[error("`{url}` has no branch `{branch}`")]
    NoBranch { branch: String, url: String },
    #[error("cannot read commit `{commit}` from the mirror")]
    Read { commit: String, source: GitError },
    #[error("cannot read the allowed signers `{path}`, so no revision is judged")]
    Signers { path: PathBuf, source: std::io::Error },
    #[error("the allowed signers `{path}` can't be followed, so no revision is judged")]
    InvalidSigners { path: PathBuf, source: InvalidSigners },
    #[error(
        "source `{other}` could not be read since the start, and nothing is judged without what it has in force"
    )]
    Unread { other: String },
    #[error("the look at Git was interrupted")]
    Interrupted,
}

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

    pub(super) fn git(&self) -> &Repository {
        &self.0
    }

    /// The commit at the head of the remote's branch, fetched where it isn't here yet.
    pub(super) fn fetch(&self, config: &SourceConfig) -> Result<String, MirrorError> {
        denv_git_transport::with(&config.remote, || self.fetch_now(config))
    }

    fn fetch_now(&self, config: &SourceConfig) -> Result<String, MirrorError> {
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

    /// What `head` brings that `accepted` has not: the newest first. Without one, only the head itself.
    pub(super) fn incoming(&self, head: &str, accepted: Option<&str>) -> Result<Vec<String>, MirrorError> {
        let read = |source: git2::Error| MirrorError::Read { commit: head.to_owned(), source: source.into() };
        let Some(accepted) = accepted else { return Ok(vec![head.to_owned()]) };
        let mut walk = self.0.revwalk().map_err(read)?;
        walk.set_sorting(git2::Sort::TOPOLOGICAL).map_err(read)?;
        walk.push(Oid::from_str(head).map_err(read)?).map_err(read)?;
        walk.hide(Oid::from_str(accepted).map_err(read)?).map_err(read)?;
        walk.map(|oid| oid.map(|oid| oid.to_string()).map_err(read)).collect()
    }

    /// A commit's signature, and what it is of.
    pub(super) fn signed(&self, commit: &str) -> Result<Signed, MirrorError> {
        let read =
            |source: git2::Error| MirrorError::Read { commit: commit.to_owned(), source: source.into() };
        let oid = Oid::from_str(commit).map_err(read)?;
        let committed = self.0.find_commit(oid).map_err(read)?.time().seconds();
        let committed = Timestamp::from_second(committed).unwrap_or(Timestamp::UNIX_EPOCH);
        match self.0.extract_signature(&oid, None) {
            Ok((signature, text)) => {
                Ok(Signed { signature: Some(signature.to_vec()), text: text.to_vec(), committed })
            }
            Err(error) if error.code() == git2::ErrorCode::NotFound => {
                Ok(Signed { signature: None, text: Vec::new(), committed })
            }
            Err(error) => Err(read(error)),
        }
    }

    /// The manifests in a commit's tree, below `folder`. What can't be read as a manifest is told, not passed over.
    pub(super) fn files(&self, commit: &str, folder: &str) -> Result<(Files, Diagnostics), MirrorError> {
        let read = |source: GitError| MirrorError::Read { commit: commit.to_owned(), source };
        let oid = Oid::from_str(commit).map_err(|error| read(error.into()))?;
        denv_repository::manifests(&self.0, oid, folder).map_err(read)
    }

    /// The same, where what `blobs` knows is not read again.
    pub(super) fn files_again(
        &self,
        blobs: &mut Blobs,
        commit: &str,
        folder: &str,
    ) -> Result<(Files, Diagnostics), MirrorError> {
        let read = |source: GitError| MirrorError::Read { commit: commit.to_owned(), source };
        let oid = Oid::from_str(commit).map_err(|error| read(error.into()))?;
        blobs.manifests(&self.0, oid, folder).map_err(read)
    }
}

/// A commit as it was signed.
pub(super) struct Signed {
    pub(super) signature: Option<Vec<u8>>,
    pub(super) text: Vec<u8>,
    /// When, as the committer says.
    pub(super) committed: Timestamp,
}
