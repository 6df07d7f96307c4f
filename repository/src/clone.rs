//! A person's clone, or a CI job's.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use denv_schema::Diagnostics;
use denv_schema::tree::Files;
use git2::Repository;

use crate::GitError;
use crate::tree::Blobs;

pub struct Clone {
    repository: Repository,
    /// From the clone's root to where it was looked for, with `/`.
    here: String,
    /// Two commits that are compared have most files in common.
    blobs: RefCell<Blobs>,
}

/// A commit that a revision names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// In hexadecimal, whole.
    pub id: String,
    /// The first line of its message.
    pub summary: String,
    pub author: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    #[error("`{path}` is in no Git repository")]
    NotFound { path: PathBuf, source: GitError },
    #[error("there is no revision `{revision}` in this repository")]
    NoRevision { revision: String, source: GitError },
    #[error("cannot read revision `{revision}`")]
    Read { revision: String, source: GitError },
}

impl Clone {
    /// The clone that a folder is in.
    pub fn around(path: &Path) -> Result<Self, CloneError> {
        let not_found =
            |source: git2::Error| CloneError::NotFound { path: path.to_owned(), source: source.into() };
        let repository = Repository::discover(path).map_err(not_found)?;
        let root = repository.workdir().and_then(|root| root.canonicalize().ok());
        let here = root.and_then(|root| Some(path.canonicalize().ok()?.strip_prefix(root).ok()?.to_owned()));
        let here = here.unwrap_or_default().to_string_lossy().replace('\\', "/");
        Ok(Clone { repository, here, blobs: RefCell::default() })
    }

    /// The commit that a revision (`HEAD~1`, a branch, a tag, a hash) names.
    pub fn commit(&self, revision: &str) -> Result<Commit, CloneError> {
        let no_revision = |source: git2::Error| CloneError::NoRevision {
            revision: revision.to_owned(),
            source: source.into(),
        };
        let found = self.repository.revparse_single(revision).map_err(no_revision)?;
        let commit = found.peel_to_commit().map_err(no_revision)?;
        Ok(Commit {
            id: commit.id().to_string(),
            summary: commit.summary().ok().flatten().unwrap_or_default().to_owned(),
            author: commit.author().name().unwrap_or_default().to_owned(),
        })
    }

    /// The manifests of a commit in the folder that the clone was looked for from, with paths from there.
    pub fn manifests(&self, commit: &Commit) -> Result<(Files, Diagnostics), CloneError> {
        let read = |source: GitError| CloneError::Read { revision: commit.id.clone(), source };
        let id = git2::Oid::from_str(&commit.id).map_err(|error| read(error.into()))?;
        self.blobs.borrow_mut().manifests(&self.repository, id, &self.here).map_err(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(repository: &Repository, path: &str, text: &str) {
        let root = repository.workdir().unwrap();
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), text).unwrap();
        let mut index = repository.index().unwrap();
        index.add_path(Path::new(path)).unwrap();
        let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
        let person = git2::Signature::now("Jo", "jo@example.com").unwrap();
        let parent = repository.head().ok().map(|head| head.peel_to_commit().unwrap());
        let parents: Vec<_> = parent.iter().collect();
        repository.commit(Some("HEAD"), &person, &person, "Say more\n\nwhy", &tree, &parents).unwrap();
    }

    #[test]
    fn a_revision_is_read_from_the_folder_one_stands_in() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::init(dir.path()).unwrap();
        commit(&repository, "chat/a.yaml", "a: 1");
        commit(&repository, "chat/a.yaml", "a: 2");
        commit(&repository, "other/b.yaml", "b: 1");
        let clone = Clone::around(&dir.path().join("chat")).unwrap();
        let read = |revision: &str| clone.manifests(&clone.commit(revision).unwrap()).unwrap().0;
        assert_eq!(read("HEAD"), Files::from([("a.yaml".to_owned(), b"a: 2".to_vec())]));
        assert_eq!(read("HEAD~2")["a.yaml"], b"a: 1");
        assert_eq!(Clone::around(dir.path()).unwrap().commit("HEAD").unwrap().summary, "Say more");
        let error = clone.commit("nowhere").unwrap_err().to_string();
        assert_eq!(error, "there is no revision `nowhere` in this repository");
        assert!(Clone::around(Path::new("/")).is_err());
    }

    /// Enough files for several threads, also in a working tree beside the clone's own.
    #[test]
    fn many_files_are_read_as_few_are() {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::init(dir.path().join("clone")).unwrap();
        for number in 0..200 {
            std::fs::write(
                repository.workdir().unwrap().join(format!("{number}.yaml")),
                format!("a: {number}"),
            )
            .unwrap();
        }
        let mut index = repository.index().unwrap();
        index.add_all(["*"], git2::IndexAddOption::DEFAULT, None).unwrap();
        index.write().unwrap();
        commit(&repository, "last.yaml", "a: last");
        let beside = dir.path().join("beside");
        repository.worktree("beside", &beside, None).unwrap();
        for folder in [repository.workdir().unwrap(), &beside] {
            let clone = Clone::around(folder).unwrap();
            let (files, found) = clone.manifests(&clone.commit("HEAD").unwrap()).unwrap();
            assert_eq!((files.len(), found.is_empty()), (201, true));
            assert!(
                (0..200)
                    .all(|number| files[&format!("{number}.yaml")] == format!("a: {number}").into_bytes())
            );
        }
    }
}
