//! What hosts and gateways say, as last heard. It owns the observed half of the world, tells when it changes, and
//! keeps it over a restart, so that a new process knows where everything is before the first host has dialled in.
//!
//! It refuses to judge what it hears.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use denv_planner::{AlarmObserved, GatewayObserved, HostObserved, Observed, TrialObserved};
use denv_schema::wire::{GatewayHello, GatewayReport, HostHello, HostReport};
use denv_schema::{Name, StageId};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::store::{Store, StoreError};

pub struct Observation {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

struct State {
    observed: Observed,
    /// Which stream speaks for a peer: when a peer dials again, its old stream's end means nothing.
    streams: u64,
    hosts_speaking: BTreeMap<Name, u64>,
    gateways_speaking: BTreeMap<Name, u64>,
    unsaved_hosts: BTreeSet<Name>,
    unsaved_gateways: BTreeSet<Name>,
}

/// How long what was heard may stay unsaved: losing it costs a restarted process nothing but a moment.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Saved as one. Decisions wait for the store meanwhile.
const SAVED_AT_ONCE: usize = 200;

impl Observation {
    /// What was known when the last process ended; nobody is connected yet.
    pub async fn load(store: &Store, now: Timestamp) -> Result<Self, StoreError> {
        let (hosts, gateways) = (store.hosts().await?, store.gateways().await?);
        let mut observed = Observed { hosts, gateways, since: now, ..Observed::default() };
        observed.hosts.values_mut().for_each(|host| host.connected = false);
        observed.gateways.values_mut().for_each(|gateway| gateway.connected = false);
        let state = State {
            observed,
            streams: 0,
            hosts_speaking: BTreeMap::new(),
            gateways_speaking: BTreeMap::new(),
            unsaved_hosts: BTreeSet::new(),
            unsaved_gateways: BTreeSet::new(),
        };
        Ok(Observation { state: Mutex::new(state), changed: watch::Sender::new(0) })
    }

