//! The configurations of `examples/manifests/`, planned in a world that fits them: every host that is written is there,
//! with the accelerators that its fleet says. What comes out is kept, and what can't be placed says why.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use denv_planner::{HostObserved, Observed, Records, World, plan};
use denv_schema::wire::{Gpu, HostReport, Inventory};
use denv_schema::{Catalog, tree};
use jiff::Timestamp;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/manifests")
}

fn examples() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A Thursday morning, in the windows that they have.
fn now() -> Timestamp {
    "2027-01-14T08:00:00Z".parse().unwrap()
}

/// All hosts that are written, connected and empty.
fn observed(catalog: &Catalog) -> Observed {
    let mut observed = Observed { since: now(), ..Observed::default() };
    for (name, host) in &catalog.hosts {
        let fleet = &catalog.fleets[&host.fleet];
        let gpu = |index| Gpu { index, model: fleet.accelerator.to_string(), memory_bytes: 0 };
        let gpus = (0..fleet.gpus_per_host.unwrap_or(0)).map(gpu).collect();
        let seen = HostObserved {
            connected: true,
            last_seen: now(),
            version: String::new(),
            ingress: String::new(),
            report: HostReport {
                inventory: Inventory { gpus, ..Inventory::default() },
                ..HostReport::default()
            },
        };
        observed.hosts.insert(name.clone(), seen);
    }
    observed
}

/// What is done, pass by pass, until something has to happen first; and what that is.
fn first_steps(catalog: &Catalog) -> String {
    let (observed, mut records) = (observed(catalog), Records::default());
    let mut text = String::new();
    for _ in 0..20 {
        let plan = plan(&World { catalog, records: &records, observed: &observed, now: now() });
        for step in &plan.steps {
            writeln!(text, "{}: {step}", step.subject()).unwrap();
            records.apply(step);
        }
        if plan.steps.is_empty() {
            for (subject, waiting) in &plan.waiting {
                writeln!(text, "{subject} waits: {waiting}").unwrap();
            }
            return text;
        }
    }
    panic!("the plan does not come to rest:\n{text}");
}

#[test]
fn every_example_is_valid_and_planned() {
    let examples = examples();
    assert!(examples.len() >= 7, "{examples:?}");
    for name in examples {
        let files = tree::read(&folder().join(&name)).unwrap();
        let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{name}:\n{found}"));
        insta::assert_snapshot!(name, first_steps(&catalog));
    }
}

#[test]
fn every_example_tells_editors_of_its_schema_and_people_what_it_is() {
    // The quickstart is explained by the README of the whole.
    for name in examples().into_iter().filter(|name| name != "quickstart") {
        let folder = folder().join(&name);
        assert!(folder.join("README.md").is_file(), "{name} has no README.md");
        for (file, bytes) in tree::read(&folder).unwrap() {
            let text = String::from_utf8(bytes).unwrap();
            let first = text.lines().next().unwrap_or_default();
            let path = first.strip_prefix("# yaml-language-server: $schema=");
            let path = path.unwrap_or_else(|| panic!("{name}/{file} names no schema"));
            assert!(folder.join(path).is_file(), "{name}/{file}: there is no {path}");
        }
    }
}
