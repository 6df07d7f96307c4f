use denv_schema::api::{EventView, Level};
use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};

use super::gathered::Small;
use super::{Store, StoreError};

/// Something that happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub subject: String,
    pub level: Level,
    pub message: String,
}

#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only those with a larger id.
    pub after: i64,
    /// Only those whose subject ends with this.
    pub subject: Option<String>,
    /// At most so many.
    pub limit: u32,
    /// Which of them, where there are more: those that come first after `after`, or the newest.
    pub first: bool,
}

/// Events kept; older ones are dropped.
const KEPT: i64 = 100_000;
/// They are dropped each time that so many have come.
const DROPPED_EVERY: i64 = 1_000;

impl Store {
    pub async fn note(&self, event: &Event) -> Result<(), StoreError> {
        self.write_small(Small::Note(event.clone())).await
    }

    /// Events, the oldest first.
    pub async fn events(&self, query: &EventQuery) -> Result<Vec<EventView>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, at, subject, level, message FROM (
                 SELECT * FROM events WHERE tenant = ?1 AND id > ?2
                 AND (?3 IS NULL OR subject = ?3 OR subject LIKE '% ' || ?3 OR subject LIKE '% ' || replace(?3, '/', '.') || '.%')
                 ORDER BY CASE WHEN ?5 THEN id ELSE -id END LIMIT ?4
             ) ORDER BY id",
        );
        let rows = rows.bind(&self.tenant).bind(query.after).bind(&query.subject).bind(query.limit);
        let rows = rows.bind(query.first);
        let view = |row: &sqlx::sqlite::SqliteRow| {
            Ok(EventView {
                id: row.try_get(0)?,
                at: Timestamp::from_millisecond(row.try_get(1)?).unwrap_or(Timestamp::UNIX_EPOCH),
                subject: row.try_get(2)?,
                level: match row.try_get(3)? {
                    "warning" => Level::Warning,
                    _ => Level::Normal,
                },
                message: row.try_get(4)?,
            })
        };
        rows.fetch_all(&self.read).await?.iter().map(view).collect()
    }
}

/// Writes events in their order, all by one statement: one at a time is most of the work where many peers come at once.
pub(super) async fn insert_events<'e>(
    tx: &mut SqliteConnection,
    events: impl IntoIterator<Item = (&'e str, &'e Event)>,
) -> Result<(), StoreError> {
    let row = |(tenant, event): (&'e str, &'e Event)| {
        let level = match event.level {
            Level::Normal => "normal",
            Level::Warning => "warning",
        };
        (tenant, event.at.as_millisecond(), &event.subject, level, &event.message)
    };
    let rows: Vec<_> = events.into_iter().map(row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let inserted = sqlx::query(
        "INSERT INTO events (tenant, at, subject, level, message)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?) ORDER BY key",
    );
    let inserted = inserted.bind(serde_json::to_string(&rows)?).execute(&mut *tx).await?;
    let id = inserted.last_insert_rowid();
    if rows.len() as i64 > id % DROPPED_EVERY {
        sqlx::query("DELETE FROM events WHERE id <= ?").bind(id - KEPT).execute(&mut *tx).await?;
    }
    Ok(())
}
