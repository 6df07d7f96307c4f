//! Events as they happen, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State as Extracted};
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use denv_schema::api::EventView;
use denv_schema::manifest::Role;
use futures::Stream;
use serde::Deserialize;

use super::person::Person;
use super::{Api, ApiError};
use crate::store::EventQuery;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    after: Option<i64>,
}

/// Not every event comes with a new state (a host that connects twice), so the store is also asked this often.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
const AT_ONCE: u32 = 500;

/// Events after `?after=`, or after the `Last-Event-ID` of a client that comes again, or from now on.
pub(super) async fn watch(
    Extracted(api): Extracted<Arc<Api>>,
    person: Person,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    person.must_somewhere(Role::Viewer)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let after = match last.or(from.after) {
        Some(after) => after,
        None => {
            let newest = api.store.events(&EventQuery { limit: 1, ..EventQuery::default() }).await?;
            newest.last().map_or(0, |event| event.id)
        }
    };
    let cursor = Cursor { changes: api.state.clone(), api, after, ready: VecDeque::new() };
    let events = futures::stream::unfold(cursor, |mut cursor| async {
        let event = cursor.next().await?;
        let message = Event::default().id(event.id.to_string()).event("event");
        Some((Ok(message.json_data(&event).unwrap_or_default()), cursor))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))))
}

struct Cursor {
    api: Arc<Api>,
    changes: tokio::sync::watch::Receiver<Arc<crate::orchestrator::State>>,
    after: i64,
    ready: VecDeque<EventView>,
}

impl Cursor {
    async fn next(&mut self) -> Option<EventView> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.id;
                return Some(event);
            }
            let query = EventQuery { after: self.after, subject: None, limit: AT_ONCE, first: true };
            // A store that fails for a moment ends no stream.
            self.ready = self.api.store.events(&query).await.unwrap_or_default().into();
            if self.ready.is_empty() {
                let changed = tokio::time::timeout(ASK_INTERVAL, self.changes.changed()).await;
                if matches!(changed, Ok(Err(_))) {
                    return None;
                }
            }
        }
    }
}