    pub fn snapshot(&self) -> Observed {
        self.lock().observed.clone()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A host's new stream; the number is for [`Observation::host_detached`].
    pub fn host_attached(&self, name: &Name, hello: HostHello, now: Timestamp) -> u64 {
        let HostHello { version, ingress, report, .. } = hello;
        let stream = {
            let mut state = self.lock();
            state.streams += 1;
            let stream = state.streams;
            state.hosts_speaking.insert(name.clone(), stream);
            let report = Arc::new(report);
            let observed = HostObserved { connected: true, last_seen: now, version, ingress, report };
            let known = state.observed.hosts.insert(name.clone(), observed.clone());
            // After a restart all hosts come at once, and few have anything new to say.
            if known.is_none_or(|known| !says_the_same(&known, &observed)) {
                state.unsaved_hosts.insert(name.clone());
            }
            stream
        };
        self.tell();
        stream
    }

    /// What is still under way on an earlier stream is older than what the new one began with, and is not believed.
    pub fn host_reported(&self, name: &Name, stream: u64, report: HostReport, now: Timestamp) {
        let changed = {
            let mut state = self.lock();
            if state.hosts_speaking.get(name) != Some(&stream) {
                return;
            }
            let Some(host) = state.observed.hosts.get_mut(name) else { return };
            host.last_seen = now;
            let changed = *host.report != report;
            if changed {
                host.report = Arc::new(report);
                state.unsaved_hosts.insert(name.clone());
            }
            changed
        };
        if changed {
            self.tell();
        }
    }

    /// Whether the stream still spoke for the host.
    pub fn host_detached(&self, name: &Name, stream: u64, now: Timestamp) -> bool {
        {
            let mut state = self.lock();
            if state.hosts_speaking.get(name) != Some(&stream) {
                return false;
            }
            state.hosts_speaking.remove(name);
            if let Some(host) = state.observed.hosts.get_mut(name) {
                host.connected = false;
                host.last_seen = now;
            }
            state.unsaved_hosts.insert(name.clone());
        }
        self.tell();
        true
    }

    pub fn gateway_attached(&self, name: &Name, hello: GatewayHello, now: Timestamp) -> u64 {
        let GatewayHello { version, report, .. } = hello;
        let stream = {
            let mut state = self.lock();
            state.streams += 1;
            let stream = state.streams;
            state.gateways_speaking.insert(name.clone(), stream);
            let first_heard = state.observed.gateways.get(name).map_or(now, |known| known.first_heard);
            let observed = GatewayObserved { connected: true, first_heard, last_seen: now, version, report };
            state.observed.gateways.insert(name.clone(), observed);
            state.unsaved_gateways.insert(name.clone());
            stream
        };
        self.tell();
        stream
    }

    /// As with hosts, only the newest stream is believed.
    pub fn gateway_reported(&self, name: &Name, stream: u64, report: GatewayReport, now: Timestamp) {
        let changed = {
            let mut state = self.lock();
            if state.gateways_speaking.get(name) != Some(&stream) {
                return;
            }
            let Some(gateway) = state.observed.gateways.get_mut(name) else { return };
            gateway.last_seen = now;
            let changed = gateway.report != report;
            gateway.report = report;
            if changed {
                state.unsaved_gateways.insert(name.clone());
            }
            changed
        };
        if changed {
            self.tell();
        }
    }

    /// Whether the stream still spoke for the gateway.
    pub fn gateway_detached(&self, name: &Name, stream: u64, now: Timestamp) -> bool {
        {
            let mut state = self.lock();
            if state.gateways_speaking.get(name) != Some(&stream) {
                return false;
            }
            state.gateways_speaking.remove(name);
            if let Some(gateway) = state.observed.gateways.get_mut(name) {
                gateway.connected = false;
                gateway.last_seen = now;
            }
            state.unsaved_gateways.insert(name.clone());
        }
        self.tell();
        true
    }

    /// What came of the trial that a stage's deployment has under way.
    pub fn trial_ended(&self, stage: &StageId, seen: TrialObserved) {
        self.lock().observed.trials.insert(stage.clone(), seen);
        self.tell();
    }

    /// What the alarms of a stage say now.
    pub fn alarms(&self, stage: &StageId) -> BTreeMap<Name, AlarmObserved> {
        self.lock().observed.alarms.get(stage).cloned().unwrap_or_default()
    }

    /// What the alarms of stages say now. Only another outcome is news: figures move all the time.
    pub fn alarms_read(&self, readings: BTreeMap<StageId, BTreeMap<Name, AlarmObserved>>) {
        let outcomes = |readings: &BTreeMap<StageId, BTreeMap<Name, AlarmObserved>>| {
            let outcome =
                |(name, seen): (&Name, &AlarmObserved)| (name.clone(), seen.of, seen.reading.outcome);
            let of_stage = |(stage, seen): (&StageId, &BTreeMap<Name, AlarmObserved>)| {
                (stage.clone(), seen.iter().map(outcome).collect::<Vec<_>>())
            };
            readings.iter().map(of_stage).collect::<Vec<_>>()
        };
        let changed = {
            let mut state = self.lock();
            let changed = outcomes(&state.observed.alarms) != outcomes(&readings);
            state.observed.alarms = readings;
            changed
        };
        if changed {
            self.tell();
        }
    }

    /// Saves what was heard, for ever.
    pub async fn keep_saved(&self, store: &Store) {
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            if let Err(error) = self.save(store).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot save what hosts and gateways said");
            }
        }
    }

