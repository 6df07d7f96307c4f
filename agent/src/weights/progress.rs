//! How far what is fetched is, for whoever asks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use denv_schema::Digest;
use denv_schema::wire::FetchedBytes;

use super::remote::RemoteFile;

/// All that is being fetched. What is not any more has no progress.
#[derive(Default)]
pub(super) struct UnderWay {
    fetches: Mutex<BTreeMap<Digest, Weak<FetchProgress>>>,
}

/// Of one fetch, as long as it lives.
pub(super) struct FetchProgress {
    bytes: AtomicU64,
    /// None where the source does not say.
    of: Option<u64>,
}

impl UnderWay {
    pub(super) fn begin(&self, digest: Digest, files: &[RemoteFile]) -> Arc<FetchProgress> {
        let of = files.iter().map(|file| file.bytes).sum();
        let progress = Arc::new(FetchProgress { bytes: AtomicU64::new(0), of });
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        fetches.retain(|_, fetch| fetch.strong_count() > 0);
        fetches.insert(digest, Arc::downgrade(&progress));
        progress
    }

    pub(super) fn of(&self, digest: Digest) -> Option<FetchedBytes> {
        let fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        fetches.get(&digest)?.upgrade()?.fetched()
    }
}

impl FetchProgress {
    /// Of a file so many bytes are there now; `counted` were until now.
    pub(super) fn count(&self, counted: &mut u64, there: u64) {
        // It may be fewer: a source that knows no ranges begins anew.
        self.bytes.fetch_add(there.wrapping_sub(*counted), Ordering::Relaxed);
        *counted = there;
    }

    pub(super) fn fetched(&self) -> Option<FetchedBytes> {
        Some(FetchedBytes { bytes: self.bytes.load(Ordering::Relaxed), of: self.of? })
    }
}
