//! What a simulated world's manifests say: made of a shape, or written by somebody.

use std::fmt;

use denv_planner::forecast::assumed;
use denv_planner::{Observed, Snapshot};
use denv_schema::diff::ManifestKey;
use denv_schema::manifest::Kind;
use denv_schema::tree::Files;
use denv_schema::{Catalog, Reading, edit};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::control::Control;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::manifests::{Catalogs, Desired, DesiredStage, RELEASES, Shape};
use crate::world::{Beginning, Simulation};

pub enum Wishes {
    Shaped { shape: Box<Shape>, desired: Desired, catalogs: Catalogs },
    Written(Written),
}

/// Manifests in files, as they are and as they were at first.
pub struct Written {
    files: Files,
    first: Files,
}

impl Wishes {
    /// Each stage wants two units of release 0 in each of its fleets.
    pub fn of_shape(shape: &Shape) -> (Self, Catalog) {
        let first = DesiredStage { present: true, release: 0, units: 2 };
        let stages = vec![first; shape.stages.len()];
        let desired = Desired { stages, removed: Vec::new(), cordoned: Vec::new() };
        let mut catalogs = Catalogs::default();
        let catalog = catalogs.get(shape, &desired);
        (Wishes::Shaped { shape: Box::new(shape.clone()), desired, catalogs }, catalog)
    }

    pub fn written(files: Files) -> Self {
        Wishes::Written(Written { first: files.clone(), files })
    }
}

impl fmt::Display for Wishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wishes::Shaped { shape, desired, .. } => writeln!(f, "{shape:?}\n{desired:?}"),
            Wishes::Written(_) => Ok(()),
        }
    }
}

impl Simulation {
    /// A world of these manifests: all their hosts and one gateway are there, nothing runs, and messages take no time.
    pub fn written(files: Files, now: Timestamp, seed: u64) -> Result<Self, String> {
        let catalog = Catalog::from_files(&files).map_err(|found| found.to_string())?;
        let hosts = assumed(&catalog, now).hosts.into_iter().map(|(name, observed)| {
            let slots = catalog.hosts[&name].cpu_slots.unwrap_or(0);
            let gpus = u32::try_from(observed.report.inventory.gpus.len()).unwrap();
            Host::new(name, Host::inventory(gpus), slots)
        });
        let beginning = Beginning {
            hosts: hosts.collect(),
            stages: catalog.stages.keys().cloned().collect(),
            wishes: Wishes::written(files),
            catalog,
            control: Control::new(now),
            observed: Observed { since: now, ..Observed::default() },
            gateways: vec![Gateway::new("gateway".parse().unwrap(), now)],
            lag: 0,
            now,
        };
        Ok(Simulation::begin(beginning, seed))
    }

    /// Changes what a world that was made of a shape wants.
    pub fn desire(&mut self, change: impl FnOnce(&mut Desired)) {
        if let Wishes::Shaped { shape, desired, catalogs } = &mut self.wishes {
            change(desired);
            self.catalog = catalogs.get(shape, desired);
            self.wakes();
        }
    }

    /// Sets a field of a manifest that somebody has written, as a commit would; or says why the commit is refused, and
    /// changes nothing.
    pub fn push(&mut self, kind: Kind, name: &str, pointer: &str, value: &Value) -> Result<(), String> {
        let Wishes::Written(written) = &mut self.wishes else { return Err("no manifests".to_owned()) };
        let key = ManifestKey { kind, name: name.to_owned() };
        let reading = Reading::of(&written.files);
        let edit = edit::patch(&written.files, &reading, &key, pointer, value);
        let files = edit.map_err(|error| error.to_string())?.applied_to(&written.files);
        let deployed = self.control.deployed();
        self.catalog = Catalog::from_files_after(&files, &deployed).map_err(|found| found.to_string())?;
        written.files = files;
        self.wakes();
        Ok(())
    }

    /// A stage wants the release of this number: of all that are written, those that do not fit are refused.
    pub fn want_release(&mut self, stage: usize, number: u8) {
        if let Wishes::Shaped { .. } = self.wishes {
            return self.desire(|desired| desired.stages[stage].release = number % RELEASES);
        }
        let at = usize::from(number) % self.catalog.releases.len();
        let release = self.catalog.releases.keys().nth(at).unwrap().clone();
        self.try_push(Kind::Stage, &self.stages[stage].to_string(), "/spec/release", &json!(release));
    }

    /// A stage that somebody has written wants this release.
    pub fn want_release_named(&mut self, stage: &str, release: &str) {
        self.push(Kind::Stage, stage, "/spec/release", &json!(release)).unwrap();
    }

    /// For how many looks a world may take to come to rest. What people write bakes for as long as they say.
    pub fn patience(&self) -> u32 {
        if matches!(self.wishes, Wishes::Shaped { .. }) { 40 } else { 400 }
    }

    /// The world as `denv snapshot` would save it.
    pub fn save(&self) -> Snapshot {
        let Wishes::Written(written) = &self.wishes else { panic!("no manifests") };
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at: self.now,
            revision: None,
            manifests: written.files.iter().map(|(path, bytes)| (path.clone(), text(bytes))).collect(),
            deployed: self.control.deployed(),
            records: self.records.clone(),
            observed: self.observed.clone(),
        }
    }

    /// A stage wants at least so many units: in each of its fleets where it was made of a shape, else in the first.
    pub fn want_units(&mut self, stage: usize, units: u32) {
        if let Wishes::Shaped { .. } = self.wishes {
            return self.desire(|desired| desired.stages[stage].units = units);
        }
        self.try_push(
            Kind::Stage,
            &self.stages[stage].to_string(),
            "/spec/fleets/0/units/min",
            &json!(units),
        );
    }

    pub fn want_cordoned(&mut self, host: usize, cordoned: bool) {
        if let Wishes::Shaped { .. } = self.wishes {
            return self.desire(|desired| {
                desired.cordoned.retain(|other| *other != host);
                desired.cordoned.extend(cordoned.then_some(host));
            });
        }
        self.try_push(Kind::Host, self.hosts[host].name.clone().as_str(), "/spec/cordoned", &json!(cordoned));
    }

    fn try_push(&mut self, kind: Kind, name: &str, pointer: &str, value: &Value) {
        if self.push(kind, name, pointer, value).is_err() {
            self.note(format!("{kind} {name} cannot have {pointer} {value}"));
        }
    }

    /// A world made of a shape asks for releases that work in a size that fits; another for what it asked at first.
    pub fn want_what_works(&mut self) {
        if let Wishes::Written(written) = &mut self.wishes {
            written.files.clone_from(&written.first);
            self.catalog = Catalog::from_files(&written.first).unwrap_or_else(|found| panic!("{found}"));
            return self.wakes();
        }
        self.desire(|desired| {
            desired.removed.clear();
            desired.cordoned.clear();
            for DesiredStage { present, release, units } in &mut desired.stages {
                (*present, *release, *units) = (true, *release % 2, 1);
            }
        });
    }
}
