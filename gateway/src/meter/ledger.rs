use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use denv_schema::wire::UsageRecord;
use serde::{Deserialize, Serialize};

use super::segment::{Disk, Segment};

/// Numbered records in files of a folder that bears the ledger's name: `FIRST.jsonl`, one line a record. Lines are
/// appended and never changed; a file is removed when the control plane has all of its records.
pub(super) struct Ledger {
    dir: PathBuf,
    pub(super) id: String,
    disk: Arc<dyn Disk>,
    /// By their first number; the last is the one that is written.
    segments: VecDeque<SegmentFile>,
    active: Arc<dyn Segment>,
    pub(super) active_length: u64,
    /// The number of the next record.
    pub(super) next: u64,
    /// The control plane has every record below.
    pub(super) acknowledged: u64,
    /// A write failed half-way, and what it left could not be cut off.
    torn: bool,
    dirty: bool,
    acknowledged_dirty: bool,
    unsynchronised: Vec<Arc<dyn Segment>>,
    line: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("cannot read or write the usage ledger `{path}`; make it writable for this user, or free space")]
    Io { path: PathBuf, source: io::Error },
}

#[derive(Serialize)]
struct LineRef<'a> {
    seq: u64,
    record: &'a UsageRecord,
}

#[derive(Deserialize)]
pub(super) struct Line {
    pub(super) seq: u64,
    pub(super) record: UsageRecord,
}

/// Small enough that a taken one is soon removed, large enough that there are few.
const SEGMENT_BYTES: u64 = 8 << 20;
const ACKNOWLEDGED_FILE: &str = "acknowledged";
/// More than a record, so that a disk that takes it takes records.
const PROBE: [u8; 4096] = [b' '; 4096];

impl Ledger {
    pub(super) fn open(parent: &Path, disk: Arc<dyn Disk>) -> Result<Self, LedgerError> {
        fs::create_dir_all(parent).map_err(at(parent))?;
        let mut names: Vec<String> = fs::read_dir(parent)
            .map_err(at(parent))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| uuid::Uuid::try_parse(name).is_ok())
            .collect();
        names.sort();
        if let Some(id) = names.pop() {
            let dir = parent.join(&id);
            match read_back(&dir)? {
                Some(found) => return Ledger::resume(dir, id, disk, found),
                None => set_aside(&dir)?,
            }
        }
        Ledger::begin(parent, disk)
    }

    /// A new ledger under a new name. Names are ordered by time, so it is the newest.
    fn begin(parent: &Path, disk: Arc<dyn Disk>) -> Result<Self, LedgerError> {
        let id = uuid::Uuid::now_v7().to_string();
        let dir = parent.join(&id);
        fs::create_dir(&dir).map_err(at(&dir))?;
        let segment = SegmentFile { first: 0, path: segment_path(&dir, 0) };
        let found = Found { segments: VecDeque::from([segment]), next: 0, acknowledged: 0, active_length: 0 };
        Ledger::resume(dir, id, disk, found)
    }

    fn resume(dir: PathBuf, id: String, disk: Arc<dyn Disk>, found: Found) -> Result<Self, LedgerError> {
        let last = &found.segments.back().expect("a ledger has a segment").path;
        let active = disk.open(last).map_err(at(last))?;
        active.truncate(found.active_length).map_err(at(last))?;
        Ok(Ledger {
            dir,
            id,
            disk,
            segments: found.segments,
            active,
            active_length: found.active_length,
            next: found.next,
            acknowledged: found.acknowledged,
            torn: false,
            dirty: false,
            acknowledged_dirty: false,
            unsynchronised: Vec::new(),
            line: Vec::new(),
        })
    }

    /// Writes a record. Whether it is the first since the last synchronisation.
    pub(super) fn append(&mut self, record: &UsageRecord) -> io::Result<bool> {
        self.mend()?;
        if self.active_length >= SEGMENT_BYTES {
            self.rotate(self.next)?;
        }
        self.line.clear();
        serde_json::to_writer(&mut self.line, &LineRef { seq: self.next, record })?;
        self.line.push(b'\n');
        if let Err(error) = self.active.append(&self.line) {
            self.torn = true;
            // If this fails too, it is tried again before the next record.
            let _ = self.mend();
            return Err(error);
        }
        self.active_length += self.line.len() as u64;
        self.next += 1;
        Ok(!std::mem::replace(&mut self.dirty, true))
    }

    /// Fails unless a record could be written.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        self.mend()?;
        self.torn = true;
        let written = self.active.append(&PROBE);
        self.mend()?;
        written
    }

    /// Takes note of what the control plane has, and removes files that hold nothing else. Whether that changed.
    pub(super) fn taken(&mut self, ledger: &str, next: u64) -> io::Result<bool> {
        if ledger != self.id || next <= self.acknowledged {
            return Ok(false);
        }
        if next > self.next {
            // A power cut took records that had been sent. Their numbers are used, so they are not used again.
            tracing::warn!(
                lost = next - self.next,
                "the usage ledger lost records that the control plane has"
            );
            self.rotate(next)?;
            self.next = next;
        }
        self.acknowledged = next;
        self.acknowledged_dirty = true;
        while self.segments.get(1).is_some_and(|second| second.first <= next) {
            if let Some(segment) = self.segments.pop_front() {
                // One that stays behind is taken note of again at the next start.
                let _ = fs::remove_file(&segment.path);
            }
        }
        Ok(true)
    }

    pub(super) fn pending(&self) -> u64 {
        self.next - self.acknowledged
    }

    /// The segments, for reading.
    pub(super) fn segments(&self) -> impl DoubleEndedIterator<Item = &SegmentFile> {
        self.segments.iter()
    }

    /// What must be synchronised for everything written so far to be safe.
    pub(super) fn take_unsynchronised(&mut self) -> Vec<Arc<dyn Segment>> {
        if std::mem::take(&mut self.acknowledged_dirty) {
            // Without it, records are sent again after a restart, and known by their numbers.
            let _ = self.write_acknowledged();
        }
        let mut segments = std::mem::take(&mut self.unsynchronised);
        if std::mem::take(&mut self.dirty) {
            segments.push(self.active.clone());
        }
        segments
    }

    fn write_acknowledged(&self) -> io::Result<()> {
        let partial = self.dir.join("acknowledged.partial");
        fs::File::create(&partial)?.write_all(self.acknowledged.to_string().as_bytes())?;
        fs::rename(partial, self.dir.join(ACKNOWLEDGED_FILE))
    }

    /// Cuts off what a failed write left.
    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.active.truncate(self.active_length)?;
            self.torn = false;
        }
        Ok(())
    }

    fn rotate(&mut self, first: u64) -> io::Result<()> {
        self.mend()?;
        let path = segment_path(&self.dir, first);
        let segment = self.disk.open(&path)?;
        self.unsynchronised.push(std::mem::replace(&mut self.active, segment));
        self.active_length = 0;
        if self.segments.back().is_none_or(|last| last.first != first) {
            self.segments.push_back(SegmentFile { first, path });
        }
        Ok(())
    }
}

