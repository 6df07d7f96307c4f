use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use denv_schema::wire::UsageBatch;

use super::Meter;
use super::ledger::{Line, SegmentFile};

/// Reads a ledger's records in order, from disk, so that a long absence of the control plane costs no memory.
pub(crate) struct Reader {
    meter: Arc<Meter>,
    next: u64,
    place: Option<Place>,
}

/// The beginning of a line in a segment.
struct Place {
    first: u64,
    file: File,
    offset: u64,
    seq: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read the usage ledger back")]
pub(crate) struct ReadError(#[source] io::Error);

/// The most records in a batch.
pub(crate) const MAX_BATCH: usize = 1000;

impl Reader {
    pub(super) fn new(meter: Arc<Meter>) -> Self {
        let next = meter.lock().ledger.acknowledged;
        Reader { meter, next, place: None }
    }

    /// The number of the record that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The number below which the control plane has everything.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.meter.lock().ledger.acknowledged
    }

    /// The next records, or none if there are no more. It reads files.
    pub(crate) fn read(&mut self) -> Result<Option<UsageBatch>, ReadError> {
        let (ledger, segments, end, end_length) = {
            let state = self.meter.lock();
            let ledger = &state.ledger;
            // What was taken meanwhile need not be sent, and may not be there.
            self.next = self.next.max(ledger.acknowledged);
            if self.next >= ledger.next {
                return Ok(None);
            }
            let segments: Vec<SegmentFile> = ledger.segments().cloned().collect();
            (ledger.id.clone(), segments, ledger.next, ledger.active_length)
        };
        let mut batch = UsageBatch { ledger, first: self.next, records: Vec::new() };
        while batch.records.len() < MAX_BATCH && self.next < end {
            let last = segments.iter().rposition(|segment| segment.first <= self.next);
            let Some(index) = last else {
                return Err(ReadError(io::Error::other("its first records are missing")));
            };
            let limit = (index + 1 == segments.len()).then_some(end_length);
            let before = self.next;
            self.read_segment(&segments[index], limit, &mut batch).map_err(ReadError)?;
            if self.next == before {
                // The segment ends before its successor begins: numbers that a power cut took. A batch has no gaps.
                match segments.get(index + 1) {
                    Some(successor) if batch.records.is_empty() => {
                        self.next = successor.first;
                        batch.first = self.next;
                    }
                    Some(_) => break,
                    None => return Err(ReadError(io::ErrorKind::UnexpectedEof.into())),
                }
            }
        }
        Ok((!batch.records.is_empty()).then_some(batch))
    }

    fn read_segment(
        &mut self,
        segment: &SegmentFile,
        limit: Option<u64>,
        batch: &mut UsageBatch,
    ) -> io::Result<()> {
        let place = match self.place.take() {
            Some(place) if place.first == segment.first && place.seq <= self.next => place,
            _ => Place {
                first: segment.first,
                file: File::open(&segment.path)?,
                offset: 0,
                seq: segment.first,
            },
        };
        let Place { first, mut file, mut offset, mut seq } = place;
        file.seek(SeekFrom::Start(offset))?;
        // Behind what is known to be written whole, a record may be half there.
        let bytes = limit.map_or(u64::MAX, |limit| limit.saturating_sub(offset));
        let mut lines = BufReader::with_capacity(64 << 10, (&mut file).take(bytes));
        let mut line = Vec::new();
        while batch.records.len() < MAX_BATCH {
            line.clear();
            let read = lines.read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            if seq >= self.next {
                let parsed: Line = serde_json::from_slice(&line)?;
                if parsed.seq != seq {
                    return Err(io::Error::other(format!("record {seq} is missing")));
                }
                batch.records.push(parsed.record);
                self.next = seq + 1;
            }
            seq += 1;
            offset += read as u64;
        }
        drop(lines);
        self.place = Some(Place { first, file, offset, seq });
        Ok(())
    }
}
