//! The units that requests go to: routes as the control plane gave them, rotation, load, connections.
//!
//! It owns which unit is in rotation, and every connection to one. It refuses to know what is asked of units, and
//! by whom.

mod cache;
mod check;
mod member;
mod pool;
mod transport;
mod unit;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use denv_schema::measures::UnitMeasures;
use denv_schema::wire::{UnitReport, UnitRoute};
use denv_schema::{StageId, UnitId};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::kv_index::{Prefix, SharedIndex};
use crate::routing::{self, Candidate, Pick};

pub(crate) use member::{Connection, Member, SendError};
pub(crate) use transport::Transport;
pub(crate) use unit::{Lease, Unit};

/// The units there are now.
pub(crate) struct Units {
    table: ArcSwap<Table>,
    /// Held while a new table is made of the last one.
    writing: Mutex<()>,
    transport: Arc<Transport>,
    changed: Arc<Notify>,
    turn: AtomicUsize,
}

#[derive(Default)]
struct Table {
    units: BTreeMap<UnitId, Arc<Tracked>>,
    by_stage: HashMap<StageId, StageUnits>,
}

/// The units of a stage, and what is believed of their caches.
struct StageUnits {
    units: Vec<Arc<Unit>>,
    index: SharedIndex,
}

/// A unit with the task that checks it, which ends with its last table.
struct Tracked {
    unit: Arc<Unit>,
    check: JoinHandle<()>,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.check.abort();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoUnit {
    #[error("every unit is at its limit of requests in flight")]
    Full,
    #[error("no unit is ready")]
    NoneReady,
}

impl Units {
    pub(crate) fn new(transport: Transport) -> Self {
        Units {
            table: ArcSwap::default(),
            writing: Mutex::new(()),
            transport: Arc::new(transport),
            changed: Arc::new(Notify::new()),
            turn: AtomicUsize::new(0),
        }
    }

    /// Takes all the units there are. One that is missing leaves rotation at once; one whose route did not change
    /// keeps its connections and its load. Must be called on a runtime: it starts the checks.
    pub(crate) fn set_routes(&self, routes: &[UnitRoute]) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.table.load_full();
        let mut table = Table::default();
        for route in routes {
            let stage = table.by_stage.entry(route.stage.clone()).or_insert_with(|| {
                let known = before.by_stage.get(&route.stage).map(|stage| stage.index.clone());
                StageUnits { units: Vec::new(), index: known.unwrap_or_else(SharedIndex::new) }
            });
            let tracked = match before.units.get(&route.unit) {
                Some(tracked) if tracked.unit.is_reached_by(route) => tracked.clone(),
                known => self.track(route, stage.index.clone(), known.map(|tracked| &tracked.unit)),
            };
            tracked.unit.want(route.rotation);
            stage.units.push(tracked.unit.clone());
            table.units.insert(route.unit.clone(), tracked);
        }
        let table = Arc::new(table);
        self.table.store(table.clone());
        for (id, old) in &before.units {
            if table.units.get(id).is_none_or(|new| !Arc::ptr_eq(new, old)) {
                // Requests that looked it up in the old table find it gone.
                old.unit.retire();
            }
        }
        self.changed.notify_one();
    }

    fn track(&self, route: &UnitRoute, index: SharedIndex, known: Option<&Arc<Unit>>) -> Arc<Tracked> {
        let unit = Unit::new(route.clone(), &self.transport, self.changed.clone(), index, known);
        let unit = Arc::new(unit);
        let check = tokio::spawn(check::keep_checked(unit.clone()));
        Arc::new(Tracked { unit, check })
    }

    /// Reserves a place for a prompt on the unit of `stage` where it costs least, of those that were not tried yet.
    pub(crate) fn acquire(
        &self,
        stage: &StageId,
        limit: u32,
        tried: &[Arc<Unit>],
        prefix: &Prefix,
    ) -> Result<Lease, NoUnit> {
        let table = self.table.load();
        let Some(StageUnits { units, index }) = table.by_stage.get(stage) else {
            return Err(NoUnit::NoneReady);
        };
        let held = index.held(prefix);
        let candidate = |index: usize| {
            let unit: &Arc<Unit> = &units[index];
            if unit.in_rotation() && !tried.iter().any(|other| Arc::ptr_eq(other, unit)) {
                let to_read = prefix.len() - unit.has_cached(&held);
                Candidate::Ready { inflight: unit.inflight(), to_read }
            } else {
                Candidate::Unavailable
            }
        };
        loop {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            match routing::pick(units.len(), candidate, limit, turn) {
                // Lost the place to another request, or the unit just left: look again.
                Pick::Unit(index) => match units[index].reserve(limit, &held) {
                    Some(lease) => {
                        lease.takes(prefix);
                        return Ok(lease);
                    }
                    None => continue,
                },
                Pick::Full => return Err(NoUnit::Full),
                Pick::None => return Err(NoUnit::NoneReady),
            }
        }
    }

    /// How many blocks of prompts are remembered for routing.
    pub(crate) fn remembered_blocks(&self) -> usize {
        self.table.load().by_stage.values().map(|stage| stage.index.with(|index| index.len())).sum()
    }

    pub(crate) fn report(&self) -> BTreeMap<UnitId, UnitReport> {
        self.table.load().units.iter().map(|(id, tracked)| (id.clone(), tracked.unit.report())).collect()
    }

    /// What each unit did so far.
    pub(crate) fn measures(&self) -> impl Iterator<Item = (UnitId, UnitMeasures)> {
        let table = self.table.load_full();
        let read = |(id, tracked): (&UnitId, &Arc<Tracked>)| {
            (id.clone(), tracked.unit.tally().read(tracked.unit.route.generation))
        };
        table.units.iter().map(read).collect::<Vec<_>>().into_iter()
    }

    /// Waits until the report has changed in what the control plane waits for.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
