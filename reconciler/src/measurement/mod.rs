//! What gateways and hosts measured of units lately, in memory, for those who judge releases by it. A restart begins
//! anew: what happened before it is not known to have happened lately.
//!
//! It refuses to judge, and nobody plans because of it: only what it is judged to mean enters the world.

mod series;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use denv_gates::alarm::Measured;
use denv_schema::measures::{EngineMeasures, GatewayMeasures, HostMeasures, Lookups, UnitMeasures};
use denv_schema::wire::Generation;
use denv_schema::{MemberId, Name, UnitId};
use jiff::Timestamp;

use series::{Series, slot_length};

pub struct Measurement {
    /// Since when this process has been listening.
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    gateways: BTreeMap<Name, Counted>,
    engines: BTreeMap<Name, BTreeMap<MemberId, EngineMeasures>>,
    series: BTreeMap<UnitId, Series>,
    /// As engines counted when a unit was last looked at.
    lookups: BTreeMap<UnitId, Lookups>,
    looked: Option<Timestamp>,
}

/// What a gateway last said it had counted.
struct Counted {
    begun: Timestamp,
    units: BTreeMap<UnitId, UnitMeasures>,
}

/// A unit that an alarm watches.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    pub unit: &'a UnitId,
    pub generation: Generation,
    /// Whose engine is listened to.
    pub member: &'a MemberId,
    pub host: &'a Name,
    /// Requests go to it.
    pub serves: bool,
    /// How far its alarms look back.
    pub window: Duration,
}

/// How often units are looked at: a reading of an engine's queue or cache each time.
pub const LOOK: Duration = Duration::from_secs(5);
/// Between two looks that are further apart, nobody knows.
const LONGEST_LOOK: Duration = Duration::from_secs(15);

impl Measurement {
    pub fn new(since: Timestamp) -> Self {
        Measurement { since, state: Mutex::default() }
    }

    pub fn gateway_measured(&self, gateway: &Name, measures: GatewayMeasures) {
        let mut state = self.lock();
        let State { gateways, series, .. } = &mut *state;
        let GatewayMeasures { begun, units } = measures;
        let known = gateways.get(gateway).is_some_and(|counted| counted.begun == begun);
        if !known {
            gateways.insert(gateway.clone(), Counted { begun, units: BTreeMap::new() });
        }
        // Of a gateway that has counted for longer than this process listens, nobody knows when.
        let is_new = known || begun >= self.since;
        let Some(counted) = gateways.get_mut(gateway) else { return };
        for (unit, now) in units {
            let nothing = UnitMeasures { generation: now.generation, ..UnitMeasures::default() };
            let before = counted.units.insert(unit.clone(), now.clone());
            let more = match before {
                Some(before) => now.since(&before),
                None if is_new => now.since(&nothing),
                None => continue,
            };
            if let Some(series) = series.get_mut(&unit).filter(|series| series.generation == now.generation) {
                series.now().add_unit(&more);
            }
        }
    }

    pub fn host_measured(&self, host: &Name, measures: HostMeasures) {
        self.lock().engines.insert(host.clone(), measures.members);
    }

    /// Nothing is known any more of what its engines do now.
    pub fn host_gone(&self, host: &Name) {
        self.lock().engines.remove(host);
    }

    /// Looks at the units that are watched now, and forgets others. Meant for every [`LOOK`].
    pub fn look(&self, watched: &[Watched<'_>], exists: impl Fn(&UnitId) -> bool, now: Timestamp) {
        let mut state = self.lock();
        let State { gateways, engines, series, lookups, looked } = &mut *state;
        let passed = looked.replace(now).map(|last| now.duration_since(last).unsigned_abs());
        let passed = passed.filter(|passed| *passed <= LONGEST_LOOK).unwrap_or_default();
        let mut kept = BTreeMap::new();
        for unit in watched {
            let known = series.remove(unit.unit).filter(|series| series.generation == unit.generation);
            let mut series = known.unwrap_or_else(|| Series::begin(unit.generation, now));
            let engine = engines.get(unit.host).and_then(|members| members.get(unit.member));
            if let Some(engine) = engine.filter(|engine| engine.generation == unit.generation) {
                let measured = series.now();
                measured.add_engine(engine);
                if let Some(counted) = engine.cache_lookups {
                    let before = lookups.insert(unit.unit.clone(), counted);
                    let more = before.map_or(Lookups::default(), |before| counted.since(before));
                    measured.lookups.asked += more.asked;
                    measured.lookups.found += more.found;
                }
            }
            if unit.serves {
                series.now().unit_time += passed;
            }
            series.advance(slot_length(unit.window, LOOK), now);
            kept.insert(unit.unit.clone(), series);
        }
        lookups.retain(|unit, _| kept.contains_key(unit));
        gateways.values_mut().for_each(|counted| counted.units.retain(|unit, _| exists(unit)));
        *series = kept;
    }

    /// What these units did since then, added up.
    pub fn since<'u>(&self, units: impl IntoIterator<Item = &'u UnitId>, since: Timestamp) -> Measured {
        let (state, mut sum) = (self.lock(), Measured::default());
        units.into_iter().filter_map(|unit| state.series.get(unit)).for_each(|it| it.add_to(&mut sum, since));
        sum
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
