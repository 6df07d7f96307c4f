use denv_schema::Diagnostics;
use denv_schema::api::RevisionView;
use serde::{Deserialize, Serialize};
use sqlx::{Row as _, SqliteConnection};

use super::{Store, StoreError};

/// A revision of a source, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    pub view: RevisionView,
    /// Why it was refused; empty for an accepted one.
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub diagnostics: Diagnostics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    Refused,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Accepted => "accepted",
            Verdict::Refused => "refused",
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

    /// Keeps a judged revision. Accepting one forgets the refused one before it.
    pub async fn judge(&self, source: &str, verdict: Verdict, revision: &Revision) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = self.write_revision(&mut tx.0, source, verdict, revision).await;
        tx.finish(done).await
    }

    async fn write_revision(
        &self,
        tx: &mut SqliteConnection,
        source: &str,
        verdict: Verdict,
        revision: &Revision,
    ) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM revisions WHERE tenant = ? AND source = ? AND verdict = 'refused'")
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
