//! Commits that denv makes, and how they reach the remote.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;

use denv_repository::GitError;
use git2::build::TreeUpdateBuilder;
use git2::{Direction, ErrorCode, FileMode, Oid, PushOptions, RemoteCallbacks, Signature};
use ssh_key::{HashAlg, LineEnding, PrivateKey};

use super::SourceConfig;
use super::config::shown;
use super::local::{self, LocalError};
use super::mirror::{Mirror, MirrorError};
use super::rejection::{MOST_WORDS, Rejection, rejection};

/// Whose commit it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    pub name: String,
    pub email: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// Somebody else was faster; the change may be made anew on top of theirs.
    #[error("branch `{branch}` has moved meanwhile")]
    Moved { branch: String },
    /// The remote's own rules: a protected branch, a hook.
    #[error("`{url}` does not take the commit: {why}")]
    Rejected { url: String, why: String },
    #[error(
        "`{url}` has a worktree, which a push to `{branch}` would leave behind; a source that is applied to must be a bare repository, as `git clone --bare` makes one"
    )]
    NotBare { branch: String, url: String },
    #[error("cannot push to branch `{branch}` of `{url}`")]
    Failed { branch: String, url: String, source: GitError },
    #[error("cannot make a commit in the mirror")]
    Commit(#[source] GitError),
    #[error("cannot read the signing key `{path}`")]
    SigningKey { path: PathBuf, source: ssh_key::Error },
}

/// What denv calls itself where a committer is asked for.
const COMMITTER: (&str, &str) = ("denv", "denv@localhost");

impl Mirror {
    /// A commit on top of `base` that gives files these contents; none takes a file away. Paths are from the source's
    /// folder.
    pub(super) fn commit(
        &self,
        config: &SourceConfig,
        base: &str,
        files: &BTreeMap<String, Option<Vec<u8>>>,
        author: &Author,
        message: &str,
    ) -> Result<String, PushError> {
        let git = |error: git2::Error| PushError::Commit(error.into());
        let base = Oid::from_str(base).and_then(|oid| self.git().find_commit(oid)).map_err(git)?;
        let mut update = TreeUpdateBuilder::new();
        let folder = config.folder.trim_matches('/');
        for (path, content) in files {
            let path = if folder.is_empty() { path.clone() } else { format!("{folder}/{path}") };
            match content {
                Some(content) => {
                    let blob = self.git().blob(content).map_err(git)?;
                    update.upsert(path, blob, FileMode::Blob);
                }
                None => drop(update.remove(path)),
            }
        }
        let tree = base.tree().and_then(|tree| update.create_updated(self.git(), &tree)).map_err(git)?;
        let tree = self.git().find_tree(tree).map_err(git)?;
        let author = Signature::now(&author.name, &author.email).map_err(git)?;
        let committer = Signature::now(COMMITTER.0, COMMITTER.1).map_err(git)?;
        let Some(path) = &config.signing_key else {
            let made = self.git().commit(None, &author, &committer, message, &tree, &[&base]);
            return made.map(|oid| oid.to_string()).map_err(git);
        };
        let text = self.git().commit_create_buffer(&author, &committer, message, &tree, &[&base]);
        let text = text.map_err(git)?;
        let text = text.as_str().unwrap_or_default();
        let unusable = |source| PushError::SigningKey { path: path.clone(), source };
        let key = PrivateKey::read_openssh_file(path).map_err(unusable)?;
        let signature = key.sign("git", HashAlg::Sha512, text.as_bytes()).map_err(unusable)?;
        let signature = signature.to_pem(LineEnding::LF).map_err(unusable)?;
        self.git().commit_signed(text, &signature, None).map(|oid| oid.to_string()).map_err(git)
    }

