use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use denv_planner::{Deployment, HostFaults, Records, StageRecord, UnitRecord};
use denv_schema::wire::{Command, CommandId, CommandOutcome, CommandResult, Term};
use denv_schema::{Digest, Name, StageId, UnitId};
use jiff::Timestamp;
use sqlx::{Row as _, SqliteConnection};

use super::events::insert_events;
use super::gathered::Small;
use super::{Event, Store, StoreError, from_i64, to_i64};

/// What one decision changes. It is written whole or not at all.
#[derive(Debug, Default)]
pub struct Commit {
    pub stages: BTreeMap<StageId, StageRecord>,
    pub deployments: Vec<(StageId, Deployment)>,
    /// None: the unit is gone, and its commands with it.
    pub units: BTreeMap<UnitId, Option<Arc<UnitRecord>>>,
    /// None: the host has done well since.
    pub host_faults: BTreeMap<Name, Option<HostFaults>>,
    /// For the queues of hosts. What a unit's earlier commands asked for and no host has answered is withdrawn.
    pub commands: Vec<(Name, UnitId, Command)>,
    pub deployed: BTreeMap<Name, Digest>,
    pub events: Vec<Event>,
}

impl Store {
    /// The records as they were last written.
    pub async fn records(&self) -> Result<Records, StoreError> {
        let mut records = Records::default();
        let rows = sqlx::query("SELECT stage, record FROM stages WHERE tenant = ?").bind(&self.tenant);
        for row in rows.fetch_all(&self.read).await? {
            let id = row.try_get::<String, _>(0)?;
            let id = serde_json::from_value(serde_json::Value::String(id))?;
            records.stages.insert(id, serde_json::from_str(row.try_get(1)?)?);
        }
        let rows = sqlx::query("SELECT unit, record FROM units WHERE tenant = ?").bind(&self.tenant);
        for row in rows.fetch_all(&self.read).await? {
            records
                .units
                .insert(UnitId::from(row.try_get::<&str, _>(0)?), serde_json::from_str(row.try_get(1)?)?);
        }
        let rows = sqlx::query("SELECT host, record FROM host_faults WHERE tenant = ?").bind(&self.tenant);
        for row in rows.fetch_all(&self.read).await? {
            let host = serde_json::Value::String(row.try_get(0)?);
            records.hosts.insert(serde_json::from_value(host)?, serde_json::from_str(row.try_get(1)?)?);
        }
        let rows = sqlx::query(
            "SELECT id, answer, reason FROM commands WHERE tenant = ? AND (answer IS NULL OR answer = 'refused')",
        );
        for row in rows.bind(&self.tenant).fetch_all(&self.read).await? {
            let id = CommandId(row.try_get(0)?);
            match row.try_get::<Option<&str>, _>(1)? {
                None => drop(records.pending.insert(id)),
                Some(_) => {
                    drop(records.refused.insert(id, row.try_get::<Option<String>, _>(2)?.unwrap_or_default()))
                }
            }
        }
        Ok(records)
    }

    /// What each release meant when it was deployed.
    pub async fn deployed_releases(&self) -> Result<BTreeMap<Name, Digest>, StoreError> {
        let rows =
            sqlx::query("SELECT release, digest FROM deployed_releases WHERE tenant = ?").bind(&self.tenant);
        let mut deployed = BTreeMap::new();
        for row in rows.fetch_all(&self.read).await? {
            let text = |value: &str| serde_json::Value::String(value.to_owned());
            let name = serde_json::from_value(text(row.try_get(0)?))?;
            deployed.insert(name, serde_json::from_value(text(row.try_get(1)?))?);
        }
        Ok(deployed)
    }

