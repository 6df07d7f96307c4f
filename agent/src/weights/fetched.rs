//! The folder of weights that denvd has fetched: what is whole, what is under way, and how much room there is. No name in
//! it stands for anything but the digest of what it holds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use denv_schema::Digest;
use denv_schema::quantity::Bytes;
use nix::sys::statvfs::statvfs;

use super::eviction::{Kept, evict};
use super::remote::RemoteFile;

/// The folder, which no other denvd fetches into while this lives.
pub(super) struct Fetched {
    dir: PathBuf,
    _lock: File,
}

/// Where weights of one digest are, or will be.
#[derive(Clone)]
pub(super) struct Home {
    /// Whole, and verified when it got this name.
    pub(super) whole: PathBuf,
    pub(super) partial: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error(
        "cannot use the folder for fetched weights `{path}`: {source}; let denvd write there, or choose another \
         (`--weights-dir`)"
    )]
    Use { path: PathBuf, source: io::Error },
    #[error(
        "another denvd fetches weights into `{path}`; give each a folder of its own (`--weights-dir`), or fetch them \
         there yourself and name them as `file:`"
    )]
    InUse { path: PathBuf },
    #[error(
        "there is no room for the weights: they need {} more in `{path}`, {} are missing, and nothing fetched earlier \
         can be removed for that; free disk space, or choose a larger disk (`--weights-dir`)",
        Bytes(*needed), Bytes(*missing)
    )]
    NoRoom { path: PathBuf, needed: u64, missing: u64 },
}

/// In the partial folder: which version of the source its files are of. Hidden, so it is none of the weights.
const VERSION: &str = ".version";
const PARTIAL: &str = ".partial";
/// Left free: denvd's own records may be on the same disk.
const SPARE_BYTES: u64 = 1 << 30;

impl Fetched {
    pub(super) fn claim(dir: PathBuf) -> Result<Self, FolderError> {
        let at = |source| FolderError::Use { path: dir.clone(), source };
        fs::create_dir_all(&dir).map_err(at)?;
        let lock = File::create(dir.join("lock")).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => Ok(Fetched { dir, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(FolderError::InUse { path: dir }),
            Err(fs::TryLockError::Error(source)) => Err(at(source)),
        }
    }

    pub(super) fn home(&self, digest: Digest) -> Home {
        let name = digest.to_string().replace(':', "-");
        Home { whole: self.dir.join(&name), partial: self.dir.join(format!("{name}{PARTIAL}")) }
    }

    /// Makes room for what is still to come of `files`, by what nobody uses; as long as it is not known what is used, by
    /// nothing.
    pub(super) fn make_room(
        &self,
        home: &Home,
        files: &[RemoteFile],
        in_use: Option<&BTreeSet<Digest>>,
    ) -> Result<(), FolderError> {
        let at = |source| FolderError::Use { path: self.dir.clone(), source };
        let there =
            |file: &RemoteFile| fs::metadata(home.partial.join(&file.name)).map_or(0, |meta| meta.len());
        let needed: u64 = files.iter().map(|file| file.bytes.unwrap_or(0).saturating_sub(there(file))).sum();
        let disk = statvfs(&self.dir).map_err(|error| at(error.into()))?;
        let free = (disk.blocks_available() * disk.fragment_size()).saturating_sub(SPARE_BYTES);
        let missing = needed.saturating_sub(free);
        if missing == 0 {
            return Ok(());
        }
        if self.free(missing, in_use)? {
            return Ok(());
        }
        Err(FolderError::NoRoom { path: self.dir.clone(), needed, missing })
    }

    /// Frees so many bytes, or none and says so.
    pub(super) fn free(&self, missing: u64, in_use: Option<&BTreeSet<Digest>>) -> Result<bool, FolderError> {
        let kept = self.kept().map_err(|source| FolderError::Use { path: self.dir.clone(), source })?;
        let Some(evicted) = in_use.and_then(|in_use| evict(&kept, in_use, missing)) else { return Ok(false) };
        for digest in evicted {
            tracing::info!(%digest, "removing fetched weights that nothing uses, to make room");
            self.home(digest).remove_all()?;
        }
        Ok(true)
    }

    fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().replacen('-', ":", 1);
            let Ok(digest) = name.trim_end_matches(PARTIAL).parse() else { continue };
            let used = entry.metadata()?.modified()?;
            kept.push(Kept { digest, bytes: bytes_below(&entry.path())?, used });
        }
        Ok(kept)
    }
}

impl Home {
    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_dir()
    }

    /// What an engine is given: the folder, or the one file in it that was meant.
    pub(super) fn path(&self, inside: Option<String>) -> PathBuf {
        inside.map_or_else(|| self.whole.clone(), |name| self.whole.join(name))
    }

    /// It is used now.
    pub(super) fn touch(&self) {
        // It only decides what leaves first.
        let _ = File::open(&self.whole).and_then(|dir| dir.set_modified(SystemTime::now()));
    }

    /// Begins to fetch this version: what there is of another is dropped. Says whether there is something to go on with.
    pub(super) fn begin(&self, version: Digest) -> Result<bool, FolderError> {
        let at = |source| FolderError::Use { path: self.partial.clone(), source };
        let mark = self.partial.join(VERSION);
        if fs::read_to_string(&mark).is_ok_and(|text| text == version.to_string()) {
            return Ok(true);
        }
        remove(&self.partial).map_err(at)?;
        fs::create_dir_all(&self.partial).map_err(at)?;
        fs::write(&mark, version.to_string()).map_err(at)?;
        Ok(false)
    }

    /// What was fetched has been verified.
    pub(super) fn complete(&self) -> Result<(), FolderError> {
        let at = |source| FolderError::Use { path: self.partial.clone(), source };
        fs::remove_file(self.partial.join(VERSION)).map_err(at)?;
        sync_folders(&self.partial).map_err(at)?;
        fs::rename(&self.partial, &self.whole).map_err(at)?;
        let above = self.whole.parent().expect("it is below the folder of fetched weights");
        File::open(above).and_then(|above| above.sync_all()).map_err(at)
    }

    pub(super) fn remove_all(&self) -> Result<(), FolderError> {
        for path in [&self.whole, &self.partial] {
            remove(path).map_err(|source| FolderError::Use { path: path.clone(), source })?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// So that names are on the disk before the whole has its own.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

fn bytes_below(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let (entry, meta) = entry.and_then(|entry| entry.metadata().map(|meta| (entry, meta)))?;
        bytes += if meta.is_dir() { bytes_below(&entry.path())? } else { meta.len() };
    }
    Ok(bytes)
}
