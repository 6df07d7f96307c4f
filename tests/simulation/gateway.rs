//! A simulated gateway: what it was told, and what it really routes to, a step a second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use denv_schema::wire::{GatewayReport, Generation, Rotation, UnitReport, UnitRoute};
use denv_schema::{MemberId, Name, UnitId};
use jiff::Timestamp;

#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub struct Gateway {
    pub name: Name,
    /// A fault between it and the reconciler: it serves on from what it last knew.
    pub cut: bool,
    pub linked: bool,
    /// It does not look at what it is told.
    pub deaf: bool,
    /// A dead one serves nothing.
    pub alive: bool,
    /// When it was last taken for dead.
    pub last_dead: Option<Timestamp>,
    /// Since when no stream is open.
    pub alone_since: Timestamp,
    pub inbox: VecDeque<(Timestamp, Vec<UnitRoute>)>,
    pub outbox: VecDeque<(Timestamp, GatewayReport)>,
    /// What it was told last on this stream.
    pub told: Option<Vec<UnitRoute>>,
    units: BTreeMap<UnitId, Unit>,
}

/// A gateway that is alone for longer is taken for dead, whatever it does.
const LOST_AFTER: i64 = 60;

struct Unit {
    route: UnitRoute,
    /// A check has passed.
    healthy: bool,
    inflight: u32,
}

impl Unit {
    fn in_rotation(&self) -> bool {
        self.route.rotation == Rotation::In && self.healthy
    }
}

impl Gateway {
    pub fn new(name: Name, now: Timestamp) -> Self {
        Gateway {
            name,
            cut: false,
            linked: false,
            deaf: false,
            alive: true,
            last_dead: None,
            alone_since: now,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            told: None,
            units: BTreeMap::new(),
        }
    }

    /// Whether it may be serving in denv's eyes.
    pub fn is_live(&self, now: Timestamp) -> bool {
        let alone = now.as_second() - self.alone_since.as_second();
        self.alive && (self.linked || alone < LOST_AFTER)
    }

    pub fn detach(&mut self, now: Timestamp) {
        if self.linked {
            self.alone_since = now;
        }
        self.linked = false;
        self.told = None;
        self.inbox.clear();
        self.outbox.clear();
    }

    /// It starts anew with what it last knew, and has checked nothing yet.
    pub fn die(&mut self, now: Timestamp) {
        self.detach(now);
        self.alive = false;
        for unit in self.units.values_mut() {
            (unit.healthy, unit.inflight) = (false, 0);
        }
    }

    pub fn hear(&mut self, routes: Vec<UnitRoute>) {
        let mut before = std::mem::take(&mut self.units);
        for route in routes {
            let known = before.remove(&route.unit);
            let same = known.filter(|known| known.route.generation == route.generation);
            let (healthy, inflight) = same.map_or((false, 0), |known| (known.healthy, known.inflight));
            self.units.insert(route.unit.clone(), Unit { route, healthy, inflight });
        }
    }

    /// A second passes; `serving` are the engines that answer, `busy`: requests never end.
    pub fn act(&mut self, serving: &BTreeSet<(MemberId, Generation)>, busy: bool) {
        for unit in self.units.values_mut().filter(|_| self.alive) {
            let serves = |member: &MemberId| serving.contains(&(member.clone(), unit.route.generation));
            unit.healthy = unit.route.members().all(serves);
            unit.inflight = match unit.in_rotation() {
                _ if !unit.healthy => 0,
                true => 2,
                false if busy => unit.inflight,
                false => unit.inflight.saturating_sub(1),
            };
        }
    }

    /// Whether it sends new requests to this generation of a member.
    pub fn sends_to(&self, member: &MemberId, generation: Generation) -> bool {
        let is_asked = |unit: &Unit| {
            unit.route.members().any(|asked| asked == member) && unit.route.generation == generation
        };
        self.alive && self.units.values().any(|unit| is_asked(unit) && unit.in_rotation())
    }

    pub fn report(&self) -> GatewayReport {
        let report = |(id, unit): (&UnitId, &Unit)| {
            let report = UnitReport {
                generation: unit.route.generation,
                rotation: unit.route.rotation,
                in_rotation: unit.in_rotation(),
                inflight: unit.inflight,
            };
            (id.clone(), report)
        };
        GatewayReport { config: None, units: self.units.iter().map(report).collect() }
    }
}
