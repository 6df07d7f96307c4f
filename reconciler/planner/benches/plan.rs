//! What planning costs with 10,000 hosts of 8 GPUs and 1,200 units: `cargo bench -p denv-planner`.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::fmt::Write as _;
use std::sync::Arc;

use denv_planner::{HostObserved, Observed, Plan, Records, UnitPhase, World, checker, plan, routes};
use denv_schema::tree::Files;
use denv_schema::wire::{Gpu, HostReport, Inventory, MemberReport, MemberState};
use denv_schema::{Catalog, Name};
use divan::{Bencher, black_box};
use jiff::{SignedDuration, Timestamp};

const HOSTS: u32 = 10_000;
const STAGES: u32 = 12;
const UNITS: u32 = 100;

fn main() {
    divan::main();
}

struct Bench {
    catalog: Catalog,
    records: Records,
    observed: Observed,
    now: Timestamp,
}

fn catalog(hosts: u32) -> Catalog {
    let mut text = String::new();
    let mut add = |kind: &str, name: &str, spec: &str| {
        write!(
            text,
            "---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        )
        .unwrap();
    };
    add("Provider", "p", "kind: owned");
    add(
        "Fleet",
        "f",
        "provider: p, region: r, purchase: owned, accelerator: h200, hosts: {min: 0, max: 99999}",
    );
    add("Engine", "e", "kind: llama-cpp, version: '1', command: [serve]");
    add("Recipe", "r", "model: m, engine: e, hardware: {accelerator: h200}");
    add(
        "Release",
        "one",
        "model: {name: m}, engine: e, recipe: r, \
         topology: {mode: aggregated, replica: {gpus: 8, parallelism: {tensor: 8}}}",
    );
    for host in 0..hosts {
        add("Host", &format!("host-{host:05}"), "fleet: f");
    }
    for stage in 0..STAGES {
        add("Environment", &format!("env-{stage}"), "stages: [prod]");
        let spec = format!(
            "environment: env-{stage}, release: one, fleets: [{{name: f, units: {{min: {UNITS}}}}}], \
             rollout: {{strategy: surge, batches: [100%], bake: 0s}}"
        );
        add("Stage", "prod", &spec);
    }
    let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
    Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"))
}

impl Bench {
    /// Hosts that have nothing to do yet.
    fn empty(hosts: u32) -> Self {
        let catalog = catalog(hosts);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let gpu = |index| Gpu { index, model: "H200".to_owned(), memory_bytes: 0 };
        let inventory = Inventory { gpus: (0..8).map(gpu).collect(), ..Inventory::default() };
        let host = HostObserved {
            connected: true,
            last_seen: now,
            version: String::new(),
            ingress: "127.0.0.1:1".to_owned(),
            report: HostReport { inventory, ..HostReport::default() }.into(),
        };
        let hosts = catalog.hosts.keys().map(|name| (name.clone(), host.clone())).collect();
        let observed = Observed { hosts, since: now, ..Observed::default() };
        let mut bench = Bench { catalog, records: Records::default(), observed, now };
        // Deployments are opened, and begin.
        bench.carry_out();
        bench.carry_out();
        bench
    }

    /// All units run.
    fn at_rest(hosts: u32) -> Self {
        let mut bench = Bench::empty(hosts);
        while bench.carry_out() > 0 {
            for (unit, member) in
                bench.records.units.values().flat_map(|unit| unit.members.iter().map(move |of| (unit, of)))
            {
                let report = MemberReport {
                    generation: unit.generation,
                    spec: member.digest,
                    state: MemberState::Healthy,
                    since: bench.now,
                    claim: Some(member.spec.claim.clone()),
                    restarts: 0,
                    ends_in_a_row: 0,
                    reason: None,
                };
                let host = bench.observed.hosts.get_mut(&member.host).unwrap();
                Arc::make_mut(&mut host.report).members.insert(member.id.clone(), report);
            }
        }
        assert_eq!(bench.records.units.len(), (STAGES * UNITS) as usize);
        assert!(bench.records.units.values().all(|unit| unit.phase == UnitPhase::Ready));
        bench
    }

    fn world(&self) -> World<'_> {
        let Bench { catalog, records, observed, now } = self;
        World { catalog, records, observed, now: *now }
    }

    fn plan(&self) -> Plan {
        let planned = plan(&self.world());
        assert_eq!(checker::check(&self.world(), &planned), []);
        planned
    }

    fn carry_out(&mut self) -> usize {
        let planned = self.plan();
        planned.steps.iter().for_each(|step| self.records.apply(step));
        planned.steps.len()
    }
}

/// Placing every unit, and checking that.
#[divan::bench(args = [HOSTS / 2, HOSTS])]
fn from_nothing(bencher: Bencher<'_, '_>, hosts: u32) {
    let bench = Bench::empty(hosts);
    assert_eq!(bench.plan().steps.len(), (STAGES * UNITS) as usize);
    bencher.bench_local(|| black_box(&bench).plan());
}

#[divan::bench(args = [HOSTS / 2, HOSTS])]
fn nothing_to_do(bencher: Bencher<'_, '_>, hosts: u32) {
    let bench = Bench::at_rest(hosts);
    assert_eq!(bench.plan().steps, []);
    bencher.bench_local(|| black_box(&bench).plan());
}

#[divan::bench(args = [HOSTS / 2, HOSTS])]
fn one_host_lost(bencher: Bencher<'_, '_>, hosts: u32) {
    let mut bench = Bench::at_rest(hosts);
    let host: Name = bench.records.units.values().next().unwrap().members[0].host.clone();
    bench.observed.hosts.get_mut(&host).unwrap().connected = false;
    bench.now += SignedDuration::from_hours(1);
    assert_eq!(bench.plan().steps.len(), 1);
    bencher.bench_local(|| black_box(&bench).plan());
}

/// What gateways are told.
#[divan::bench]
fn routes_of_all(bencher: Bencher<'_, '_>) {
    let bench = Bench::at_rest(HOSTS);
    bencher.bench_local(|| routes(&black_box(&bench).world()));
}
