//! What must survive: SQLite, one transaction a decision, every row keyed by tenant, every write of the leader fenced
//! by its term.
//!
//! It refuses to know what the records mean.

mod events;
mod gathered;
mod link;
mod parity;
mod records;
mod revisions;
mod usage;

use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use denv_schema::Name;
use denv_schema::wire::Term;
use jiff::Timestamp;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Row as _, Sqlite, SqlitePool};

use gathered::Gathered;

pub use events::{Event, EventQuery};
pub use link::TokenGrant;
pub use records::Commit;
pub use revisions::{Revision, Verdict};

#[derive(Clone)]
pub struct Store {
    /// SQLite has one writer at a time: one connection queues writes fairly, where several would wait on locks.
    write: SqlitePool,
    read: SqlitePool,
    gathered: Gathered,
    tenant: String,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot open the store `{path}`")]
    Open { path: String, source: sqlx::Error },
    #[error("cannot bring the store up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("cannot read or write the store")]
    Database(#[from] sqlx::Error),
    #[error("a record in the store cannot be read; it was written by a newer denv, or is damaged")]
    Record(#[from] serde_json::Error),
    #[error("it was not written: the control plane is ending")]
    Ending,
    #[error("another reconciler leads since term {theirs}; this one, of term {ours}, stops")]
    Deposed { ours: Term, theirs: Term },
}

impl Store {
    /// Opens or makes the store in a file.
    pub async fn open(path: &Path, tenant: &Name) -> Result<Self, StoreError> {
        let shown = path.display().to_string();
        let opened = |source| StoreError::Open { path: shown.clone(), source };
        let options = SqliteConnectOptions::from_str(&format!("sqlite://{shown}"))
            .map_err(opened)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(10));
        let write = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options.clone())
            .await
            .map_err(opened)?;
        migrator().run(&write).await.map_err(StoreError::Migrate)?;
        let read = SqlitePoolOptions::new().max_connections(2).connect_lazy_with(options);
        Ok(Store { write, read, gathered: Gathered::default(), tenant: tenant.to_string() })
    }

    /// The same store, for another tenant: nothing of one is seen through the other's.
    pub fn of_tenant(&self, tenant: &Name) -> Store {
        Store { tenant: tenant.to_string(), ..self.clone() }
    }

    /// Takes the lead: a term higher than any before it. Those of lower terms can't write any more. It is not below the
    /// clock's seconds, so that hosts follow also where the store that knew the terms before is lost.
    pub async fn lead(&self, now: Timestamp) -> Result<Term, StoreError> {
        let row = sqlx::query(
            "INSERT INTO leader (tenant, term) VALUES (?, ?)
             ON CONFLICT (tenant) DO UPDATE SET term = MAX(term + 1, excluded.term) RETURNING term",
        )
        .bind(&self.tenant)
        .bind(now.as_second().max(1))
        .fetch_one(&self.write)
        .await?;
        Ok(from_i64(row.try_get(0)?))
    }
}

/// A transaction on the one writing connection.
struct Tx(PoolConnection<Sqlite>);

impl Store {
    /// Begins one. sqlx's own transactions lose count when SQLite ends one by itself, as it does on a full disk, and
    /// refuse every later one; so whatever the last left behind is ended here first.
    async fn begin(&self) -> Result<Tx, StoreError> {
        let mut connection = self.write.acquire().await?;
        // With none open this is an error, and as good.
        let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        Ok(Tx(connection))
    }
}

impl Tx {
    /// Commits what went well, and undoes what did not.
    async fn finish<T>(mut self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = sqlx::query(end).execute(&mut *self.0).await;
        let value = done?;
        ended?;
        Ok(value)
    }
}

fn migrator() -> Migrator {
    const MIGRATIONS: [(&str, &str); 4] = [
        ("records", include_str!("../../migrations/0001_records.sql")),
        ("awaiting", include_str!("../../migrations/0002_awaiting.sql")),
        ("host-faults", include_str!("../../migrations/0003_host_faults.sql")),
        ("parity", include_str!("../../migrations/0004_parity.sql")),
    ];
    let migration = |(number, (name, sql)): (i64, &(&'static str, &str))| {
        let sql = sqlx::SqlSafeStr::into_sql_str(sqlx::AssertSqlSafe((*sql).to_owned()));
        Migration::new(number, (*name).into(), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations((1..).zip(&MIGRATIONS).map(migration).collect())
}

/// SQLite's integers are signed; denv's counters start at 0 and stay far below the limit.
fn to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn from_i64(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests;
