//! Manifests in Git repositories that are on this machine: the reconciler's mirrors, and people's clones.
//!
//! It reads trees of commits; it refuses to know remotes, and what manifests mean.

mod clone;
mod tree;

pub use clone::{Clone, CloneError, Commit};
pub use tree::{Blobs, manifests};

/// What went wrong in Git, in words; libgit2's numbers say nothing to those who read it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct GitError(String);

impl From<git2::Error> for GitError {
    fn from(error: git2::Error) -> Self {
        GitError(error.message().to_owned())
    }
}