    /// Writes a decision, unless another leads.
    pub async fn commit(&self, term: Term, commit: &Commit) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let done = self.write_commit(&mut tx.0, term, commit).await;
        tx.finish(done).await
    }

    async fn write_commit(
        &self,
        tx: &mut SqliteConnection,
        term: Term,
        commit: &Commit,
    ) -> Result<(), StoreError> {
        self.fence(tx, term).await?;
        for (id, record) in &commit.stages {
            sqlx::query(
                "INSERT INTO stages (tenant, stage, record) VALUES (?, ?, ?)
                 ON CONFLICT (tenant, stage) DO UPDATE SET record = excluded.record",
            )
            .bind(&self.tenant)
            .bind(id.to_string())
            .bind(serde_json::to_string(record)?)
            .execute(&mut *tx)
            .await?;
        }
        for (stage, deployment) in &commit.deployments {
            sqlx::query(
                "INSERT INTO deployments (tenant, stage, number, record) VALUES (?, ?, ?, ?)
                 ON CONFLICT (tenant, stage, number) DO UPDATE SET record = excluded.record",
            )
            .bind(&self.tenant)
            .bind(stage.to_string())
            .bind(to_i64(deployment.number))
            .bind(serde_json::to_string(deployment)?)
            .execute(&mut *tx)
            .await?;
        }
        for (id, record) in &commit.units {
            self.write_unit(tx, id, record.as_deref()).await?;
        }
        for (host, faults) in &commit.host_faults {
            self.write_host_faults(tx, host, faults.as_ref()).await?;
        }
        let mut told: BTreeSet<&UnitId> = BTreeSet::new();
        for (host, unit, command) in &commit.commands {
            if told.insert(unit) {
                self.withdraw(tx, unit).await?;
            }
            self.queue(tx, host, unit, command).await?;
        }
        for (release, digest) in &commit.deployed {
            sqlx::query("INSERT OR IGNORE INTO deployed_releases (tenant, release, digest) VALUES (?, ?, ?)")
                .bind(&self.tenant)
                .bind(release.to_string())
                .bind(digest.to_string())
                .execute(&mut *tx)
                .await?;
        }
        insert_events(tx, commit.events.iter().map(|event| (self.tenant.as_str(), event))).await
    }

    async fn fence(&self, tx: &mut SqliteConnection, ours: Term) -> Result<(), StoreError> {
        let row =
            sqlx::query("SELECT term FROM leader WHERE tenant = ?").bind(&self.tenant).fetch_one(&mut *tx);
        let theirs = from_i64(row.await?.try_get(0)?);
        if theirs == ours { Ok(()) } else { Err(StoreError::Deposed { ours, theirs }) }
    }

    async fn write_unit(
        &self,
        tx: &mut SqliteConnection,
        id: &UnitId,
        record: Option<&UnitRecord>,
    ) -> Result<(), StoreError> {
        match record {
            Some(record) => {
                sqlx::query(
                    "INSERT INTO units (tenant, unit, record) VALUES (?, ?, ?)
                     ON CONFLICT (tenant, unit) DO UPDATE SET record = excluded.record",
                )
                .bind(&self.tenant)
                .bind(id.as_str())
                .bind(serde_json::to_string(record)?)
                .execute(&mut *tx)
                .await?;
            }
            None => {
                for sql in [
                    "DELETE FROM units WHERE tenant = ? AND unit = ?",
                    "DELETE FROM commands WHERE tenant = ? AND unit = ?",
                ] {
                    sqlx::query(sql).bind(&self.tenant).bind(id.as_str()).execute(&mut *tx).await?;
                }
            }
        }
        Ok(())
    }

    async fn write_host_faults(
        &self,
        tx: &mut SqliteConnection,
        host: &Name,
        faults: Option<&HostFaults>,
    ) -> Result<(), StoreError> {
        let query = match faults {
            Some(faults) => sqlx::query(
                "INSERT INTO host_faults (record, tenant, host) VALUES (?, ?, ?)
                 ON CONFLICT (tenant, host) DO UPDATE SET record = excluded.record",
            )
            .bind(serde_json::to_string(faults)?),
            None => sqlx::query("DELETE FROM host_faults WHERE tenant = ? AND host = ?"),
        };
        query.bind(&self.tenant).bind(host.to_string()).execute(&mut *tx).await?;
        Ok(())
    }

    /// What no host has answered of what was asked for a unit before.
    async fn withdraw(&self, tx: &mut SqliteConnection, unit: &UnitId) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM commands WHERE tenant = ? AND unit = ? AND answer IS NULL")
            .bind(&self.tenant)
            .bind(unit.as_str())
            .execute(&mut *tx)
            .await?;
        Ok(())
    }

    async fn queue(
        &self,
        tx: &mut SqliteConnection,
        host: &Name,
        unit: &UnitId,
        command: &Command,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO commands (tenant, id, host, unit, body, queued) VALUES (?, ?, ?, ?, ?, ?)
             ON CONFLICT (tenant, id) DO NOTHING",
        )
        .bind(&self.tenant)
        .bind(&command.id.0)
        .bind(host.to_string())
        .bind(unit.as_str())
        .bind(serde_json::to_string(command)?)
        .bind(Timestamp::now().as_millisecond())
        .execute(&mut *tx)
        .await?;
        Ok(())
    }

    /// What a host has not answered yet, in the order in which it was asked.
    pub async fn queued(&self, host: &Name) -> Result<Vec<Command>, StoreError> {
        let rows = sqlx::query(
            "SELECT body FROM commands WHERE tenant = ? AND host = ? AND answer IS NULL ORDER BY number",
        );
        let rows = rows.bind(&self.tenant).bind(host.to_string()).fetch_all(&self.read).await?;
        rows.iter().map(|row| Ok(serde_json::from_str(row.try_get(0)?)?)).collect()
    }

    /// The hosts that have not answered all they were asked.
    pub async fn asked_hosts(&self) -> Result<BTreeSet<Name>, StoreError> {
        let rows = sqlx::query("SELECT DISTINCT host FROM commands WHERE tenant = ? AND answer IS NULL");
        let rows = rows.bind(&self.tenant).fetch_all(&self.read).await?;
        rows.iter().map(|row| Ok(serde_json::from_value(row.try_get::<String, _>(0)?.into())?)).collect()
    }

    /// Notes a host's answer. Only the host whose queue holds the command can answer it.
    pub async fn answer(&self, host: &Name, result: &CommandResult) -> Result<(), StoreError> {
        self.write_small(Small::Answer { host: host.clone(), result: result.clone() }).await
    }

    /// A stage's deployments, or all, the newest first.
    pub async fn deployments(
        &self,
        stage: Option<&StageId>,
        limit: u32,
    ) -> Result<Vec<(StageId, Deployment)>, StoreError> {
        let rows = sqlx::query(
            "SELECT stage, record FROM deployments WHERE tenant = ? AND (?2 IS NULL OR stage = ?2)
             ORDER BY json_extract(record, '$.opened') DESC LIMIT ?3",
        );
        let rows = rows.bind(&self.tenant).bind(stage.map(ToString::to_string)).bind(limit);
        let rows = rows.fetch_all(&self.read).await?;
        let read = |row: &sqlx::sqlite::SqliteRow| {
            let stage = serde_json::Value::String(row.try_get(0)?);
            Ok((serde_json::from_value(stage)?, serde_json::from_str(row.try_get(1)?)?))
        };
        rows.iter().map(read).collect()
    }
}

pub(super) async fn write_answer(
    tx: &mut SqliteConnection,
    tenant: &str,
    host: &Name,
    result: &CommandResult,
) -> Result<(), StoreError> {
    let (answer, reason) = match &result.outcome {
        CommandOutcome::Accepted => ("accepted", None),
        CommandOutcome::Refused { reason } => ("refused", Some(reason)),
    };
    sqlx::query("UPDATE commands SET answer = ?, reason = ? WHERE tenant = ? AND id = ? AND host = ?")
        .bind(answer)
        .bind(reason)
        .bind(tenant)
        .bind(&result.id.0)
        .bind(host.to_string())
        .execute(&mut *tx)
        .await?;
    Ok(())
}
