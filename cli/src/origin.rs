//! Where a configuration comes from: a folder, a revision, standard input, what the control plane runs.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use denv_planner::Snapshot;
use denv_repository::{Clone as Repository, CloneError};
use denv_schema::Diagnostics;
use denv_schema::api::short;
use denv_schema::tree::{self, Files, ReadError};

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Folder(PathBuf),
    Stdin,
    Revision(String),
}

/// A configuration, with what people call it.
pub(crate) struct Side {
    pub label: String,
    pub files: Files,
    /// What can't be read as a manifest at all.
    pub unreadable: Diagnostics,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Clone(#[from] CloneError),
    #[error("cannot read standard input")]
    Stdin(#[source] io::Error),
    #[error("cannot read the snapshot `{path}`")]
    Snapshot { path: PathBuf, source: io::Error },
    #[error("`{path}` is no snapshot that this `denv` understands")]
    NotASnapshot { path: PathBuf, source: serde_json::Error },
}

impl OriginError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            OriginError::Clone(CloneError::NotFound { .. }) => {
                "compare folders instead (`denv diff before/ after/`), or go to a clone with -C"
            }
            OriginError::Clone(CloneError::NoRevision { .. }) => {
                "it is neither a folder here nor a revision; a shallow clone in CI may lack it: fetch with full depth"
            }
            OriginError::NotASnapshot { .. } => "make one with `denv snapshot > world.json`",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl Origin {
    /// What a person typed: `-`, a folder or file that is there, else a revision.
    pub(crate) fn typed(text: &str, here: &Path) -> Self {
        match text {
            "-" => Origin::Stdin,
            _ if here.join(text).exists() => Origin::Folder(here.join(text)),
            _ => Origin::Revision(text.to_owned()),
        }
    }

    /// `repository` is the clone around `here`, once it was needed.
    pub(crate) fn read(&self, here: &Path, repository: &mut Option<Repository>) -> Result<Side, OriginError> {
        match self {
            Origin::Folder(path) => {
                let label =
                    if path == here { "the working tree".to_owned() } else { path.display().to_string() };
                let (files, unreadable) = tree::scan(path)?;
                Ok(Side { label, files, unreadable })
            }
            Origin::Stdin => {
                let mut bytes = Vec::new();
                io::stdin().read_to_end(&mut bytes).map_err(OriginError::Stdin)?;
                let files = Files::from([("stdin".to_owned(), bytes)]);
                Ok(Side { label: "standard input".to_owned(), files, unreadable: Diagnostics::default() })
            }
            Origin::Revision(revision) => {
                let repository = match repository {
                    Some(repository) => repository,
                    None => repository.insert(Repository::around(here)?),
                };
                let commit = repository.commit(revision)?;
                let (files, unreadable) = repository.manifests(&commit)?;
                let short = short(&commit.id);
                let named = if commit.id.starts_with(revision.as_str()) {
                    String::new()
                } else {
                    format!("{revision} ")
                };
                Ok(Side { label: format!("{named}{short} `{}`", commit.summary), files, unreadable })
            }
        }
    }
}

impl Side {
    /// What a control plane runs.
    pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Self {
        let revision = snapshot.revision.as_deref().map(short);
        let label = revision.map_or_else(
            || "the control plane, with nothing in force".to_owned(),
            |revision| format!("the control plane at {revision}"),
        );
        Side { label, files: snapshot.files(), unreadable: Diagnostics::default() }
    }
}

pub(crate) fn snapshot_file(path: &Path) -> Result<Snapshot, OriginError> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(path).map(|read| bytes = read)
    };
    read.map_err(|source| OriginError::Snapshot { path: path.to_owned(), source })?;
    serde_json::from_slice(&bytes)
        .map_err(|source| OriginError::NotASnapshot { path: path.to_owned(), source })
}
