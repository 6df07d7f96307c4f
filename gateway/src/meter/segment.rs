use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

/// Where segments are written. Tests put a full disk in its place.
pub trait Disk: Send + Sync {
    /// The segment at `path`, made if there is none. Writing goes on at its end.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Segment>>;
}

/// An append-only file. Callers see to it that one writes at a time.
pub trait Segment: Send + Sync {
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    fn synchronise(&self) -> io::Result<()>;
}

/// The real disk.
pub struct Files;

impl Disk for Files {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Segment>> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        if let Some(dir) = path.parent() {
            // The name must outlive a power cut as well as what the file holds.
            File::open(dir)?.sync_all()?;
        }
        Ok(Arc::new(file))
    }
}

impl Segment for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn synchronise(&self) -> io::Result<()> {
        self.sync_data()
    }
}
