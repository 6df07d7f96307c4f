//! What is known of hosts and gateways, and the tokens they join with.

use std::collections::BTreeMap;

use denv_link::Role;
use denv_planner::{GatewayObserved, HostObserved};
use denv_schema::{Digest, Name};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Row as _, SqliteConnection};

use super::{Store, StoreError};

/// What a join token is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrant {
    pub role: Role,
    pub name: Name,
}

impl Store {
    pub async fn hosts(&self) -> Result<BTreeMap<Name, HostObserved>, StoreError> {
        self.observed("SELECT host, observed FROM hosts WHERE tenant = ?").await
    }

    pub async fn gateways(&self) -> Result<BTreeMap<Name, GatewayObserved>, StoreError> {
        self.observed("SELECT gateway, observed FROM gateways WHERE tenant = ?").await
    }

    async fn observed<T: DeserializeOwned>(
        &self,
        sql: &'static str,
    ) -> Result<BTreeMap<Name, T>, StoreError> {
        let rows = sqlx::query(sql).bind(&self.tenant).fetch_all(&self.read).await?;
        let read = |row: &sqlx::sqlite::SqliteRow| {
            let name = serde_json::from_value(serde_json::Value::String(row.try_get(0)?))?;
            Ok((name, serde_json::from_str(row.try_get(1)?)?))
        };
        rows.iter().map(read).collect()
    }

    pub async fn save_hosts(&self, hosts: &[(Name, HostObserved)]) -> Result<(), StoreError> {
        let sql = "INSERT INTO hosts (tenant, host, observed) VALUES (?, ?, ?)
                   ON CONFLICT (tenant, host) DO UPDATE SET observed = excluded.observed";
        self.save(sql, hosts).await
    }

    pub async fn save_gateways(&self, gateways: &[(Name, GatewayObserved)]) -> Result<(), StoreError> {
        let sql = "INSERT INTO gateways (tenant, gateway, observed) VALUES (?, ?, ?)
                   ON CONFLICT (tenant, gateway) DO UPDATE SET observed = excluded.observed";
        self.save(sql, gateways).await
    }

    async fn save<T: Serialize>(&self, sql: &'static str, observed: &[(Name, T)]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = self.write_observed(&mut tx.0, sql, observed).await;
        tx.finish(done).await
    }

    async fn write_observed<T: Serialize>(
        &self,
        tx: &mut SqliteConnection,
        sql: &'static str,
        observed: &[(Name, T)],
    ) -> Result<(), StoreError> {
        for (name, observed) in observed {
            sqlx::query(sql)
                .bind(&self.tenant)
                .bind(name.to_string())
                .bind(serde_json::to_string(observed)?)
                .execute(&mut *tx)
                .await?;
        }
        Ok(())
    }

    /// Keeps the hash of a new token's secret.
    pub async fn grant_token(
        &self,
        hash: Digest,
        grant: &TokenGrant,
        expires: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO tokens (tenant, hash, role, name, expires) VALUES (?, ?, ?, ?, ?)")
            .bind(&self.tenant)
            .bind(hash.to_string())
            .bind(grant.role.as_str())
            .bind(grant.name.to_string())
            .bind(expires.as_millisecond())
            .execute(&self.write)
            .await?;
        Ok(())
    }

    /// Uses a token up. None: there is no such token, or it was used, or its time is over.
    pub async fn use_token(&self, hash: Digest, now: Timestamp) -> Result<Option<TokenGrant>, StoreError> {
        // The hash of 256 random bits tells nothing by the time its look-up takes.
        let row = sqlx::query(
            "UPDATE tokens SET used = ?1 WHERE tenant = ?2 AND hash = ?3 AND used IS NULL AND expires > ?1
             RETURNING role, name",
        );
        let row = row.bind(now.as_millisecond()).bind(&self.tenant).bind(hash.to_string());
        let Some(row) = row.fetch_optional(&self.write).await? else { return Ok(None) };
        let name = serde_json::from_value(serde_json::Value::String(row.try_get(1)?))?;
        Ok(row.try_get::<&str, _>(0)?.parse().ok().map(|role| TokenGrant { role, name }))
    }
}
