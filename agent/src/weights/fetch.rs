//! Fetches files into a folder: a few at a time, each from where it broke off, as long as it gets on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use denv_schema::quantity::Bytes;
use denv_schema::wire::FetchedBytes;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::fs::{self, OpenOptions};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _, BufWriter};

use super::progress::FetchProgress;
use super::remote::{Remote, RemoteError, RemoteFile};

/// Files into a folder that nobody else writes.
pub(super) struct Fetch<'a> {
    pub(super) remote: &'a Remote,
    pub(super) files: &'a [RemoteFile],
    pub(super) folder: &'a Path,
    pub(super) waits: &'a [Duration],
    pub(super) progress: &'a FetchProgress,
}

/// Waits after tries that brought nothing; after the last, it is given up. Long enough for a store that is restarted.
pub(super) const WAITS_SECONDS: [u64; 7] = [1, 2, 4, 8, 15, 30, 60];

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    #[error("cannot write `{path}`: {source}")]
    Write { path: PathBuf, source: std::io::Error },
}

/// Files fetched at a time. One stream rarely fills a host's network, many would take it from those that serve.
const AT_A_TIME: usize = 4;
const BUFFER_BYTES: usize = 1 << 20;
const SAY_EVERY: Duration = Duration::from_secs(10);

impl Fetch<'_> {
    /// Afterwards each file is there in the length that the source gave it, and on the disk.
    pub(super) async fn run(&self) -> Result<(), FetchError> {
        let mut fetches = Vec::new();
        for file in self.files {
            fetches.push(self.file(file));
        }
        let all = futures::stream::iter(fetches).buffer_unordered(AT_A_TIME).try_collect();
        let mut all = std::pin::pin!(all);
        loop {
            match tokio::time::timeout(SAY_EVERY, &mut all).await {
                Ok(done) => return done,
                Err(_) => self.say(),
            }
        }
    }

    async fn file(&self, file: &RemoteFile) -> Result<(), FetchError> {
        let path = self.folder.join(&file.name);
        let (mut waits, mut counted) = (self.waits.iter(), 0);
        loop {
            let before = bytes_of(&path).await;
            let error = match self.go_on(file, &path, &mut counted).await {
                Ok(()) => return Ok(()),
                Err(FetchError::Remote(error)) if error.may_pass() => error,
                Err(error) => return Err(error),
            };
            if bytes_of(&path).await > before {
                waits = self.waits.iter();
            }
            let Some(wait) = waits.next() else { return Err(error.into()) };
            tracing::warn!(file = file.name, "{error}; trying again in {} s", wait.as_secs());
            tokio::time::sleep(*wait).await;
        }
    }

    /// One try: what is there of the file is kept, unless the source sends all of it again.
    async fn go_on(&self, file: &RemoteFile, path: &Path, counted: &mut u64) -> Result<(), FetchError> {
        let at = |source| FetchError::Write { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).await.map_err(at)?;
        }
        let mut opened =
            OpenOptions::new().create(true).write(true).truncate(false).open(path).await.map_err(at)?;
        let mut written = bytes_of(path).await;
        if file.bytes.is_some_and(|bytes| written > bytes) {
            written = 0;
        }
        if file.bytes != Some(written) {
            let mut body = self.remote.open(file, written).await?;
            written = body.begins_at;
            self.progress.count(counted, written);
            opened.set_len(written).await.map_err(at)?;
            opened.seek(std::io::SeekFrom::Start(written)).await.map_err(at)?;
            let mut writer = BufWriter::with_capacity(BUFFER_BYTES, opened);
            let mut broken = None;
            while let Some(chunk) = body.chunks.next().await {
                match chunk {
                    Ok(chunk) => {
                        writer.write_all(&chunk).await.map_err(at)?;
                        written += chunk.len() as u64;
                        self.progress.count(counted, written);
                    }
                    Err(error) => {
                        broken = Some(error);
                        break;
                    }
                }
            }
            // What came before it broke off is kept.
            writer.flush().await.map_err(at)?;
            opened = writer.into_inner();
            if let Some(error) = broken {
                return Err(error.into());
            }
            self.is_whole(file, written)?;
        }
        self.progress.count(counted, written);
        opened.sync_all().await.map_err(at)
    }

    fn is_whole(&self, file: &RemoteFile, written: u64) -> Result<(), RemoteError> {
        let place = || format!("{} ({})", self.remote.place(), file.name);
        match file.bytes {
            Some(bytes) if written < bytes => {
                let reason = format!("it ended after {} of {}", Bytes(written), Bytes(bytes));
                Err(RemoteError::Again { place: place(), reason })
            }
            Some(bytes) if written > bytes => {
                let reason = format!("it is longer than the {} it was said to be", Bytes(bytes));
                Err(RemoteError::Refused { place: place(), reason })
            }
            _ => Ok(()),
        }
    }

    fn say(&self) {
        if let Some(FetchedBytes { bytes, of }) = self.progress.fetched() {
            tracing::info!(from = self.remote.place(), "fetched {} of {}", Bytes(bytes), Bytes(of));
        }
    }
}

/// None of a file that is not there.
async fn bytes_of(path: &Path) -> u64 {
    fs::metadata(path).await.map_or(0, |meta| meta.len())
}
