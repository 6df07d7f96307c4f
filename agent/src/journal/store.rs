//! The journal on disk: one JSON file, replaced in one step, so that a crash leaves the old one or the new one. It
//! refuses to guess: a file it cannot read is an error for a person, never an empty journal.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use denv_schema::MemberId;
use denv_schema::wire::{Command, Generation, Term};

use super::{Facts, Journal, Verdict, judge};

/// The journal with its place on disk. A command counts only once it is written; facts about processes are kept
/// in memory when they cannot be written, and written as soon as they can.
pub struct Store {
    journal: Journal,
    disk: Arc<dyn Disk>,
    problem: Option<String>,
    unwritten: bool,
}

/// Where the journal's bytes go.
pub trait Disk: Send + Sync {
    /// The bytes that were last kept, if any.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;
    /// Keeps `bytes` instead, durably; after an error the old ones stand.
    fn replace(&self, bytes: &[u8]) -> io::Result<()>;
    /// For messages.
    fn path(&self) -> &Path;
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read the journal `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "the journal `{path}` is damaged; restore it, or stop all engines of this host, remove it and start denvd again"
    )]
    Damaged { path: PathBuf, source: serde_json::Error },
}

/// The command is not taken up and must not be answered: it will be tried again.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{path}`: {}", words(cause))]
pub struct WriteError {
    path: PathBuf,
    /// Told in the text, since it is the whole message.
    cause: io::Error,
}

/// The commonest cause in words that do not depend on the platform.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "no space left on its disk".to_owned(),
        _ => error.to_string(),
    }
}

impl Store {
    pub fn open(disk: Arc<dyn Disk>) -> Result<Store, OpenError> {
        let path = || disk.path().to_owned();
        let bytes = disk.read().map_err(|source| OpenError::Read { path: path(), source })?;
        let journal = match bytes {
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| OpenError::Damaged { path: path(), source })?,
            None => Journal::default(),
        };
        Ok(Store { journal, disk, problem: None, unwritten: false })
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What is wrong with the disk, for people.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Judges `command`, and records it if it is new. Only after that may it be acted upon and answered.
    pub async fn take_up(&mut self, command: &Command) -> Result<Verdict, WriteError> {
        let verdict = judge(&self.journal, command);
        match verdict {
            Verdict::New => {
                let next = self.journal.take_up(command);
                self.write(&next).await?;
                self.journal = next;
            }
            // A higher term fences from now on, whatever becomes of this command.
            Verdict::Again | Verdict::Refused(_) => self.see_term(command.term).await,
        }
        Ok(verdict)
    }

    pub async fn see_term(&mut self, term: Term) {
        if term > self.journal.term {
            self.journal.see_term(term);
            self.unwritten = true;
            self.flush().await;
        }
    }

    pub async fn note(&mut self, member: &MemberId, generation: Generation, facts: Facts) {
        self.journal.note(member, generation, facts);
        self.unwritten = true;
        self.flush().await;
    }

    /// Writes what could not be written before.
    pub async fn flush(&mut self) {
        if self.unwritten {
            let journal = self.journal.clone();
            // The problem is in `self.problem`, and the next flush tries again.
            let _ = self.write(&journal).await;
        }
    }

    async fn write(&mut self, journal: &Journal) -> Result<(), WriteError> {
        let bytes = serde_json::to_vec(journal).expect("a journal is plain data");
        let disk = self.disk.clone();
        let written = tokio::task::spawn_blocking(move || disk.replace(&bytes)).await;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => {
                self.unwritten = false;
                self.problem = None;
                Ok(())
            }
            Err(cause) => {
                let error = WriteError { path: self.disk.path().to_owned(), cause };
                let text = error.to_string();
                if self.problem.as_deref() != Some(&text) {
                    tracing::error!("{text}; commands wait until it can be written");
                }
                self.problem = Some(text);
                Err(error)
            }
        }
    }
}

/// A file that is replaced by renaming a new one over it.
pub struct JournalFile {
    path: PathBuf,
}

impl JournalFile {
    pub fn new(path: PathBuf) -> Self {
        JournalFile { path }
    }
}

impl Disk for JournalFile {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let partial = self.path.with_extension("partial");
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, &self.path)?;
        // The rename itself is durable only once the folder is.
        let dir = self.path.parent().expect("the journal is a file in a folder");
        File::open(dir)?.sync_all()
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
