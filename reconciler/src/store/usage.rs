use denv_schema::api::UsageView;
use denv_schema::wire::{TokenCounts, UsageBatch};
use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};

use super::{Store, StoreError, from_i64, to_i64};

impl Store {
    /// Takes a gateway's records in. Those that are here already are passed over, so a batch may come again.
    pub async fn collect_usage(&self, batch: &UsageBatch) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = self.write_usage(&mut tx.0, batch).await;
        tx.finish(done).await
    }

    async fn write_usage(&self, tx: &mut SqliteConnection, batch: &UsageBatch) -> Result<(), StoreError> {
        for (number, record) in (batch.first..).zip(&batch.records) {
            sqlx::query(
                "INSERT OR IGNORE INTO usage
                 (tenant, ledger, number, at, customer, model, input, cached_input, output, reasoning, record)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(&self.tenant)
            .bind(&batch.ledger)
            .bind(to_i64(number))
            .bind(record.at.as_millisecond())
            .bind(record.customer.as_str())
            .bind(&record.model)
            .bind(to_i64(record.tokens.input))
            .bind(to_i64(record.tokens.cached_input))
            .bind(to_i64(record.tokens.output))
            .bind(to_i64(record.tokens.reasoning))
            .bind(serde_json::to_string(record)?)
            .execute(&mut *tx)
            .await?;
        }
        Ok(())
    }

    /// What each customer used of each model since a time.
    pub async fn usage(
        &self,
        since: Timestamp,
        customer: Option<&str>,
    ) -> Result<Vec<UsageView>, StoreError> {
        let rows = sqlx::query(
            "SELECT customer, model, count(*), sum(input), sum(cached_input), sum(output), sum(reasoning)
             FROM usage WHERE tenant = ?1 AND at >= ?2 AND (?3 IS NULL OR customer = ?3)
             GROUP BY customer, model ORDER BY customer, model",
        );
        let rows = rows.bind(&self.tenant).bind(since.as_millisecond()).bind(customer);
        let view = |row: &sqlx::sqlite::SqliteRow| {
            let count = |column: usize| row.try_get::<i64, _>(column).map(from_i64);
            Ok(UsageView {
                customer: serde_json::from_value(serde_json::Value::String(row.try_get(0)?))?,
                model: row.try_get(1)?,
                requests: count(2)?,
                tokens: TokenCounts {
                    input: count(3)?,
                    cached_input: count(4)?,
                    output: count(5)?,
                    reasoning: count(6)?,
                },
            })
        };
        rows.fetch_all(&self.read).await?.iter().map(view).collect()
    }
}
