//! Everything a plan may know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::manifest::HostSpec;
use denv_schema::wire::{GatewayReport, Generation, HostReport, MemberReport, SILENCE, UnitReport};
use denv_schema::{Catalog, Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::{MemberRecord, Records, UnitRecord};
use crate::trial::{AlarmObserved, TrialObserved};

/// What is desired, observed and recorded, and the time. Catalog and records are read before observed, so that a
/// finished step never looks undone.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub catalog: &'a Catalog,
    pub records: &'a Records,
    pub observed: &'a Observed,
    pub now: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    pub hosts: BTreeMap<Name, HostObserved>,
    pub gateways: BTreeMap<Name, GatewayObserved>,
    /// What came of the trials that deployments have under way.
    #[serde(default)]
    pub trials: BTreeMap<StageId, TrialObserved>,
    /// What the alarms of stages say now.
    #[serde(default)]
    pub alarms: BTreeMap<StageId, BTreeMap<Name, AlarmObserved>>,
    /// Since when this process has been listening. A host can't be called silent for longer than that.
    pub since: Timestamp,
}

/// A host, as last heard of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostObserved {
    pub connected: bool,
    /// When it last said anything.
    pub last_seen: Timestamp,
    pub version: String,
    /// Where gateways reach its units.
    pub ingress: String,
    /// Shared: worlds are copied far more often than a host says something new.
    pub report: Arc<HostReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayObserved {
    pub connected: bool,
    /// When these records first heard of it.
    #[serde(default)]
    pub first_heard: Timestamp,
    pub last_seen: Timestamp,
    pub version: String,
    pub report: GatewayReport,
}

impl GatewayObserved {
    /// What it last said of a generation of a unit.
    pub(crate) fn unit(&self, unit: &UnitId, generation: Generation) -> Option<&UnitReport> {
        self.report.units.get(unit).filter(|report| report.generation == generation)
    }
}

/// A gateway that is silent for longer is taken for dead. Until then it may serve from what it last knew, and
/// nothing is stopped that it has not let go.
pub(crate) const GATEWAY_LOST_AFTER: Duration = Duration::from_secs(60);
/// The last gateway to fall silent has been taken away for good after this long, and was lost to a fault before.
const GATEWAY_FORGOTTEN_AFTER: Duration = Duration::from_secs(86_400);

impl<'w> World<'w> {
    pub(crate) fn host(&self, name: &Name) -> Option<&HostObserved> {
        self.observed.hosts.get(name)
    }

    /// What the member's host last said of it, in any generation.
    pub(crate) fn member(&self, member: &MemberRecord) -> Option<&MemberReport> {
        self.host(&member.host)?.report.members.get(&member.id)
    }

    /// The first of the unit's hosts to have fallen silent, and since when, if one is.
    pub(crate) fn silent_host<'u>(&self, unit: &'u UnitRecord) -> Option<(&'u Name, Timestamp)> {
        let silent = unit.members.iter().filter(|member| self.is_silent(&member.host));
        silent.map(|member| (&member.host, self.silent_since(&member.host))).min_by_key(|(_, since)| *since)
    }

    /// Whether all of the unit's hosts are.
    pub(crate) fn all_connected(&self, unit: &UnitRecord) -> bool {
        unit.members.iter().all(|member| self.is_connected(&member.host))
    }

    /// The scale-up domain of a host of the catalog.
    pub(crate) fn domain(&self, host: &Name) -> Option<&'w Name> {
        let (name, spec) = self.catalog.hosts.get_key_value(host)?;
        Some(domain(name, spec, self.observed.hosts.get(name)))
    }

    /// What fails together with a host of the catalog: what its manifest says, or the host, or else its scale-up domain.
    pub(crate) fn failure_domain(&self, host: &Name) -> Option<&'w Name> {
        let spec = self.catalog.hosts.get(host)?;
        let told = || self.observed.hosts.get(host)?.report.inventory.failure_domain.as_ref();
        spec.failure_domain.as_ref().or_else(told).or_else(|| self.domain(host))
    }

    /// Since when a host has been silent: now, while it is connected.
    pub(crate) fn silent_since(&self, host: &Name) -> Timestamp {
        match self.host(host) {
            Some(host) if host.connected => self.now,
            Some(host) => host.last_seen.max(self.observed.since),
            None => self.observed.since,
        }
    }

    pub(crate) fn is_silent(&self, host: &Name) -> bool {
        self.now.duration_since(self.silent_since(host)) >= signed(SILENCE)
    }

    pub(crate) fn is_connected(&self, host: &Name) -> bool {
        self.host(host).is_some_and(|host| host.connected)
    }

    /// When all gateways there are have been silent long enough to be forgotten, if they are silent and may not be
    /// forgotten yet. They may well be serving from what they last knew, and nobody can say to what. Where records were lost,
    /// so was which gateways there are.
    pub(crate) fn deaf_until(&self) -> Option<Timestamp> {
        let forgotten = |gateway: &GatewayObserved| {
            gateway.last_seen.max(self.observed.since) + signed(GATEWAY_FORGOTTEN_AFTER)
        };
        let gateways = || self.observed.gateways.values();
        let rebuilt = || self.records.stages.values().filter_map(|stage| stage.rebuilt);
        let lost = || rebuilt().map(|rebuilt| rebuilt.since + signed(GATEWAY_FORGOTTEN_AFTER)).max();
        let until = gateways().map(forgotten).max().or_else(lost)?;
        (until > self.now && !gateways().any(|gateway| gateway.connected)).then_some(until)
    }

    /// The gateways that may be serving.
    pub(crate) fn live_gateways(&self) -> impl Iterator<Item = (&Name, &GatewayObserved)> {
        self.observed.gateways.iter().filter(|(_, gateway)| {
            let since = gateway.last_seen.max(self.observed.since);
            gateway.connected || self.now.duration_since(since) < signed(GATEWAY_LOST_AFTER)
        })
    }
}

/// The scale-up domain of a host: what its manifest says, or else the host; by itself, it is one.
pub(crate) fn domain<'w>(name: &'w Name, spec: &'w HostSpec, observed: Option<&'w HostObserved>) -> &'w Name {
    let told = || observed?.report.inventory.domain.as_ref();
    spec.domain.as_ref().or_else(told).unwrap_or(name)
}

/// A length of time as the calendar library's own.
pub(crate) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
