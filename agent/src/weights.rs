//! Weights on this host: where a release's source is, and whether it is the file or folder that was meant. It
//! refuses to know engines; nothing here changes a file.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use denv_schema::Digest;
use denv_schema::manifest::Weights;
use denv_weights::{Contents, Difference, Listing, Progress, ReadError, Reader};

/// Finds and verifies weights. A file that has not changed since it was read is not read again.
pub struct WeightStore {
    dir: Option<PathBuf>,
    reader: Reader,
    /// Folders that were once what was meant, by what they were meant to be: to say in what one differs.
    verified: Mutex<HashMap<Digest, Listing>>,
}

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("the weights' source `{0}` is not of the form `file:PATH`")]
    Source(String),
    #[error("the weights `{0}` are relative, and this host has no weights folder (`--weights-dir`)")]
    NoDir(String),
    #[error("the weights cannot be verified: {source}")]
    Read { source: ReadError },
    #[error("the weights `{path}` are not what the release means: expected {expected}, found {found}")]
    Mismatch { path: PathBuf, expected: Digest, found: Box<Unlike> },
    #[error("verifying the weights was given up")]
    GivenUp,
}

/// Weights that are not what was meant, and in what they differ as far as that is known.
#[derive(Debug)]
pub struct Unlike {
    digest: Digest,
    contents: String,
    differences: Vec<Difference>,
}

/// Differences named at most.
const NAMED: usize = 5;

impl WeightStore {
    /// `dir` is where relative sources are.
    pub fn new(dir: Option<PathBuf>) -> Self {
        WeightStore { dir, reader: Reader::default(), verified: Mutex::default() }
    }

    /// The verified file or folder of `weights`. Reads it whole, on threads of its own, but for files that are known;
    /// giving up the future ends the reading.
    pub async fn prepare(self: Arc<Self>, weights: Weights) -> Result<PathBuf, WeightsError> {
        let on_drop = GiveUp(Arc::default());
        let progress = Arc::clone(&on_drop.0);
        let verified = tokio::task::spawn_blocking(move || self.verify(&weights, &progress)).await;
        drop(on_drop);
        // It fails only when the process ends.
        verified.unwrap_or(Err(WeightsError::GivenUp))
    }

    fn verify(&self, weights: &Weights, progress: &Progress) -> Result<PathBuf, WeightsError> {
        let path = self.locate(&weights.source)?;
        let contents = match self.reader.read(&path, progress) {
            Ok(contents) => contents,
            Err(ReadError::GivenUp) => return Err(WeightsError::GivenUp),
            Err(source) => return Err(WeightsError::Read { source }),
        };
        let (found, expected) = (contents.digest(), weights.digest);
        if found != expected {
            let found = Box::new(self.unlike(found, &contents, expected));
            return Err(WeightsError::Mismatch { path, expected, found });
        }
        if let Contents::Folder(listing) = contents {
            self.verified.lock().unwrap_or_else(PoisonError::into_inner).insert(expected, listing);
        }
        Ok(path)
    }

    fn unlike(&self, digest: Digest, contents: &Contents, meant: Digest) -> Unlike {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let differences = match (contents, verified.get(&meant)) {
            (Contents::Folder(here), Some(meant)) => here.differences(meant),
            (Contents::Folder(here), None) => here
                .one_too_many(meant)
                .map(|name| Difference::TooMany(name.to_owned()))
                .into_iter()
                .collect(),
            (Contents::File(_), _) => Vec::new(),
        };
        Unlike { digest, contents: contents.to_string(), differences }
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

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.digest, self.contents)?;
        for (index, difference) in self.differences.iter().take(NAMED).enumerate() {
            write!(f, "{}{difference}", if index == 0 { ": " } else { ", " })?;
        }
        match self.differences.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

struct GiveUp(Arc<Progress>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn weights(source: &str, content: &[u8]) -> Weights {
        Weights { source: source.to_owned(), digest: Digest::of_bytes(content) }
    }

    #[tokio::test]
    async fn only_the_file_that_was_meant_passes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.gguf");
        let store = Arc::new(WeightStore::new(Some(dir.path().to_owned())));

        let missing = store.clone().prepare(weights("file:model.gguf", b"good")).await.unwrap_err();
        assert!(missing.to_string().contains("model.gguf` cannot be read: No such file"), "{missing}");

        fs::write(&file, b"good").unwrap();
        assert_eq!(store.clone().prepare(weights("file:model.gguf", b"good")).await.unwrap(), file);
        let absolute = format!("file:{}", file.display());
        assert_eq!(store.clone().prepare(weights(&absolute, b"good")).await.unwrap(), file);

        // Changed under its name: the remembered digest is not trusted.
        fs::write(&file, b"evil").unwrap();
        let changed =
            store.clone().prepare(weights("file:model.gguf", b"good")).await.unwrap_err().to_string();
        let found = Digest::of_bytes(b"evil").to_string();
        assert!(changed.contains(&found) && changed.contains("expected sha256:"), "{changed}");
    }

    #[tokio::test]
    async fn a_folder_is_told_apart_from_the_one_that_was_meant() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("llama");
        fs::create_dir(&folder).unwrap();
        for name in ["config.json", "model-1.safetensors", "model-2.safetensors"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let store = Arc::new(WeightStore::new(Some(dir.path().to_owned())));
        let digest = Reader::default().read(&folder, &Progress::default()).unwrap().digest();
        let meant = Weights { source: "file:llama".to_owned(), digest };
        let prepare = || store.clone().prepare(meant.clone());

        // Nothing is known of a folder that was never right, but for one file too many.
        fs::write(folder.join("optimizer.pt"), "x").unwrap();
        let error = prepare().await.unwrap_err().to_string();
        assert!(error.ends_with("(a folder of 4 files): `optimizer.pt` is too many"), "{error}");
        fs::remove_file(folder.join("optimizer.pt")).unwrap();
        assert_eq!(prepare().await.unwrap(), folder);

        fs::remove_file(folder.join("config.json")).unwrap();
        fs::write(folder.join("model-1.safetensors"), "torn").unwrap();
        let error = prepare().await.unwrap_err().to_string();
        let differences = "(a folder of 2 files): `config.json` is missing, `model-1.safetensors` is another";
        assert!(error.ends_with(differences) && error.contains(&digest.to_string()), "{error}");
    }

    #[tokio::test]
    async fn sources_that_mean_nothing_here_say_so() {
        let store = Arc::new(WeightStore::new(None));
        let relative = store.clone().prepare(weights("file:model.gguf", b"")).await.unwrap_err();
        assert!(relative.to_string().contains("--weights-dir"), "{relative}");
        let remote = store.prepare(weights("s3://models/x", b"")).await.unwrap_err();
        assert!(remote.to_string().contains("file:PATH"), "{remote}");
    }
}
