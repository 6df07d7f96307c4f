//! Weights on this host: where a release's source is or has been fetched to, and whether it is the file or folder that
//! was meant. It refuses to know engines, and writes nowhere but in the folder of what it fetches.

mod eviction;
mod fetch;
mod fetched;
mod progress;
mod remote;
#[cfg(test)]
mod tests;
mod turns;
mod unlike;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use denv_schema::Digest;
use denv_schema::manifest::Weights;
use denv_schema::wire::FetchedBytes;
use denv_weights::{Contents, Listing, Progress, ReadError, Reader, is_hidden, is_name};

use fetch::{Fetch, FetchError, WAITS_SECONDS};
use fetched::{Fetched, FolderError, Home};
use progress::UnderWay;
pub use remote::{Access, RemoteError};
use remote::{Remote, RemoteFile};
use turns::Turns;
use unlike::Unlike;

/// Finds, fetches and verifies weights. A file that has not changed since it was read is not read again.
pub struct WeightStore {
    /// Where relative sources are, and below it what is fetched.
    dir: PathBuf,
    access: Access,
    waits: Vec<Duration>,
    reader: Arc<Reader>,
    turns: Turns,
    fetched: Mutex<Option<Arc<Fetched>>>,
    under_way: UnderWay,
    in_use: OnceLock<Box<dyn Fn() -> BTreeSet<Digest> + Send + Sync>>,
    /// Folders that were once what was meant, by what they were meant to be: to say in what one differs.
    verified: Mutex<HashMap<Digest, Listing>>,
    /// What a source had instead of what was meant: it is not fetched again while it has the same.
    refused: Mutex<BTreeMap<Digest, (Digest, Arc<Unlike>)>>,
}

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("the weights' source `{0}` is of no kind that this denvd knows; upgrade it, or use another")]
    Source(String),
    #[error("the weights cannot be verified: {0}")]
    Read(ReadError),
    #[error("the weights `{place}` are not what the release means: expected {expected}, found {found}")]
    Mismatch { place: String, expected: Digest, found: Arc<Unlike> },
    #[error("the weights cannot be fetched: {0}")]
    Fetch(#[from] FetchError),
    #[error("the weights `{place}` cannot be fetched: {fault}")]
    Files { place: String, fault: String },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("preparing the weights was given up")]
    GivenUp,
}

impl WeightsError {
    /// Whether it may go better the next time without anybody's doing: the source is away.
    pub fn may_pass(&self) -> bool {
        matches!(self, WeightsError::Fetch(FetchError::Remote(error)) if error.may_pass())
    }
}

/// Below the weights folder.
const FETCHED: &str = "fetched";

