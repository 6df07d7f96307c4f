//! Small writes that many peers make at the same time, gathered: all that wait while one transaction is written are the
//! next. A disk that takes a while to keep a thing keeps a thousand in the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use denv_schema::Name;
use denv_schema::wire::CommandResult;
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use super::events::insert_events;
use super::records::write_answer;
use super::{Event, Store, StoreError};

/// What may be written together with what others write.
pub(super) enum Small {
    Note(Event),
    Answer { host: Name, result: CommandResult },
}

struct Waiting {
    tenant: String,
    small: Small,
    written: oneshot::Sender<Result<(), StoreError>>,
}

/// What waits to be written, of all tenants.
#[derive(Clone, Default)]
pub(super) struct Gathered(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// Somebody writes, and will write what waits.
    writing: bool,
}

impl Gathered {
    /// Whether nobody writes yet.
    fn add(&self, waiting: Waiting) -> bool {
        let mut state = self.lock();
        state.waiting.push(waiting);
        !std::mem::replace(&mut state.writing, true)
    }

    /// What waits now. With nothing there, the writing has ended.
    fn take(&self) -> Vec<Waiting> {
        let mut state = self.lock();
        state.writing = !state.waiting.is_empty();
        std::mem::take(&mut state.waiting)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Writes it, together with whatever else is small and waits. It is on disk when this returns.
    pub(super) async fn write_small(&self, small: Small) -> Result<(), StoreError> {
        let (written, done) = oneshot::channel();
        if self.gathered.add(Waiting { tenant: self.tenant.clone(), small, written }) {
            // A task of its own: who asked may be gone before the end, and others wait for the same writing.
            tokio::spawn(self.clone().write_gathered());
        }
        done.await.unwrap_or(Err(StoreError::Ending))
    }

    async fn write_gathered(self) {
        loop {
            let waiting = self.gathered.take();
            if waiting.is_empty() {
                return;
            }
            if self.write_together(&waiting).await.is_ok() {
                waiting.into_iter().for_each(|it| drop(it.written.send(Ok(()))));
            } else {
                // One of them may be what can't be written: each hears its own.
                for it in waiting {
                    let done = self.write_together(std::slice::from_ref(&it)).await;
                    drop(it.written.send(done));
                }
            }
        }
    }

    async fn write_together(&self, waiting: &[Waiting]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = write(&mut tx.0, waiting).await;
        tx.finish(done).await
    }
}

async fn write(tx: &mut SqliteConnection, waiting: &[Waiting]) -> Result<(), StoreError> {
    let mut events = Vec::new();
    for Waiting { tenant, small, .. } in waiting {
        match small {
            Small::Note(event) => events.push((tenant.as_str(), event)),
            Small::Answer { host, result } => write_answer(tx, tenant, host, result).await?,
        }
    }
    insert_events(tx, events).await
}
