//! What hosts and gateways say, as last heard. It owns the observed half of the world, tells when it changes, and
//! keeps it over a restart, so that a new process knows where everything is before the first host has dialled in.
//!
//! It refuses to judge what it hears.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use denv_planner::{GatewayObserved, HostObserved, Observed};
use denv_schema::Name;
use denv_schema::wire::{GatewayHello, GatewayReport, HostHello, HostReport};
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
    hosts_speaking: std::collections::BTreeMap<Name, u64>,
    gateways_speaking: std::collections::BTreeMap<Name, u64>,
    unsaved_hosts: BTreeSet<Name>,
    unsaved_gateways: BTreeSet<Name>,
}

/// How long what was heard may stay unsaved: losing it costs a restarted process nothing but a moment.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

impl Observation {
    /// What was known when the last process ended; nobody is connected yet.
    pub async fn load(store: &Store, now: Timestamp) -> Result<Self, StoreError> {
        let mut observed =
            Observed { hosts: store.hosts().await?, gateways: store.gateways().await?, since: now };
        observed.hosts.values_mut().for_each(|host| host.connected = false);
        observed.gateways.values_mut().for_each(|gateway| gateway.connected = false);
        let state = State {
            observed,
            streams: 0,
            hosts_speaking: std::collections::BTreeMap::new(),
            gateways_speaking: std::collections::BTreeMap::new(),
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
            let observed = HostObserved { connected: true, last_seen: now, version, ingress, report };
            state.observed.hosts.insert(name.clone(), observed);
            state.unsaved_hosts.insert(name.clone());
            stream
        };
        self.tell();
        stream
    }

    pub fn host_reported(&self, name: &Name, report: HostReport, now: Timestamp) {
        let changed = {
            let mut state = self.lock();
            let Some(host) = state.observed.hosts.get_mut(name) else { return };
            host.last_seen = now;
            let changed = host.report != report;
            host.report = report;
            if changed {
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
            let observed = GatewayObserved { connected: true, last_seen: now, version, report };
            state.observed.gateways.insert(name.clone(), observed);
            state.unsaved_gateways.insert(name.clone());
            stream
        };
        self.tell();
        stream
    }

    pub fn gateway_reported(&self, name: &Name, report: GatewayReport, now: Timestamp) {
        let changed = {
            let mut state = self.lock();
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
                .filter_map(|name| Some((observed.hosts.get(&name)?.clone(), name)))
                .collect();
            let gateways: Vec<_> = gateways
                .into_iter()
                .filter_map(|name| Some((observed.gateways.get(&name)?.clone(), name)))
                .collect();
            (hosts, gateways)
        };
        for (observed, name) in hosts {
            store.save_host(&name, &observed).await?;
        }
        for (observed, name) in gateways {
            store.save_gateway(&name, &observed).await?;
        }
        Ok(())
    }

    fn tell(&self) {
        self.changed.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
