//! Reads weights: several files at a time, each as long as it takes, until somebody gives up.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use denv_schema::Digest;
use sha2::{Digest as _, Sha256};

use crate::find::{FileState, FindError, Found, FoundFile, find};
use crate::listing::{Contents, FileContents};

/// Reads weights, and remembers what it read: a file that has not changed since is not read again.
#[derive(Debug, Default)]
pub struct Reader {
    known: Mutex<HashMap<FileState, Digest>>,
}

/// How far a reading is, for others to look at; and their way to end it.
#[derive(Debug, Default)]
pub struct Progress {
    given_up: AtomicBool,
    read: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("`{path}` cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` changed while it was read; let whatever writes it end")]
    Changed { path: PathBuf },
    #[error("reading the weights was given up")]
    GivenUp,
}

/// Files read at a time. A disk is busy with these, and a host that serves has cores left.
const AT_A_TIME: usize = 4;
/// Files remembered at most; beyond that all are read again, which is only slow.
const KNOWN: usize = 1 << 16;
const CHUNK_BYTES: usize = 1 << 20;

impl Progress {
    /// Ends the reading soon.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Bytes that were read or are known, and bytes of all files; none before they are found.
    pub fn read_of(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl Reader {
    /// Reads the file or folder at `path`, on this thread and a few others.
    pub fn read(&self, path: &Path, progress: &Progress) -> Result<Contents, ReadError> {
        let found = find(path)?;
        let files: Vec<&FoundFile> = match &found {
            Found::File(file) => vec![file],
            Found::Folder(files) => files.values().collect(),
        };
        progress.bytes.store(files.iter().map(|file| file.state.bytes).sum(), Ordering::Relaxed);
        let digests = self.read_all(&files, progress)?;
        let contents = |file: &FoundFile, digest| FileContents { bytes: file.state.bytes, digest };
        match &found {
            Found::File(file) => Ok(Contents::File(contents(file, digests[0]))),
            Found::Folder(files) => {
                let files = files.iter().zip(digests);
                let files = files.map(|((name, file), digest)| (name.clone(), contents(file, digest)));
                Ok(Contents::Folder(files.collect()))
            }
        }
    }

    /// In the order of `files`. The first error ends all.
    fn read_all(&self, files: &[&FoundFile], progress: &Progress) -> Result<Vec<Digest>, ReadError> {
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let work = || {
            let mut done = Vec::new();
            while !failed.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = files.get(index) else { break };
                let digest = self.digest(file, progress);
                failed.fetch_or(digest.is_err(), Ordering::Relaxed);
                done.push((index, digest));
            }
            done
        };
        let mut done = thread::scope(|scope| {
            let others: Vec<_> = (1..AT_A_TIME.min(files.len())).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            done.extend(others.into_iter().flat_map(|other| other.join().expect("reading does not panic")));
            done
        });
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, digest)| digest).collect()
    }

    fn digest(&self, file: &FoundFile, progress: &Progress) -> Result<Digest, ReadError> {
        let FoundFile { path, state } = file;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(state).copied();
        if let Some(known) = known {
            progress.read.fetch_add(state.bytes, Ordering::Relaxed);
            return Ok(known);
        }
        let digest = digest_of(path, progress)
            .map_err(|source| ReadError::Read { path: path.clone(), source })?
            .ok_or(ReadError::GivenUp)?;
        // One that was written to meanwhile has a digest of nothing in particular.
        if !file.still_holds() {
            return Err(ReadError::Changed { path: path.clone() });
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(*state, digest);
        Ok(digest)
    }
}

/// None when it was given up.
fn digest_of(path: &Path, progress: &Progress) -> io::Result<Option<Digest>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        if progress.given_up.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match file.read(&mut chunk)? {
            0 => return Ok(Some(Digest::from_bytes(hasher.finalize().into()))),
            count => {
                hasher.update(&chunk[..count]);
                progress.read.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_is_read_as_the_shell_does_it() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("b.bin", "two"), ("a/c d.json", "one"), ("a-c", ""), (".hidden", "x")] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let command = "find -L . -type f -not -path '*/.*' | LC_ALL=C sort | xargs -d '\\n' sha256sum";
        let shell = std::process::Command::new("sh").args(["-c", command]).current_dir(dir.path()).output();
        let shell = shell.unwrap().stdout;
        let progress = Progress::default();
        let contents = Reader::default().read(dir.path(), &progress).unwrap();
        let Contents::Folder(listing) = &contents else { panic!("{contents:?}") };
        assert_eq!(listing.to_string(), String::from_utf8(shell.clone()).unwrap());
        assert_eq!(contents.digest(), Digest::of_bytes(&shell));
        assert_eq!(progress.read_of(), (6, 6));
    }

    #[test]
    fn what_has_not_changed_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..20).map(|number| format!("model-{number}.bin")).collect();
        for name in &names {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let reader = Reader::default();
        let read = || reader.read(dir.path(), &Progress::default()).unwrap();
        let first = read();
        assert_eq!(first, read());
        assert_eq!(reader.known.lock().unwrap().len(), names.len());
        fs::write(dir.path().join("model-7.bin"), "other").unwrap();
        assert_ne!(first.digest(), read().digest());
        assert_eq!(reader.known.lock().unwrap().len(), names.len() + 1);
    }

    #[test]
    fn a_reading_that_is_given_up_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.bin");
        fs::write(&path, "x").unwrap();
        let progress = Progress::default();
        progress.give_up();
        let given_up = Reader::default().read(&path, &progress).unwrap_err();
        assert!(matches!(given_up, ReadError::GivenUp), "{given_up}");
    }
}
