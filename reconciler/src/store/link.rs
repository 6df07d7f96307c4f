//! What is known of hosts and gateways, and the tokens they join with.

use std::collections::BTreeMap;

use denv_link::Role;
use denv_planner::{GatewayObserved, HostObserved};
use denv_schema::{Digest, Name};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use sqlx::Row as _;

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

    pub async fn save_host(&self, name: &Name, observed: &HostObserved) -> Result<(), StoreError> {
        let sql = "INSERT INTO hosts (tenant, host, observed) VALUES (?, ?, ?)
                   ON CONFLICT (tenant, host) DO UPDATE SET observed = excluded.observed";
        self.save(sql, name, serde_json::to_string(observed)?).await
    }

    pub async fn save_gateway(&self, name: &Name, observed: &GatewayObserved) -> Result<(), StoreError> {
        let sql = "INSERT INTO gateways (tenant, gateway, observed) VALUES (?, ?, ?)
                   ON CONFLICT (tenant, gateway) DO UPDATE SET observed = excluded.observed";
        self.save(sql, name, serde_json::to_string(observed)?).await
    }

    async fn save(&self, sql: &'static str, name: &Name, observed: String) -> Result<(), StoreError> {
        sqlx::query(sql)
            .bind(&self.tenant)
            .bind(name.to_string())
            .bind(observed)
            .execute(&self.write)
            .await?;
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
