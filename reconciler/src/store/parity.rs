use std::collections::BTreeMap;

use denv_gates::parity::{Report, When};
use denv_schema::wire::CaseAnswer;
use denv_schema::{Name, StageId};
use sqlx::Row as _;

use super::{Store, StoreError, to_i64};

/// Deployments of a stage of which reports are kept; older ones are dropped.
const KEPT: u64 = 50;

impl Store {
    /// Keeps a report, and drops those that are too old.
    pub async fn keep_report(&self, report: &Report) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = async {
            sqlx::query(
                "INSERT INTO parity_reports (tenant, stage, deployment, part, attempt, report) VALUES (?, ?, ?, ?, ?, ?)
                 ON CONFLICT (tenant, stage, deployment, part, attempt) DO UPDATE SET report = excluded.report",
            )
            .bind(&self.tenant)
            .bind(report.stage.to_string())
            .bind(to_i64(report.deployment))
            .bind(report.when.to_string())
            .bind(report.attempt)
            .bind(serde_json::to_string(report)?)
            .execute(&mut *tx.0)
            .await?;
            for table in ["parity_reports", "parity_answers"] {
                let old = format!("DELETE FROM {table} WHERE tenant = ? AND stage = ? AND deployment <= ?");
                sqlx::query(sqlx::AssertSqlSafe(old))
                    .bind(&self.tenant)
                    .bind(report.stage.to_string())
                    .bind(to_i64(report.deployment.saturating_sub(KEPT)))
                    .execute(&mut *tx.0)
                    .await?;
            }
            Ok(())
        };
        let done = done.await;
        tx.finish(done).await
    }

    /// The newest report of a stage that is of this deployment and time, where they are said.
    pub async fn report(
        &self,
        stage: &StageId,
        deployment: Option<u64>,
        when: Option<When>,
    ) -> Result<Option<Report>, StoreError> {
        // The gate after follows on the one before, and the next attempt on the last.
        let row = sqlx::query(
            "SELECT report FROM parity_reports WHERE tenant = ?1 AND stage = ?2
             AND (?3 IS NULL OR deployment = ?3) AND (?4 IS NULL OR part = ?4)
             ORDER BY deployment DESC, part = 'after' DESC, attempt DESC LIMIT 1",
        )
        .bind(&self.tenant)
        .bind(stage.to_string())
        .bind(deployment.map(to_i64))
        .bind(when.map(|when| when.to_string()))
        .fetch_optional(&self.read)
        .await?;
        row.map(|row| Ok(serde_json::from_str(row.try_get(0)?)?)).transpose()
    }

    /// Keeps what a deployment's reference answered, in place of what it answered before.
    pub async fn keep_answers(
        &self,
        stage: &StageId,
        deployment: u64,
        answers: &BTreeMap<Name, CaseAnswer>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = async {
            sqlx::query(
                "INSERT INTO parity_answers (tenant, stage, deployment, answers) VALUES (?, ?, ?, ?)
                 ON CONFLICT (tenant, stage, deployment) DO UPDATE SET answers = excluded.answers",
            )
            .bind(&self.tenant)
            .bind(stage.to_string())
            .bind(to_i64(deployment))
            .bind(serde_json::to_string(answers)?)
            .execute(&mut *tx.0)
            .await?;
            Ok(())
        };
        let done = done.await;
        tx.finish(done).await
    }

    /// What a deployment's reference answered. Nothing, if it had none to ask.
    pub async fn answers(
        &self,
        stage: &StageId,
        deployment: u64,
    ) -> Result<Option<BTreeMap<Name, CaseAnswer>>, StoreError> {
        let row = sqlx::query(
            "SELECT answers FROM parity_answers WHERE tenant = ? AND stage = ? AND deployment = ?",
        )
        .bind(&self.tenant)
        .bind(stage.to_string())
        .bind(to_i64(deployment))
        .fetch_optional(&self.read)
        .await?;
        row.map(|row| Ok(serde_json::from_str(row.try_get(0)?)?)).transpose()
    }
}
