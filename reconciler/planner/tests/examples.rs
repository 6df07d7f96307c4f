//! The configurations of `examples/manifests/`, planned in a world that fits them: every host that is written or may be
//! launched is there, with the accelerators that its fleet says. The whole journey is kept.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use denv_planner::forecast::{Does, Pace, assumed, forecast};
use denv_planner::{GatewayObserved, Observed, Records, World};
use denv_schema::wire::{Ability, GatewayReport};
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

/// Hosts of fleets that denv launches are observed, not written: as many as such a fleet has at most, up to a few.
fn add_launched(catalog: &mut Catalog) {
    const MOST: u32 = 4;
    for (name, fleet) in catalog.fleets.clone() {
        let written = catalog.hosts.values().filter(|host| host.fleet == name).count();
        if written > 0 {
            continue;
        }
        for number in 1..=fleet.hosts.max.min(MOST * fleet.domain.hosts) {
            let domain = format!("{name}-{}", (number - 1) / fleet.domain.hosts + 1);
            let spec = format!("{{\"fleet\": \"{name}\", \"domain\": \"{domain}\"}}");
            let host = format!("{name}-{number:02}").parse().unwrap();
            catalog.hosts.insert(host, serde_json::from_str(&spec).unwrap());
        }
    }
}

/// All hosts connected and empty, with agents that can do all that agents may; and a gateway.
fn observed(catalog: &Catalog) -> Observed {
    let mut observed = assumed(catalog, now());
    for host in observed.hosts.values_mut() {
        Arc::make_mut(&mut host.report).inventory.abilities = [Ability::Images, Ability::FetchWeights].into();
    }
    let gateway = GatewayObserved {
        connected: true,
        first_heard: now(),
        last_seen: now(),
        version: String::new(),
        report: GatewayReport::default(),
    };
    observed.gateways.insert("gateway".parse().unwrap(), gateway);
    observed
}

/// The whole journey from nothing to all that is desired.
fn journey(catalog: &Catalog) -> String {
    let (observed, records) = (observed(catalog), Records::default());
    let world = World { catalog, records: &records, observed: &observed, now: now() };
    let forecast = forecast(&world, Pace::Expected);
    let mut text = String::new();
    for step in &forecast.moves {
        let batch = step.batch.map_or_else(String::new, |batch| format!(" batch {batch}"));
        writeln!(text, "{:>6}s {}{batch}: {}", step.after, step.stage, said(&step.does)).unwrap();
    }
    for (stage, of_stage) in &forecast.stages {
        writeln!(text, "{stage}: {} is {}", of_stage.to, of_stage.phase).unwrap();
    }
    for (fleet, room) in &forecast.fleets {
        writeln!(text, "{fleet}: {} of {} {} are free", room.free_after, room.total, room.of).unwrap();
    }
    for cost in &forecast.cost {
        writeln!(text, "{} {} an hour", cost.after, cost.currency).unwrap();
    }
    for waiting in &forecast.waiting {
        writeln!(text, "{} waits: {}", waiting.subject, waiting.on).unwrap();
    }
    assert_eq!(forecast.violations, [] as [String; 0]);
    text
}

fn said(does: &Does) -> String {
    match does {
        Does::Start { unit, release, fleet, members, why } => {
            let places: Vec<String> = members
                .chunk_by(|a, b| a.pool == b.pool)
                .map(|pool| {
                    let (first, last) = (&pool[0], &pool[pool.len() - 1]);
                    let gpus: usize = pool.iter().map(|member| member.gpus.len()).sum();
                    let hosts = if pool.len() == 1 {
                        format!("{} {:?}", first.host, first.gpus)
                    } else {
                        format!("{} to {}, {} hosts, {gpus} GPUs", first.host, last.host, pool.len())
                    };
                    format!("{} on {hosts}", first.pool)
                })
                .collect();
            let why = why.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("start {unit} of {release} in {fleet}: {}; {why}", places.join("; "))
        }
        Does::Restart { unit, reason } => format!("restart {unit}: {reason}"),
        Does::Ready { unit } => format!("{unit} is ready"),
        Does::Drain { unit, reason, .. } => format!("drain {unit}: {reason}"),
        Does::Stop { unit, .. } => format!("stop {unit}"),
        Does::Phase { phase } => phase.clone(),
        Does::Hold { release, reason } => format!("hold {release}: {reason}"),
        Does::Test { suite, asked, part } => format!("suite {suite} ({}): {asked}", part.as_str()),
        Does::Wait { on } => format!("waits: {on}"),
    }
}

#[test]
fn every_example_is_valid_and_planned() {
    let examples = examples();
    assert!(examples.len() >= 7, "{examples:?}");
    for name in examples {
        let files = tree::read(&folder().join(&name)).unwrap();
        let mut catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{name}:\n{found}"));
        add_launched(&mut catalog);
        insta::assert_snapshot!(name, journey(&catalog));
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
