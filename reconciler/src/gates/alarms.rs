use std::collections::BTreeMap;
use std::sync::Arc;

use denv_gates::alarm::{Measured, evaluate};
use denv_planner::{AlarmObserved, Phase, Records, UnitPhase, UnitRecord};
use denv_schema::quantity::Period;
use denv_schema::{Catalog, Digest, Name, StageId, UnitId};
use jiff::{SignedDuration, Timestamp};

use super::Gates;
use crate::measurement::{Measurement, Watched};

impl Gates {
    /// Looks at what the units of stages with alarms do, and says what the alarms mean by it.
    pub(super) fn look(&self) {
        let (state, now) = (self.state.borrow().clone(), Timestamp::now());
        let Some(catalog) = &state.catalog else { return };
        let watched = watched(catalog, &state.records);
        self.measurement.look(&watched, |unit| state.records.units.contains_key(unit), now);
        self.observation.alarms_read(readings(catalog, &state.records, &self.measurement, now));
    }
}

fn watched<'a>(catalog: &'a Catalog, records: &'a Records) -> Vec<Watched<'a>> {
    let windows: BTreeMap<&StageId, std::time::Duration> = catalog
        .stages
        .iter()
        .filter_map(|(id, spec)| {
            let windows = spec.alarms.iter().filter_map(|name| catalog.alarms.get(name));
            Some((id, windows.map(|alarm| alarm.window.get()).max()?))
        })
        .collect();
    let watched = |(unit, record): (&'a UnitId, &'a Arc<UnitRecord>)| {
        let front = record.front();
        Some(Watched {
            unit,
            generation: record.generation,
            member: &front.id,
            host: &front.host,
            serves: record.phase == UnitPhase::Ready,
            window: *windows.get(&record.stage)?,
        })
    };
    records.units.iter().filter_map(watched).collect()
}

/// What each alarm of each stage says of what its stage moves to, or of what it runs.
fn readings(
    catalog: &Catalog,
    records: &Records,
    measurement: &Measurement,
    now: Timestamp,
) -> BTreeMap<StageId, BTreeMap<Name, AlarmObserved>> {
    let mut units: BTreeMap<&StageId, Vec<(&UnitId, &UnitRecord)>> = BTreeMap::new();
    for (id, record) in records.units.iter().filter(|(_, record)| record.is_active()) {
        units.entry(&record.stage).or_default().push((id, record));
    }
    let mut found = BTreeMap::new();
    for (id, spec) in catalog.stages.iter().filter(|(_, spec)| !spec.alarms.is_empty()) {
        let Some(of) = judged(records, id) else { continue };
        let of_stage = units.get(id).map_or(&[][..], Vec::as_slice);
        let (new, old): (Vec<_>, Vec<_>) = of_stage.iter().partition(|(_, record)| record.template == of);
        let ids = |units: &[(&'_ UnitId, &'_ UnitRecord)]| {
            units.iter().map(|(id, _)| (*id).clone()).collect::<Vec<_>>()
        };
        let (new, old) = (ids(&new), ids(&old));
        // Alarms of a stage mostly look back as far as each other.
        let mut windows: BTreeMap<Period, (Measured, Option<Measured>)> = BTreeMap::new();
        let readings = spec.alarms.iter().filter_map(|name| {
            let alarm = catalog.alarms.get(name)?;
            let (now_does, did_before) = windows.entry(alarm.window).or_insert_with(|| {
                let window = SignedDuration::try_from(alarm.window.get()).unwrap_or(SignedDuration::MAX);
                let since = now.checked_sub(window).unwrap_or(Timestamp::MIN);
                let before = (!old.is_empty()).then(|| measurement.since(&old, since));
                (measurement.since(&new, since), before)
            });
            let reading = evaluate(alarm, now_does, did_before.as_ref());
            Some((name.clone(), AlarmObserved { of, reading }))
        });
        found.insert(id.clone(), readings.collect());
    }
    found
}

/// The template whose units are looked at: that of the deployment, once it moves units, else the good one.
fn judged(records: &Records, stage: &StageId) -> Option<Digest> {
    let record = records.stages.get(stage)?;
    let moves =
        |phase: Phase| matches!(phase, Phase::Rolling { .. } | Phase::Baking { .. } | Phase::Verifying);
    let deployment = record.deployment.as_ref().filter(|deployment| moves(deployment.phase));
    let good = record.good.as_ref().map(|good| good.digest);
    deployment.map(|deployment| deployment.digest).or(good)
}
