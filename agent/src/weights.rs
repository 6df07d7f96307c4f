//! Weights on this host: where a release's source is, and whether the file is the one that was meant. It refuses
//! to know engines; nothing here changes a file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use denv_schema::Digest;
use denv_schema::manifest::Weights;
use sha2::{Digest as _, Sha256};

/// Finds and verifies weights. A file that has not changed since it was read is not read again.
pub struct WeightStore {
    dir: Option<PathBuf>,
    known: Mutex<HashMap<FileState, Digest>>,
}

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("the weights' source `{0}` is not of the form `file:PATH`")]
    Source(String),
    #[error("the weights `{0}` are relative, and this host has no weights folder (`--weights-dir`)")]
    NoDir(String),
    #[error("the weights `{path}` cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the weights `{path}` are not what the release means: expected {expected}, found {found}")]
    Mismatch { path: PathBuf, expected: Digest, found: Digest },
    #[error("verifying the weights was given up")]
    GivenUp,
}

/// A file as it was when it was read. What changes a file's content changes one of these.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FileState {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Files remembered at most; beyond that all are read again, which is only slow.
const KNOWN: usize = 1024;
const CHUNK_BYTES: usize = 1 << 20;

impl WeightStore {
    /// `dir` is where relative sources are.
    pub fn new(dir: Option<PathBuf>) -> Self {
        WeightStore { dir, known: Mutex::default() }
    }

    /// The verified file of `weights`. Reads it whole, on a thread of its own, unless it is known; giving up the
    /// future ends the reading.
    pub async fn verify(self: Arc<Self>, weights: Weights) -> Result<PathBuf, WeightsError> {
        let given_up = Arc::new(AtomicBool::new(false));
        let on_drop = GiveUp(given_up.clone());
        let verified = tokio::task::spawn_blocking(move || self.verify_blocking(&weights, &given_up)).await;
        drop(on_drop);
        // It fails only when the process ends.
        verified.unwrap_or(Err(WeightsError::GivenUp))
    }

    fn verify_blocking(&self, weights: &Weights, given_up: &AtomicBool) -> Result<PathBuf, WeightsError> {
        let path = self.locate(&weights.source)?;
        let at = |source| WeightsError::Read { path: path.clone(), source };
        let state = FileState::of(&path).map_err(at)?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&state).copied();
        let found = match known {
            Some(digest) => digest,
            None => {
                let digest = digest_of(&path, given_up).map_err(at)?.ok_or(WeightsError::GivenUp)?;
                // One that was written to meanwhile has a digest of nothing in particular: don't remember it.
                if FileState::of(&path).map_err(at)? == state {
                    let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                    if known.len() >= KNOWN {
                        known.clear();
                    }
                    known.insert(state, digest);
                }
                digest
            }
        };
        if found == weights.digest {
            Ok(path)
        } else {
            Err(WeightsError::Mismatch { path, expected: weights.digest, found })
        }
    }

    fn locate(&self, source: &str) -> Result<PathBuf, WeightsError> {
        let path = source.strip_prefix("file:").filter(|path| !path.is_empty());
        let path = Path::new(path.ok_or_else(|| WeightsError::Source(source.to_owned()))?);
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let dir = self.dir.as_ref().ok_or_else(|| WeightsError::NoDir(source.to_owned()))?;
        Ok(dir.join(path))
    }
}

impl FileState {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        if meta.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        Ok(FileState {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// None when it was given up.
fn digest_of(path: &Path, given_up: &AtomicBool) -> io::Result<Option<Digest>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if given_up.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match file.read(&mut chunk)? {
            0 => return Ok(Some(Digest::from_bytes(hasher.finalize().into()))),
            count => hasher.update(&chunk[..count]),
        }
    }
}

struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(source: &str, content: &[u8]) -> Weights {
        Weights { source: source.to_owned(), digest: Digest::of_bytes(content) }
    }

    #[tokio::test]
    async fn only_the_file_that_was_meant_passes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.gguf");
        let store = Arc::new(WeightStore::new(Some(dir.path().to_owned())));

        let missing = store.clone().verify(weights("file:model.gguf", b"good")).await.unwrap_err();
        assert!(missing.to_string().contains("model.gguf` cannot be read"), "{missing}");

        fs::write(&file, b"good").unwrap();
        assert_eq!(store.clone().verify(weights("file:model.gguf", b"good")).await.unwrap(), file);
        let absolute = format!("file:{}", file.display());
        assert_eq!(store.clone().verify(weights(&absolute, b"good")).await.unwrap(), file);

        // Changed under its name: the remembered digest is not trusted.
        fs::write(&file, b"evil").unwrap();
        let changed =
            store.clone().verify(weights("file:model.gguf", b"good")).await.unwrap_err().to_string();
        let found = Digest::of_bytes(b"evil").to_string();
        assert!(changed.contains(&found) && changed.contains("expected sha256:"), "{changed}");
    }

    #[tokio::test]
    async fn sources_that_mean_nothing_here_say_so() {
        let store = Arc::new(WeightStore::new(None));
        let relative = store.clone().verify(weights("file:model.gguf", b"")).await.unwrap_err();
        assert!(relative.to_string().contains("--weights-dir"), "{relative}");
        let remote = store.verify(weights("s3://models/x", b"")).await.unwrap_err();
        assert!(remote.to_string().contains("file:PATH"), "{remote}");
    }
}