impl WeightStore {
    /// `dir` is where relative sources are, and where weights are fetched to.
    pub fn new(dir: PathBuf, access: Access) -> Self {
        WeightStore {
            dir,
            access,
            waits: WAITS_SECONDS.map(Duration::from_secs).to_vec(),
            reader: Arc::default(),
            turns: Turns::default(),
            fetched: Mutex::default(),
            under_way: UnderWay::default(),
            in_use: OnceLock::new(),
            verified: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Says which weights must stay, whenever room is needed. Before that, none are removed.
    pub fn keep(&self, in_use: impl Fn() -> BTreeSet<Digest> + Send + Sync + 'static) {
        // Said once, when denvd starts.
        let _ = self.in_use.set(Box::new(in_use));
    }

    /// How far the fetching of these is, while it goes on.
    pub fn fetched(&self, digest: Digest) -> Option<FetchedBytes> {
        self.under_way.of(digest)
    }

    /// The verified file or folder of `weights`, fetched if it is from elsewhere; the same weights once at a time,
    /// whoever asks. Giving up the future ends the work on it; what was fetched stays, and is gone on with.
    pub async fn prepare(self: Arc<Self>, weights: Weights) -> Result<PathBuf, WeightsError> {
        let (source, digest) = (&weights.source, weights.digest);
        let _turn = self.turns.take(digest).await;
        let path = source.strip_prefix("file:").filter(|path| !path.is_empty());
        if let Some(path) = path {
            // An absolute path stands for itself.
            let path = self.dir.join(path);
            let contents = self.read(&path).await?;
            self.is_meant(&path.display().to_string(), &contents, digest)?;
            return Ok(path);
        }
        let fetched = self.claim()?;
        let home = fetched.home(digest);
        if home.is_whole() {
            match self.verify(&home.whole, weights.place(), digest).await {
                Ok(inside) => {
                    home.touch();
                    return Ok(home.path(inside));
                }
                Err(error @ (WeightsError::Mismatch { .. } | WeightsError::Read(_))) => {
                    tracing::warn!(%digest, "fetched weights have changed on the disk, fetching them again: {error}");
                    self.blocking(&home, |home| home.remove_all()).await?;
                }
                Err(error) => return Err(error),
            }
        }
        // Only now: what is there needs no source.
        let remote = Remote::new(source, &self.access).map_err(FetchError::from)?;
        let unknown = || WeightsError::Source(weights.place().to_owned());
        self.fetch(&remote.ok_or_else(unknown)?, &fetched, digest).await
    }

    async fn fetch(
        &self,
        remote: &Remote,
        fetched: &Arc<Fetched>,
        digest: Digest,
    ) -> Result<PathBuf, WeightsError> {
        let home = fetched.home(digest);
        let files = files_of(remote, self.list(remote).await?)?;
        let version = version_of(&files);
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned();
        if let Some((_, found)) = refused.filter(|(refused, _)| *refused == version) {
            return Err(WeightsError::Mismatch { place: remote.place(), expected: digest, found });
        }
        let mut goes_on = self.blocking(&home, move |home| home.begin(version)).await?;
        loop {
            self.make_room(fetched, &home, &files, digest).await?;
            tracing::info!(%digest, from = remote.place(), files = files.len(), goes_on, "fetching weights");
            let progress = self.under_way.begin(digest, &files);
            let (folder, waits) = (&home.partial, &self.waits);
            Fetch { remote, files: &files, folder, waits, progress: &progress }.run().await?;
            match self.verify(&home.partial, &remote.place(), digest).await {
                Ok(inside) => {
                    self.blocking(&home, |home| home.complete()).await?;
                    tracing::info!(%digest, from = remote.place(), "fetched weights, and verified them");
                    return Ok(home.path(inside));
                }
                Err(error @ WeightsError::Mismatch { .. }) => {
                    self.blocking(&home, |home| home.remove_all()).await?;
                    if !goes_on {
                        if let WeightsError::Mismatch { found, .. } = &error {
                            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                            refused.insert(digest, (version, Arc::clone(found)));
                        }
                        return Err(error);
                    }
                    // What was there from an earlier try may have been torn.
                    tracing::warn!(%digest, "{error}; fetching all of it anew");
                    self.blocking(&home, move |home| home.begin(version)).await?;
                    goes_on = false;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl WeightStore {
    /// Lists what is there; a source that is away for a moment is asked again.
    async fn list(&self, remote: &Remote) -> Result<Vec<RemoteFile>, FetchError> {
        let mut waits = self.waits.iter();
        loop {
            let error = match remote.list().await {
                Ok(files) => return Ok(files),
                Err(error) => error,
            };
            let Some(wait) = waits.next().filter(|_| error.may_pass()) else { return Err(error.into()) };
            tracing::warn!("{error}; trying again in {} s", wait.as_secs());
            tokio::time::sleep(*wait).await;
        }
    }

    async fn make_room(
        &self,
        fetched: &Arc<Fetched>,
        home: &Home,
        files: &[RemoteFile],
        digest: Digest,
    ) -> Result<(), WeightsError> {
        let mut in_use = self.turns.taken();
        in_use.insert(digest);
        let may_evict = self.in_use.get().map(|in_use| in_use());
        let needed = files.to_vec();
        let (fetched, home) = (Arc::clone(fetched), home.clone());
        let made = tokio::task::spawn_blocking(move || {
            let in_use = may_evict.map(|of_members| &of_members | &in_use);
            fetched.make_room(&home, &needed, in_use.as_ref())
        });
        Ok(made.await.map_err(|_| WeightsError::GivenUp)??)
    }

    /// Whether what is in `folder` is what was meant: as a whole, or the one file in it, which is named then.
    async fn verify(
        &self,
        folder: &Path,
        place: &str,
        digest: Digest,
    ) -> Result<Option<String>, WeightsError> {
        let contents = self.read(folder).await?;
        if let Contents::Folder(listing) = &contents
            && let Some((name, file)) = listing.only()
        {
            if file.digest == digest {
                return Ok(Some(name.to_owned()));
            }
            if listing.digest() != digest {
                // Where there is one file, that is what was meant.
                let file = Contents::File(*file);
                return self.is_meant(place, &file, digest).map(|()| None);
            }
        }
        self.is_meant(place, &contents, digest).map(|()| None)
    }

    /// On threads of its own; giving up the future ends the reading.
    async fn read(&self, path: &Path) -> Result<Contents, WeightsError> {
        let on_drop = GiveUp(Arc::default());
        let (reader, path, progress) = (Arc::clone(&self.reader), path.to_owned(), Arc::clone(&on_drop.0));
        let read = tokio::task::spawn_blocking(move || reader.read(&path, &progress)).await;
        match read {
            Ok(Ok(contents)) => Ok(contents),
            // It is not joined only when the process ends.
            Ok(Err(ReadError::GivenUp)) | Err(_) => Err(WeightsError::GivenUp),
            Ok(Err(error)) => Err(WeightsError::Read(error)),
        }
    }

    fn is_meant(&self, place: &str, contents: &Contents, expected: Digest) -> Result<(), WeightsError> {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if contents.digest() != expected {
            let found = Arc::new(Unlike::new(contents, expected, verified.get(&expected)));
            return Err(WeightsError::Mismatch { place: place.to_owned(), expected, found });
        }
        if let Contents::Folder(listing) = contents {
            verified.insert(expected, listing.clone());
        }
        Ok(())
    }

    /// The folder is claimed when something is fetched, and stays so.
    fn claim(&self) -> Result<Arc<Fetched>, FolderError> {
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fetched) = &*fetched {
            return Ok(Arc::clone(fetched));
        }
        let claimed = Arc::new(Fetched::claim(self.dir.join(FETCHED))?);
        *fetched = Some(Arc::clone(&claimed));
        Ok(claimed)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        home: &Home,
        work: impl FnOnce(&Home) -> Result<T, FolderError> + Send + 'static,
    ) -> Result<T, WeightsError> {
        let home = home.clone();
        let done = tokio::task::spawn_blocking(move || work(&home)).await;
        Ok(done.map_err(|_| WeightsError::GivenUp)??)
    }
}

/// The files that are weights, if they can be told apart from each other here.
fn files_of(remote: &Remote, listed: Vec<RemoteFile>) -> Result<Vec<RemoteFile>, WeightsError> {
    let mut files: Vec<RemoteFile> = listed.into_iter().filter(|file| !is_hidden(&file.name)).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let fault = |fault: String| WeightsError::Files { place: remote.place(), fault };
    if files.is_empty() {
        return Err(FetchError::from(RemoteError::Missing { place: remote.place() }).into());
    }
    if let Some(file) = files.iter().find(|file| !is_name(&file.name)) {
        return Err(fault(format!("it has a file {:?}, and a name like that can't be one here", file.name)));
    }
    let names: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let is_folder_too = |name: &&str| {
        let mut above = name.match_indices('/').map(|(end, _)| &name[..end]);
        above.any(|above| names.contains(above))
    };
    if let Some(name) = names.iter().find(|name| is_folder_too(name)) {
        return Err(fault(format!("`{name}` is in a folder that is a file, too")));
    }
    Ok(files)
}

/// What is at a source now.
fn version_of(files: &[RemoteFile]) -> Digest {
    let files: Vec<_> = files.iter().map(|file| (&file.name, file.bytes, &file.version)).collect();
    Digest::of(&files)
}

struct GiveUp(Arc<Progress>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
