//! A world that somebody saved with `denv snapshot`, gone on with here: its manifests, its records, and hosts and
//! gateways as they were last heard of. To the planner it is as if the control plane had just been started again.

use std::collections::BTreeMap;

use denv_planner::{Snapshot, World, routes};
use denv_schema::Catalog;
use jiff::Timestamp;

use crate::control::{Control, reloaded};
use crate::gateway::Gateway;
use crate::host::Host;
use crate::wishes::Wishes;
use crate::world::{Beginning, Simulation};

/// The snapshot that a text is, or why it is none.
pub fn read(text: &str) -> Result<Snapshot, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("it is no snapshot that this denv understands: {error}"))
}

impl Simulation {
    /// Hosts that were away are cut off here. `lag`: the most seconds that a message takes.
    pub fn saved(snapshot: &Snapshot, lag: u64, seed: u64) -> Result<Self, String> {
        let Snapshot { deployed, records, observed, .. } = snapshot;
        let now = Timestamp::from_second(snapshot.taken_at.as_second()).map_err(|error| error.to_string())?;
        let files = snapshot.files();
        let catalog = Catalog::from_files_after(&files, deployed).map_err(|found| found.to_string())?;
        let members = || records.units.values().flat_map(|unit| &unit.members);
        let specs: BTreeMap<_, _> = members().map(|member| (&member.id, &member.spec)).collect();
        let hosts = observed.hosts.iter().map(|(name, known)| {
            let slots = catalog.hosts.get(name).and_then(|host| host.cpu_slots).unwrap_or(0);
            let mut host = Host::new(name.clone(), known.report.inventory.clone(), slots);
            host.restore(&known.report, &specs, now);
            host.cut = !known.connected;
            host
        });
        let hosts: Vec<Host> = hosts.collect();
        let serving = hosts.iter().flat_map(|host| &host.engines).filter(|engine| engine.serves());
        let serving = serving.map(|engine| (engine.member.clone(), engine.generation)).collect();
        let told = routes(&World { catalog: &catalog, records, observed, now });
        let gateways = observed.gateways.iter().map(|(name, known)| {
            let mut gateway = Gateway::new(name.clone(), now);
            gateway.hear(told.clone());
            gateway.act(&serving, false);
            gateway.cut = !known.connected;
            gateway
        });
        let mut stages: Vec<_> = catalog.stages.keys().cloned().collect();
        // Events happen to the first few: in another life to others.
        let first = usize::try_from(seed).unwrap_or(0) % stages.len().max(1);
        stages.rotate_left(first);
        let beginning = Beginning {
            gateways: gateways.collect(),
            wishes: Wishes::written(files),
            stages,
            control: Control::of(records, deployed, now),
            observed: reloaded(observed.clone(), now),
            catalog,
            hosts,
            lag,
            now,
        };
        let mut simulation = Simulation::begin(beginning, seed);
        simulation.truth.slots = members().map(|member| (member.id.clone(), member.cpu_slots)).collect();
        simulation.runs.keep(observed.trials.clone());
        Ok(simulation)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use denv_schema::tree::{self, Files};
    use denv_schema::wire::{Generation, MemberState};
    use denv_schema::{Digest, MemberId};

    use super::*;
    use crate::seeds::{Origin, run};

    fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/scripts/saved.json")
    }

    fn snapshot() -> Snapshot {
        read(&std::fs::read_to_string(path()).unwrap()).unwrap()
    }

    fn said(simulation: &Simulation) -> Vec<(MemberId, Generation, MemberState, Digest)> {
        let reports = simulation.hosts.iter().map(Host::report);
        let members = reports.flat_map(|report| report.members);
        members.map(|(id, member)| (id, member.generation, member.state, member.spec)).collect()
    }

    #[test]
    fn hosts_are_as_they_reported_and_nothing_that_runs_is_touched() {
        let snapshot = snapshot();
        let mut simulation = Simulation::saved(&snapshot, 0, 1).unwrap();
        let reports = snapshot.observed.hosts.values().flat_map(|host| &host.report.members);
        let reported: Vec<_> =
            reports.map(|(id, member)| (id.clone(), member.generation, member.state, member.spec)).collect();
        assert!(reported.len() >= 5, "{reported:?}");
        assert_eq!(said(&simulation), reported);
        let units = &snapshot.records.units;
        assert_eq!(&simulation.records.units, units);
        assert_eq!(simulation.records.stages, snapshot.records.stages);
        let engines = |simulation: &Simulation| {
            let engines = simulation.hosts.iter().flat_map(|host| &host.engines);
            engines.map(|engine| (engine.member.clone(), engine.generation)).collect::<Vec<_>>()
        };
        let before = engines(&simulation);
        simulation.run(60);
        let after = engines(&simulation);
        assert!(before.iter().all(|engine| after.contains(engine)), "{}", simulation.transcript());
    }

    #[test]
    fn a_saved_world_lives_through_faults() {
        let (origin, restless) = Origin::of_snapshot(Arc::new(snapshot()));
        assert_eq!(restless, None);
        run(0..12, &origin);
    }

    /// Of the manifests of an example: a release half way through production, and a host that was cut off just now.
    #[test]
    #[ignore = "writes tests/scenarios/scripts/saved.json anew"]
    fn save() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manifests/vllm-8gpu");
        let mut files: Files = tree::read(&folder).unwrap();
        let software = String::from_utf8(files["software.yaml"].clone()).unwrap();
        let first = software.split("---\n").find(|text| text.contains("kind: Release")).unwrap();
        let next = first.replace("llama-70b-r1", "llama-70b-r2").replace("131072", "65536");
        files.insert("software.yaml".to_owned(), format!("{software}---\n{next}").into_bytes());
        let morning = "2027-01-14T08:00:00Z".parse().unwrap();
        let mut simulation = Simulation::written(files, morning, 1).unwrap();
        simulation.run(3600);
        assert_eq!(simulation.ready(), 5, "{}", simulation.transcript());
        simulation.want_release_named("chat/test", "llama-70b-r2");
        simulation.run(900);
        simulation.want_release_named("chat/prod", "llama-70b-r2");
        simulation.run(240);
        simulation.hosts[2].cut = true;
        simulation.run(12);
        let text = serde_json::to_string_pretty(&simulation.save()).unwrap();
        std::fs::write(path(), text + "\n").unwrap();
        println!("{}", simulation.transcript());
    }
}
