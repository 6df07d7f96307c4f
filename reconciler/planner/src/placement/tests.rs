use std::collections::BTreeMap;

use denv_schema::Catalog;
use denv_schema::launch::{PoolTemplate, Probe};
use denv_schema::manifest::{EngineKind, Parallelism, PlacementRule, Pool, PoolName, ProviderKind};
use denv_schema::quantity::Period;
use denv_schema::tree::Files;
use denv_schema::wire::{Gpu, HostReport, Inventory};
use insta::assert_snapshot;
use jiff::Timestamp;

use super::*;
use crate::records::Records;
use crate::world::{HostObserved, Observed, World};

/// A fleet of hosts with these many GPUs; a host of 0 was never seen.
struct Bench {
    catalog: Catalog,
    observed: Observed,
    records: Records,
    placed: Vec<(StageId, Digest, Placement)>,
    engine: EngineKind,
}

fn bench(gpus: &[u32]) -> Bench {
    let mut text = "
apiVersion: denv.dev/v1
kind: Provider
metadata: {name: p}
spec: {kind: owned}
---
apiVersion: denv.dev/v1
kind: Fleet
metadata: {name: f}
spec: {provider: p, region: r, purchase: owned, accelerator: h200, hosts: {min: 0, max: 99}}
"
    .to_owned();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut observed = Observed { since: now, ..Observed::default() };
    for (i, count) in gpus.iter().enumerate() {
        text.push_str(&format!(
            "---\napiVersion: denv.dev/v1\nkind: Host\nmetadata: {{name: h{i}}}\nspec: {{fleet: f}}\n"
        ));
        let gpu = |index| Gpu { index, model: "H200".to_owned(), memory_bytes: 0 };
        let inventory = Inventory { gpus: (0..*count).map(gpu).collect(), ..Inventory::default() };
        let host = HostObserved {
            connected: true,
            last_seen: now,
            version: String::new(),
            ingress: String::new(),
            report: HostReport { inventory, ..HostReport::default() }.into(),
        };
        if *count > 0 {
            observed.hosts.insert(format!("h{i}").parse().unwrap(), host);
        }
    }
    let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
    let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    Bench { catalog, observed, records: Records::default(), placed: Vec::new(), engine: EngineKind::Vllm }
}

fn template_of(model: &str, needs: Pool) -> LaunchTemplate {
    LaunchTemplate {
        engine: EngineKind::Vllm,
        model: model.to_owned(),
        env: BTreeMap::new(),
        weights: None,
        probe: Probe {
            path: "/health".to_owned(),
            interval: Period::from_secs(1),
            timeout: Period::from_secs(1),
            failures: 3,
        },
        metrics_path: None,
        start_timeout: Period::from_secs(1),
        stop_timeout: Period::from_secs(1),
        pools: vec![PoolTemplate { name: PoolName::Replica, needs, argv: Vec::new(), flags: Vec::new() }],
        placement: PlacementRule::SameDomain,
        image: None,
        adapter: None,
        kv_cache: None,
    }
}

impl Bench {
    /// Places a unit of `gpus` and takes its place.
    fn place(&mut self, stage: &str, gpus: u32) -> String {
        self.place_release("r1", stage, gpus)
    }

    fn place_release(&mut self, release: &str, stage: &str, gpus: u32) -> String {
        let digest = Digest::of_bytes(release.as_bytes());
        let world = World {
            catalog: &self.catalog,
            records: &self.records,
            observed: &self.observed,
            now: self.observed.since,
        };
        let parallelism = if self.engine == EngineKind::TensorrtLlm {
            Parallelism { tensor: gpus, ..Parallelism::default() }
        } else {
            Parallelism { data: gpus, ..Parallelism::default() }
        };
        let needs = Pool { gpus: Some(gpus), cpu_slots: None, parallelism };
        let template = LaunchTemplate { engine: self.engine, ..template_of(release, needs) };
        let name = release.parse().unwrap();
        let release = Release { name: &name, template: &template, digest };
        let stage = stage.parse().unwrap();
        let mut usage = Usage::of(&world, &Default::default());
        for (stage, template, placement) in &self.placed {
            usage.reserve(stage, *template, placement);
        }
        match place(&usage, &stage, &"f".parse().unwrap(), &release) {
            Ok(placement) => {
                let said = format!("{} {:?}", placement.places[0].host, placement.places[0].gpus);
                self.placed.push((stage, digest, placement));
                said
            }
            Err(waiting) => waiting.to_string(),
        }
    }
}

