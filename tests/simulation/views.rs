//! What a test and a person read of a simulated world.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use denv_planner::{UnitPhase, UnitRecord, status};
use denv_schema::UnitId;

use crate::world::Simulation;

impl Simulation {
    /// Recorded units by release.
    pub fn running(&self) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for unit in self.records.units.values() {
            *counts.entry(unit.release.as_str()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// Ready in the planner's eyes.
    pub fn ready(&self) -> usize {
        let world = self.world();
        let ready = |(id, unit): &(&UnitId, &Arc<UnitRecord>)| {
            unit.phase == UnitPhase::Ready && status(&world, id, unit).is_ready()
        };
        self.records.units.iter().filter(ready).count()
    }

    pub fn units(&self) -> Vec<UnitId> {
        self.records.units.keys().cloned().collect()
    }

    pub fn host_of_a_unit(&self) -> usize {
        let host = &self.records.units.values().next().unwrap().members[0].host;
        self.hosts.iter().position(|other| other.name == *host).unwrap()
    }

    pub fn waiting(&self) -> String {
        self.plan().waiting.iter().map(|(subject, on)| format!("{subject}: {on}\n")).collect()
    }

    /// What happened last.
    pub fn transcript(&self) -> String {
        const LINES: usize = 80;
        let mut text = self.wishes.to_string();
        let skipped = self.log.len().saturating_sub(LINES);
        writeln!(text, "… {skipped} lines").unwrap();
        for line in &self.log[skipped..] {
            writeln!(text, "{line}").unwrap();
        }
        for (subject, on) in self.plan().waiting {
            writeln!(text, "waiting: {subject}: {on}").unwrap();
        }
        text
    }
}