    /// Where a branch of the remote stands; none if there is no such branch.
    pub(super) fn remote_branch(
        &self,
        config: &SourceConfig,
        branch: &str,
    ) -> Result<Option<String>, MirrorError> {
        let failed = |source: git2::Error| MirrorError::Fetch {
            branch: branch.to_owned(),
            url: shown(&config.url),
            source: source.into(),
        };
        let address = denv_git_transport::for_libgit2(&config.url).map_err(failed)?;
        let mut remote = self.git().remote_anonymous(&address).map_err(failed)?;
        remote.connect(Direction::Fetch).map_err(failed)?;
        let wanted = format!("refs/heads/{branch}");
        let listed = remote.list().map_err(failed)?;
        Ok(listed.iter().find(|head| head.name() == wanted).map(|head| head.oid().to_string()))
    }

    /// Makes a branch of the remote point to a commit, if it still stands where it is expected: at `base`, or nowhere.
    pub(super) fn push(
        &self,
        config: &SourceConfig,
        commit: &str,
        branch: &str,
        base: Option<&str>,
    ) -> Result<(), PushError> {
        let url = shown(&config.url);
        let failed = |source: git2::Error| PushError::Failed {
            branch: branch.to_owned(),
            url: url.clone(),
            source: source.into(),
        };
        let moved = || PushError::Moved { branch: branch.to_owned() };
        let not_bare = || PushError::NotBare { branch: branch.to_owned(), url: url.clone() };
        let here = format!("refs/denv/push/{branch}");
        let oid = Oid::from_str(commit).map_err(failed)?;
        let base = base.map(Oid::from_str).transpose().map_err(failed)?;
        if let Some(path) = denv_git_transport::path(&config.url) {
            return local::push(self.git(), &path, oid, branch, base).map_err(|error| match error {
                LocalError::Moved => moved(),
                LocalError::NotBare => not_bare(),
                LocalError::Git(source) => failed(source),
            });
        }
        self.git().reference(&here, oid, true, "to be pushed").map_err(failed)?;
        let expected = base.unwrap_or(Oid::ZERO_SHA1);
        let address = denv_git_transport::for_libgit2(&config.url).map_err(failed)?;
        let mut remote = self.git().remote_anonymous(&address).map_err(failed)?;
        let answer = Answer::default();
        let pushed = {
            let mut options = PushOptions::new();
            options.remote_callbacks(answer.callbacks(expected));
            remote.push(&[format!("{here}:refs/heads/{branch}")], Some(&mut options))
        };
        let _ = self.git().find_reference(&here).and_then(|mut reference| reference.delete());
        let status = answer.status.into_inner();
        let rejected = status.map(|status| rejection(&status, &answer.words.into_inner()));
        match (pushed, rejected) {
            _ if answer.stands_elsewhere.into_inner() => Err(moved()),
            (_, Some(Rejection::Moved)) => Err(moved()),
            (_, Some(Rejection::CheckedOut)) => Err(not_bare()),
            (_, Some(Rejection::Rules(why))) => Err(PushError::Rejected { url, why }),
            (Err(error), None) if error.code() == ErrorCode::NotFastForward => Err(moved()),
            (Err(error), None) => Err(failed(error)),
            (Ok(()), None) => Ok(()),
        }
    }
}

/// What the remote has to say to a push.
#[derive(Default)]
struct Answer {
    /// The branch did not stand where it was expected, so nothing was sent.
    stands_elsewhere: Cell<bool>,
    /// Why it does not move the branch.
    status: RefCell<Option<String>>,
    /// What it and its hooks printed.
    words: RefCell<Vec<u8>>,
}

impl Answer {
    fn callbacks(&self, expected: Oid) -> RemoteCallbacks<'_> {
        let mut callbacks = RemoteCallbacks::new();
        callbacks.push_negotiation(move |updates| {
            if updates.iter().all(|update| update.src() == expected) {
                return Ok(());
            }
            self.stands_elsewhere.set(true);
            Err(git2::Error::from_str("the branch has moved"))
        });
        callbacks.push_update_reference(|_, status| {
            self.status.replace(status.map(str::to_owned));
            Ok(())
        });
        callbacks.sideband_progress(|said| {
            let mut words = self.words.borrow_mut();
            words.extend_from_slice(said);
            let surplus = words.len().saturating_sub(MOST_WORDS);
            words.drain(..surplus);
            true
        });
        callbacks
    }
}
