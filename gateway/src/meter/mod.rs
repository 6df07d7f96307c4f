//! The durable record of what was served, from which customers are billed.
//!
//! It owns the ledger on disk and the gate that closes when nothing can be written to it: what can't be metered is
//! not served. It refuses to know prices, and how records reach the control plane.

mod ledger;
mod reader;
mod segment;

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use denv_schema::wire::UsageRecord;
use tokio::sync::Notify;

use ledger::Ledger;

pub(crate) use ledger::LedgerError;
pub(crate) use reader::{MAX_BATCH, Reader};
pub use segment::{Disk, Files, Segment};

/// The one ledger that is written to.
pub(crate) struct Meter {
    state: Mutex<State>,
    writable: AtomicBool,
    /// Something is to be synchronised, or written again.
    work: Notify,
    /// There are new records to send.
    recorded: Notify,
}

struct State {
    ledger: Ledger,
    /// Of answers that were under way when writing began to fail. They are bounded by the requests in flight
    /// then, for new ones are refused.
    backlog: Vec<UsageRecord>,
}

#[derive(Debug, thiserror::Error)]
#[error("the usage ledger cannot be written")]
pub(crate) struct Unwritable(#[source] std::io::Error);

/// What a power cut may cost. A crash of the process alone costs nothing.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

impl Meter {
    /// Opens the newest ledger in `dir`, or begins one.
    pub(crate) fn open(dir: &Path, disk: Arc<dyn Disk>) -> Result<Self, LedgerError> {
        let ledger = Ledger::open(dir, disk)?;
        Ok(Meter {
            state: Mutex::new(State { ledger, backlog: Vec::new() }),
            writable: AtomicBool::new(true),
            work: Notify::new(),
            recorded: Notify::new(),
        })
    }

    /// Whether requests may be served.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Acquire)
    }

    /// Writes a record of what is about to be served. Without it, it must not be.
    pub(crate) fn record(&self, record: &UsageRecord) -> Result<(), Unwritable> {
        let written = self.lock().ledger.append(record);
        match written {
            Ok(first_unsynchronised) => {
                if first_unsynchronised {
                    self.work.notify_one();
                }
                self.recorded.notify_one();
                Ok(())
            }
            Err(error) => {
                self.close_gate(&error);
                Err(Unwritable(error))
            }
        }
    }

    /// Writes a record of what was served already, now or as soon as can be.
    pub(crate) fn record_served(&self, record: UsageRecord) {
        if self.record(&record).is_err() {
            self.lock().backlog.push(record);
        }
    }

    /// How many records the control plane has not taken.
    pub(crate) fn pending(&self) -> u64 {
        let state = self.lock();
        state.ledger.pending() + state.backlog.len() as u64
    }

    /// Waits for records that were not there when it was last called.
    pub(crate) async fn recorded(&self) {
        self.recorded.notified().await;
    }

    /// The control plane has all records of `ledger` below `next`.
    pub(crate) fn taken(&self, ledger: &str, next: u64) {
        let taken = self.lock().ledger.taken(ledger, next);
        match taken {
            Ok(true) => self.work.notify_one(),
            Ok(false) => {}
            Err(error) => self.close_gate(&error),
        }
    }

    /// Reads records from the first that was not taken.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        Reader::new(self.clone())
    }

    /// Synchronises what was written, and opens the gate again when writing works again; for ever.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            if self.is_writable() {
                self.work.notified().await;
            }
            tokio::time::sleep(SYNC_INTERVAL).await;
            let meter = self.clone();
            // The disk may take long, and no request is to wait for it.
            let _ = tokio::task::spawn_blocking(move || meter.synchronise()).await;
        }
    }

    /// Writes what is owed and makes it safe from a power cut.
    pub(crate) fn synchronise(&self) {
        if !self.is_writable() {
            match self.lock().catch_up() {
                Ok(()) => {
                    tracing::info!("the usage ledger can be written again; serving");
                    self.writable.store(true, Ordering::Release);
                }
                Err(error) => {
                    let error = &error as &dyn Error;
                    tracing::debug!(error, "the usage ledger still cannot be written");
                }
            }
        }
        let unsynchronised = self.lock().ledger.take_unsynchronised();
        for segment in unsynchronised {
            if let Err(error) = segment.synchronise() {
                let error = &error as &dyn Error;
                tracing::error!(error, "the usage ledger cannot be synchronised: check the disk");
            }
        }
    }

    fn close_gate(&self, error: &std::io::Error) {
        if self.writable.swap(false, Ordering::AcqRel) {
            let error = error as &dyn Error;
            tracing::error!(error, "the usage ledger cannot be written: refusing requests until it can");
        }
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn catch_up(&mut self) -> std::io::Result<()> {
        self.ledger.probe()?;
        while let Some(record) = self.backlog.last() {
            self.ledger.append(record)?;
            self.backlog.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
