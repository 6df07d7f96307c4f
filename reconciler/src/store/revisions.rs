use denv_schema::Diagnostics;
use denv_schema::api::{DeletionView, RevisionView};
use serde::{Deserialize, Serialize};
use sqlx::{Row as _, SqliteConnection};

use super::events::insert_events;
use super::{Event, Store, StoreError};

/// A revision of a source, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    pub view: RevisionView,
    /// Why it is not in force; empty for an accepted one.
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub diagnostics: Diagnostics,
    /// What it would delete, where that is to be approved.
    #[serde(default)]
    pub deletions: Vec<DeletionView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused,
    /// It deletes much, and waits for a person to approve it.
    Awaiting,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Refused => "refused",
            Verdict::Awaiting => "awaiting",
        }
    }
}

impl Store {
    pub async fn revision(&self, source: &str, verdict: Verdict) -> Result<Option<Revision>, StoreError> {
        let row =
            sqlx::query("SELECT revision FROM revisions WHERE tenant = ? AND source = ? AND verdict = ?");
        let row =
            row.bind(&self.tenant).bind(source).bind(verdict.as_str()).fetch_optional(&self.read).await?;
        row.map(|row| Ok(serde_json::from_str(row.try_get(0)?)?)).transpose()
    }

    /// The sources that have a revision in force.
    pub async fn sources_in_force(&self) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query("SELECT source FROM revisions WHERE tenant = ? AND verdict = 'accepted'");
        let rows = rows.bind(&self.tenant).fetch_all(&self.read).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Forgets a source that is no more, and notes it.
    pub async fn forget_source(&self, source: &str, event: &Event) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let forget = sqlx::query("DELETE FROM revisions WHERE tenant = ? AND source = ?");
        let forgotten = forget.bind(&self.tenant).bind(source).execute(&mut *tx.0).await;
        let mut done = forgotten.map(drop).map_err(StoreError::from);
        if done.is_ok() {
            done = insert_events(&mut tx.0, [(self.tenant.as_str(), event)]).await;
        }
        tx.finish(done).await
    }

    /// Keeps a judged revision and the event that tells of it. Whatever was held back before it is forgotten.
    pub async fn judge(
        &self,
        source: &str,
        verdict: Verdict,
        revision: &Revision,
        event: &Event,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let mut done = self.write_revision(&mut tx.0, source, verdict, revision).await;
        if done.is_ok() {
            done = insert_events(&mut tx.0, [(self.tenant.as_str(), event)]).await;
        }
        tx.finish(done).await
    }

    async fn write_revision(
        &self,
        tx: &mut SqliteConnection,
        source: &str,
        verdict: Verdict,
        revision: &Revision,
    ) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM revisions WHERE tenant = ? AND source = ? AND verdict <> 'accepted'")
            .bind(&self.tenant)
            .bind(source)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "INSERT INTO revisions (tenant, source, verdict, revision) VALUES (?, ?, ?, ?)
             ON CONFLICT (tenant, source, verdict) DO UPDATE SET revision = excluded.revision",
        )
        .bind(&self.tenant)
        .bind(source)
        .bind(verdict.as_str())
        .bind(serde_json::to_string(revision)?)
        .execute(&mut *tx)
        .await?;
        Ok(())
    }
}
