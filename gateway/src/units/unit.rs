use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use denv_schema::launch::HandOver;
use denv_schema::wire::{MemberRoute, Rotation, UnitReport, UnitRoute};
use tokio::sync::Notify;

use super::cache::Cache;
use super::member::{Connection, Member};
use super::transport::Transport;
use crate::kv_index::{Held, Prefix, SharedIndex};
use crate::tally::Tally;

/// A unit at a generation: one member that is asked, or two.
pub(crate) struct Unit {
    pub(crate) route: UnitRoute,
    /// The one that answers.
    front: Arc<Member>,
    /// The one that is asked first, where there are two pools.
    prefill: Option<Arc<Member>>,
    /// The control plane wants it in rotation.
    wanted: AtomicBool,
    /// It was reached, and nothing has gone wrong with it since.
    healthy: AtomicBool,
    inflight: Arc<AtomicU32>,
    /// What is believed to be in its KV cache: of two pools, that of the prefill member.
    cache: Arc<Cache>,
    tally: Arc<Tally>,
    /// Wakes whoever reports.
    changed: Arc<Notify>,
    /// Wakes the unit's check.
    pub(super) doubted: Notify,
}

/// A place on a unit. The unit is one request the fuller until it is dropped.
pub(crate) struct Lease {
    unit: Arc<Unit>,
    /// How many blocks of the prompt were believed to be in its cache.
    cached: u32,
}

impl Unit {
    /// `known` is the same unit as it was known before, whose requests in flight and measures count on if it is of the
    /// same generation.
    pub(super) fn new(
        route: UnitRoute,
        transport: &Arc<Transport>,
        changed: Arc<Notify>,
        index: SharedIndex,
        known: Option<&Arc<Unit>>,
    ) -> Self {
        let same_generation = known.filter(|known| known.route.generation == route.generation);
        // Under another release's name it is the very same engine, and as well as it was.
        let healthy = known.is_some_and(|known| {
            let UnitRoute { release, rotation, .. } = known.route.clone();
            known.route == UnitRoute { release, rotation, ..route.clone() } && known.is_healthy()
        });
        let member = |at: &MemberRoute| Arc::new(Member::new(at.clone(), transport.clone()));
        Unit {
            front: member(&route.at),
            prefill: route.prefill.as_ref().map(|prefill| member(&prefill.at)),
            wanted: AtomicBool::new(false),
            healthy: AtomicBool::new(healthy),
            inflight: same_generation.map(|known| known.inflight.clone()).unwrap_or_default(),
            cache: same_generation.map_or_else(|| Arc::new(Cache::new(index)), |known| known.cache.clone()),
            tally: same_generation.map(|known| known.tally.clone()).unwrap_or_default(),
            changed,
            doubted: Notify::new(),
            route,
        }
    }

    /// Whether `route` leads to the very same: the rotation alone may differ.
    pub(super) fn is_reached_by(&self, route: &UnitRoute) -> bool {
        let rotation = self.route.rotation;
        self.route == UnitRoute { rotation, ..route.clone() }
    }

    pub(super) fn want(&self, rotation: Rotation) {
        let wanted = rotation == Rotation::In;
        if self.wanted.swap(wanted, Ordering::SeqCst) != wanted {
            self.doubted.notify_one();
            self.changed.notify_one();
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::SeqCst)
    }

    pub(super) fn in_rotation(&self) -> bool {
        self.is_wanted() && self.is_healthy()
    }

    pub(super) fn inflight(&self) -> u32 {
        self.inflight.load(Ordering::SeqCst)
    }

    pub(super) fn report(&self) -> UnitReport {
        // Rotation is read first: once it is seen as left, no request can slip in behind the count.
        let wanted = self.is_wanted();
        let in_rotation = wanted && self.is_healthy();
        UnitReport {
            generation: self.route.generation,
            rotation: if wanted { Rotation::In } else { Rotation::Out },
            in_rotation,
            inflight: self.inflight(),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// It is gone from the control plane's list.
    pub(super) fn retire(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.members().for_each(|member| member.forget_connections());
    }

    pub(super) fn passed(&self) {
        self.members().for_each(|member| member.found());
        if !self.healthy.swap(true, Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// Takes it out of rotation until it passes a check. For what is the unit's fault, never the client's.
    pub(crate) fn eject(&self) {
        if self.healthy.swap(false, Ordering::SeqCst) {
            self.members().for_each(|member| member.forget_connections());
            self.cache.lose();
            self.doubted.notify_one();
            self.changed.notify_one();
        }
    }

    /// Has it checked now, in rotation as it is. For what may be one request's fate and no more.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// How many blocks of a prompt are believed to be in its cache.
    pub(super) fn has_cached(&self, held: &Held) -> u32 {
        self.cache.has(held)
    }

    /// A place for a prompt, if there is one below `limit` and the unit is still in rotation.
    pub(super) fn reserve(self: &Arc<Self>, limit: u32, held: &Held) -> Option<Lease> {
        let before = self.inflight.fetch_add(1, Ordering::SeqCst);
        let lease = Lease { unit: self.clone(), cached: self.has_cached(held) };
        // Counted first and looked second, while a drain leaves rotation first and counts second: one of the two
        // sees the other.
        (before < limit && self.in_rotation()).then_some(lease)
    }

    pub(super) fn prune(&self) {
        self.members().for_each(|member| member.prune());
    }

    /// All that must be well for it to answer.
    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.prefill.iter().chain([&self.front])
    }

    /// Keeps a connection to one of its members whose answer was read to its end.
    pub(super) fn keep(&self, connection: Connection) {
        if self.is_wanted() {
            connection.keep();
        }
    }
}

impl Lease {
    pub(crate) fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }

    /// The unit is given this prompt, and will have it in its cache.
    pub(super) fn takes(&self, prefix: &Prefix) {
        self.unit.cache.takes(prefix);
    }

    /// How many blocks of the prompt were believed to be in the unit's cache.
    pub(crate) fn cached(&self) -> u32 {
        self.cached
    }

    /// The member that answers.
    pub(crate) fn front(&self) -> &Arc<Member> {
        &self.unit.front
    }

    /// The member that is asked first, where there are two pools, and how what it has read is handed over.
    pub(crate) fn prefill(&self) -> Option<(&Arc<Member>, &HandOver)> {
        let prefill = self.unit.route.prefill.as_ref()?;
        Some((self.unit.prefill.as_ref()?, &prefill.hand_over))
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn keep(&self, connection: Connection) {
        self.unit.keep(connection);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.unit.inflight.fetch_sub(1, Ordering::SeqCst);
        // The control plane waits for the requests of a unit that left rotation, and for no other's.
        if !self.unit.in_rotation() {
            self.unit.changed.notify_one();
        }
    }
}
