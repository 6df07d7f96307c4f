//! A person's yes to a revision that deletes much: to exactly that one, and on the record.

use denv_schema::api::short;
use tokio::sync::oneshot;

use super::judge::Judged;
use super::mirror::MirrorError;
use super::{HeldBack, Source, line};
use crate::store::{StoreError, Verdict};

pub struct Approval {
    /// The commit, whole or its beginning.
    pub commit: String,
    pub who: String,
    pub answer: oneshot::Sender<Result<(), ApprovalError>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error("no revision of source `{source_name}` waits for approval")]
    NothingWaits { source_name: String },
    #[error("`{asked}` is not the revision that waits; `{waits}` is, and it would delete {deletes}")]
    Another { source_name: String, asked: String, waits: String, deletes: String },
    #[error("`{commit}` is refused now: {reason}")]
    Refused { commit: String, reason: String },
    #[error("cannot read the revision")]
    Unreadable(#[source] UnreadableRevision),
    #[error("the control plane cannot write its store")]
    Store(#[from] StoreError),
}

/// Why Git could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableRevision(String);

impl From<MirrorError> for ApprovalError {
    fn from(error: MirrorError) -> Self {
        ApprovalError::Unreadable(UnreadableRevision(crate::chain(&error)))
    }
}

/// Fewer characters of a commit could mean another one tomorrow.
const SHORTEST: usize = 7;

fn names(asked: &str, commit: &str) -> bool {
    asked.len() >= SHORTEST && commit.starts_with(&asked.to_ascii_lowercase())
}

impl Source {
    pub(super) async fn approve(&mut self, approval: Approval) {
        let done = self.approved(&approval.commit, &approval.who).await;
        let problem = self.view.borrow().problem.clone();
        self.show(problem);
        // The asker may have gone; what was approved is all the same.
        let _ = approval.answer.send(done);
    }

    async fn approved(&mut self, asked: &str, who: &str) -> Result<(), ApprovalError> {
        let waits = self.held_back.as_ref().filter(|held| held.verdict == Verdict::Awaiting);
        let Some(HeldBack { revision: waits, .. }) = waits else {
            return Err(ApprovalError::NothingWaits { source_name: self.config.name.clone() });
        };
        let (commit, deletes) = (waits.view.commit.clone(), waits.reason.clone());
        if !names(asked, &commit) {
            let source_name = self.config.name.clone();
            let (asked, waits) = (asked.to_owned(), short(&commit).to_owned());
            return Err(ApprovalError::Another { source_name, asked, waits, deletes });
        }
        let signers = self.config.signers()?;
        let content = self.shelf.lock().await;
        let judged = self.judged(commit, signers, content, true).await;
        let (judged, mut content) =
            judged.map_err(|why| ApprovalError::Unreadable(UnreadableRevision(why)))?;
        match judged {
            Judged::Accepted { revision, catalog, files } => {
                let message = format!("{who} approved {}, which deletes {deletes}", line(&revision));
                Ok(self.accept(&mut content, revision, catalog, files, message).await?)
            }
            Judged::HeldBack(held) => {
                let (commit, reason) =
                    (short(&held.revision.view.commit).to_owned(), held.revision.reason.clone());
                self.hold_back(held).await?;
                Err(ApprovalError::Refused { commit, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_named_by_enough_of_it() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert!(names(commit, commit) && names("0123456", commit) && names("0123456789ABC", commit));
        assert!(!names("012345", commit) && !names("1234567", commit) && !names("", commit));
    }
}