/// What a folder holds.
struct Found {
    segments: VecDeque<SegmentFile>,
    next: u64,
    acknowledged: u64,
    /// Of the last segment: how much of it is whole records.
    active_length: u64,
}

/// Reads a ledger back. None: it is not one, or is damaged in the middle.
fn read_back(dir: &Path) -> Result<Option<Found>, LedgerError> {
    let mut segments: Vec<SegmentFile> = fs::read_dir(dir)
        .map_err(at(dir))?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let first = path.file_name()?.to_str()?.strip_suffix(".jsonl")?.parse().ok()?;
            Some(SegmentFile { first, path })
        })
        .collect();
    segments.sort_by_key(|segment| segment.first);
    let Some(oldest) = segments.first().map(|segment| segment.first) else { return Ok(None) };
    let (mut next, mut active_length) = (oldest, 0);
    for (index, segment) in segments.iter().enumerate() {
        if segment.first < next {
            return Ok(None);
        }
        let last = index + 1 == segments.len();
        let checked = check_segment(segment).map_err(at(&segment.path))?;
        match checked.end {
            // What a power cut tore stands at the very end.
            End::Torn if !last => return Ok(None),
            End::Damaged => return Ok(None),
            End::Whole | End::Torn => (next, active_length) = (checked.next, checked.length),
        }
    }
    let acknowledged = fs::read_to_string(dir.join(ACKNOWLEDGED_FILE)).ok();
    let acknowledged = acknowledged.and_then(|text| text.trim().parse().ok()).unwrap_or(oldest);
    let acknowledged: u64 = if acknowledged > next { oldest } else { acknowledged };
    Ok(Some(Found { segments: segments.into(), next, acknowledged, active_length }))
}

struct CheckedSegment {
    /// The number after the last whole record.
    next: u64,
    /// How far whole records reach.
    length: u64,
    end: End,
}

enum End {
    Whole,
    /// Something that is no record stands at the end.
    Torn,
    /// Something that is no record stands between records.
    Damaged,
}

fn check_segment(segment: &SegmentFile) -> io::Result<CheckedSegment> {
    let mut file = BufReader::new(fs::File::open(&segment.path)?);
    let mut checked = CheckedSegment { next: segment.first, length: 0, end: End::Whole };
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(checked);
        }
        let parsed = serde_json::from_slice::<Line>(&line).ok().filter(|_| line.ends_with(b"\n"));
        match (parsed, &checked.end) {
            (Some(parsed), End::Whole) if parsed.seq == checked.next => {
                checked.next += 1;
                checked.length += read as u64;
            }
            (Some(_), _) => return Ok(CheckedSegment { end: End::Damaged, ..checked }),
            (None, _) => checked.end = End::Torn,
        }
    }
}

fn set_aside(dir: &Path) -> Result<(), LedgerError> {
    if fs::remove_dir(dir).is_ok() {
        // It was empty: a crash came between making it and its first file.
        return Ok(());
    }
    let aside = dir.with_extension("damaged");
    fs::rename(dir, &aside).map_err(at(dir))?;
    tracing::error!(
        path = %aside.display(),
        "the usage ledger is damaged: it is kept there, its records that were not sent need a person, and a new one is begun"
    );
    Ok(())
}

fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:020}.jsonl"))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LedgerError {
    let path = path.to_owned();
    move |source| LedgerError::Io { path, source }
}