    async fn save(&self, store: &Store) -> Result<(), StoreError> {
        let (hosts, gateways) = {
            let mut state = self.lock();
            let hosts = std::mem::take(&mut state.unsaved_hosts);
            let gateways = std::mem::take(&mut state.unsaved_gateways);
            let observed = &state.observed;
            let hosts: Vec<_> = hosts
                .into_iter()
                .filter_map(|name| observed.hosts.get(&name).cloned().map(|observed| (name, observed)))
                .collect();
            let gateways: Vec<_> = gateways
                .into_iter()
                .filter_map(|name| observed.gateways.get(&name).cloned().map(|observed| (name, observed)))
                .collect();
            (hosts, gateways)
        };
        let mut failed = None;
        // What could not be saved is tried again, whether or not it changes.
        for hosts in hosts.chunks(SAVED_AT_ONCE) {
            if let Err(error) = store.save_hosts(hosts).await {
                self.lock().unsaved_hosts.extend(hosts.iter().map(|(name, _)| name.clone()));
                failed = Some(error);
            }
        }
        for gateways in gateways.chunks(SAVED_AT_ONCE) {
            if let Err(error) = store.save_gateways(gateways).await {
                self.lock().unsaved_gateways.extend(gateways.iter().map(|(name, _)| name.clone()));
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn tell(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing is other than it was, but that it is here.
fn says_the_same(known: &HostObserved, observed: &HostObserved) -> bool {
    let said = |host: &HostObserved| HostObserved {
        connected: true,
        last_seen: Timestamp::UNIX_EPOCH,
        ..host.clone()
    };
    said(known) == said(observed)
}

#[cfg(test)]
mod tests {
    use denv_gates::Outcome;
    use denv_gates::alarm::Reading;
    use denv_schema::Digest;
    use denv_schema::wire::{Inventory, Rotation, UnitReport};

    use super::*;

    fn report(cpus: u32) -> HostReport {
        HostReport { inventory: Inventory { cpus, ..Inventory::default() }, ..HostReport::default() }
    }

    fn hello(cpus: u32, now: Timestamp) -> HostHello {
        HostHello { version: String::new(), ingress: String::new(), clock: now, report: report(cpus) }
    }

    async fn observation() -> (tempfile::TempDir, Observation) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("denv.db"), &"t".parse().unwrap()).await.unwrap();
        (dir, Observation::load(&store, Timestamp::UNIX_EPOCH).await.unwrap())
    }

    #[tokio::test]
    async fn an_earlier_stream_of_a_host_is_not_believed() {
        let (_dir, observation) = observation().await;
        let (name, now): (Name, _) = ("h".parse().unwrap(), Timestamp::UNIX_EPOCH);
        let first = observation.host_attached(&name, hello(1, now), now);
        let second = observation.host_attached(&name, hello(2, now), now);
        observation.host_reported(&name, first, report(3), now);
        assert!(!observation.host_detached(&name, first, now));
        let host = observation.snapshot().hosts.remove(&name).unwrap();
        assert!(host.connected);
        assert_eq!(*host.report, report(2));
        observation.host_reported(&name, second, report(4), now);
        assert_eq!(*observation.snapshot().hosts[&name].report, report(4));
    }

    #[tokio::test]
    async fn figures_that_move_are_no_news_and_outcomes_are() {
        let (_dir, observation) = observation().await;
        let stage: StageId = "chat/prod".parse().unwrap();
        let reads = |outcome, samples| {
            let reading = Reading { outcome, reason: format!("{samples} requests"), samples };
            let seen = AlarmObserved { of: Digest::from_bytes([0; 32]), reading };
            [(stage.clone(), [("errors".parse().unwrap(), seen)].into())].into()
        };
        let mut changes = observation.changes();
        let mut is_news = |readings| {
            observation.alarms_read(readings);
            let changed = changes.has_changed().unwrap();
            changes.mark_unchanged();
            changed
        };
        assert!(is_news(reads(Outcome::Pass, 1)));
        assert!(!is_news(reads(Outcome::Pass, 2)));
        assert_eq!(observation.alarms(&stage)["errors"].reading.samples, 2);
        assert!(is_news(reads(Outcome::Fail, 3)));
        assert!(is_news(BTreeMap::new()));
        assert!(observation.alarms(&stage).is_empty());
    }

    #[tokio::test]
    async fn an_earlier_stream_of_a_gateway_is_not_believed() {
        let (_dir, observation) = observation().await;
        let (name, now): (Name, _) = ("g".parse().unwrap(), Timestamp::UNIX_EPOCH);
        let hello = || GatewayHello { version: String::new(), clock: now, report: GatewayReport::default() };
        let first = observation.gateway_attached(&name, hello(), now);
        observation.gateway_attached(&name, hello(), now);
        let unit = UnitReport { generation: 1, rotation: Rotation::Out, in_rotation: false, inflight: 0 };
        let stale =
            GatewayReport { units: [("chat.prod.0".into(), unit)].into(), ..GatewayReport::default() };
        observation.gateway_reported(&name, first, stale, now);
        assert_eq!(observation.snapshot().gateways[&name].report, GatewayReport::default());
    }
}