#[test]
fn a_stage_is_spread_over_hosts_and_no_gpu_is_given_twice() {
    let mut bench = bench(&[4, 4]);
    assert_eq!(bench.place("chat/prod", 2), "h0 [0, 1]");
    assert_eq!(bench.place("chat/prod", 2), "h1 [0, 1]");
    assert_eq!(bench.place("chat/prod", 2), "h0 [2, 3]");
    assert_eq!(bench.place("chat/prod", 2), "h1 [2, 3]");
}

#[test]
fn the_host_where_least_is_left_over_is_filled_first_so_that_whole_ones_stay_free() {
    let mut bench = bench(&[8, 4, 8]);
    assert_eq!(bench.place("chat/test", 4), "h1 [0, 1, 2, 3]");
    assert_eq!(bench.place("chat/prod", 8), "h0 [0, 1, 2, 3, 4, 5, 6, 7]");
    assert_eq!(bench.place("chat/prod", 8), "h2 [0, 1, 2, 3, 4, 5, 6, 7]");
}

#[test]
fn what_is_missing_is_said_so_that_a_person_can_act() {
    let mut bench = bench(&[4, 2, 0, 8]);
    bench.observed.hosts.get_mut("h3").unwrap().connected = false;
    assert_eq!(bench.place("chat/prod", 3), "h0 [0, 1, 2]");
    assert_snapshot!(
        bench.place("chat/prod", 3),
        @"needs 3 GPUs free on one host of fleet `f`; the most free is 2, on `h1` (1 silent, 1 never joined); add hosts to the fleet, free some, or use `strategy: replace`"
    );
}

#[test]
fn what_denv_cannot_start_is_said_and_started_as_nothing_else() {
    let mut bench = bench(&[8]);
    bench.catalog.fleets.get_mut("f").unwrap().gpus_per_host = Some(8);
    bench.engine = EngineKind::TensorrtLlm;
    assert_snapshot!(bench.place("chat/prod", 16), @"release `r1` can't run on fleet `f`: a replica takes 16 GPUs and a host there has 8; TensorRT-LLM over several hosts needs an MPI launcher, which denv is not");
    bench.engine = EngineKind::Vllm;
    bench.catalog.hosts.clear();
    bench.catalog.providers.get_mut("p").unwrap().kind = ProviderKind::Aws;
    assert_snapshot!(bench.place("chat/prod", 8), @"release `r1` can't run on fleet `f`: denv does not launch that provider's hosts yet");
}

#[test]
fn a_cordoned_host_takes_nothing() {
    let mut bench = bench(&[4, 4]);
    bench.catalog.hosts.get_mut("h0").unwrap().cordoned = true;
    assert_eq!(bench.place("chat/prod", 1), "h1 [0]");
    assert_eq!(bench.place("chat/prod", 1), "h1 [1]");
}

#[test]
fn a_new_release_is_spread_whatever_the_old_one_leaves_behind() {
    let mut bench = bench(&[4, 4]);
    assert_eq!(bench.place_release("old", "chat/prod", 1), "h0 [0]");
    assert_eq!(bench.place_release("old", "chat/prod", 1), "h1 [0]");
    assert_eq!(bench.place_release("new", "chat/prod", 1), "h0 [1]");
    assert_eq!(bench.place_release("new", "chat/prod", 1), "h1 [1]");
}

mod racks;
