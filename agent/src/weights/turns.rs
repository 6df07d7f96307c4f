//! Who works on what: the same weights are prepared once at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use denv_schema::Digest;

/// Whose turn it is, by the weights' digest.
#[derive(Default)]
pub(super) struct Turns {
    taken: Mutex<BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>>,
}

/// Given up when it is dropped.
pub(super) type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Turns {
    pub(super) async fn take(&self, digest: Digest) -> Turn {
        let turn = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.retain(|_, turn| turn.strong_count() > 0);
            let known = taken.get(&digest).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            taken.insert(digest, Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }

    /// What somebody works on or waits for.
    pub(super) fn taken(&self) -> BTreeSet<Digest> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().filter(|(_, turn)| turn.strong_count() > 0).map(|(digest, _)| *digest).collect()
    }
}
