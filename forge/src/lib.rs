//! The forges that hold source repositories: GitHub, GitLab, Gitea and Forgejo. A commit's status is set, and one
//! comment on a pull request is made and kept up to date.
//!
//! Requests are built purely ([`request`]) and sent thinly ([`Client`]). It refuses to know what is said in them. It needs
//! rustls's provider installed.

mod address;
mod client;
pub mod request;

use std::fmt;
use std::str::FromStr;

pub use address::{Address, InvalidAddress};
pub use client::{Client, Commented, ForgeError};

/// Which API is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    GitHub,
    GitLab,
    /// And Forgejo.
    Gitea,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::GitHub, Kind::GitLab, Kind::Gitea];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::GitHub => "github",
            Kind::GitLab => "gitlab",
            Kind::Gitea => "gitea",
        }
    }

    /// The longest comment that is taken, in characters, with room for what marks it.
    pub fn longest_comment(self) -> usize {
        match self {
            Kind::GitHub | Kind::Gitea => 65_000,
            Kind::GitLab => 900_000,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such forge; there are `github`, `gitlab` and `gitea` (Forgejo is spoken to as Gitea)")]
pub struct InvalidKind;

impl FromStr for Kind {
    type Err = InvalidKind;
    fn from_str(text: &str) -> Result<Self, InvalidKind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(InvalidKind)
    }
}

/// What became of a commit, so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    Success,
    Failure,
}

/// What is said of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    /// Who says it; a later status of the same context takes its place.
    pub context: String,
    /// One line.
    pub description: String,
}
