//! Units of many hosts, in scale-up domains.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::Catalog;
use denv_schema::manifest::HostSpec;
use denv_schema::wire::{Gpu, HostReport, Inventory};
use insta::assert_snapshot;
use jiff::Timestamp;
use proptest::prelude::*;

use crate::placement::fit::PoolNeed;
use crate::placement::fit::tests::brute_force;
use crate::placement::{Placement, Release, Usage, place};
use crate::records::Records;
use crate::waiting::WaitingOn;
use crate::world::{HostObserved, Observed, World};

/// A fleet of racks, and one release.
struct Racks {
    catalog: Catalog,
    observed: Observed,
    records: Records,
    placed: Vec<Placement>,
}

/// The hosts of each rack by their GPUs, and what a unit takes.
fn racks(racks: &[&[u32]], topology: &str) -> Racks {
    let manifests = format!(
        "
apiVersion: denv.dev/v1
kind: Provider
metadata: {{name: p}}
spec: {{kind: owned}}
---
apiVersion: denv.dev/v1
kind: Fleet
metadata: {{name: f}}
spec: {{provider: p, region: r, purchase: owned, accelerator: gb300, hosts: {{min: 0, max: 999}}, domain: {{hosts: 99}}}}
---
apiVersion: denv.dev/v1
kind: Engine
metadata: {{name: e}}
spec: {{kind: sglang, version: '1', command: [serve]}}
---
apiVersion: denv.dev/v1
kind: Recipe
metadata: {{name: r}}
spec: {{model: m, engine: e, hardware: {{accelerator: gb300}}}}
---
apiVersion: denv.dev/v1
kind: Release
metadata: {{name: one}}
spec: {{model: {{name: m}}, engine: e, recipe: r, topology: {topology}}}
"
    );
    let files = [("all.yaml".to_owned(), manifests.into_bytes())].into();
    let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let observed = Observed { since: now, ..Observed::default() };
    let mut all = Racks { catalog, observed, records: Records::default(), placed: Vec::new() };
    for (rack, hosts) in racks.iter().enumerate() {
        for (number, gpus) in hosts.iter().enumerate() {
            all.add(&format!("r{rack}-{number:02}"), rack, *gpus);
        }
    }
    all
}

impl Racks {
    fn add(&mut self, name: &str, rack: usize, gpus: u32) {
        let spec: HostSpec =
            serde_json::from_value(serde_json::json!({"fleet": "f", "domain": format!("rack-{rack}")}))
                .unwrap();
        let gpu = |index| Gpu { index, model: "GB300".to_owned(), memory_bytes: 0 };
        let inventory = Inventory { gpus: (0..gpus).map(gpu).collect(), ..Inventory::default() };
        let host = HostObserved {
            connected: true,
            last_seen: self.observed.since,
            version: String::new(),
            ingress: "10.0.0.1:7001".to_owned(),
            report: HostReport { inventory, ..HostReport::default() }.into(),
        };
        self.catalog.hosts.insert(name.parse().unwrap(), spec);
        self.observed.hosts.insert(name.parse().unwrap(), host);
    }

    fn in_zone(&mut self, rack: &str, zone: &str) {
        for host in self.catalog.hosts.values_mut() {
            if host.domain.as_ref().is_some_and(|domain| domain.as_str() == rack) {
                host.failure_domain = Some(zone.parse().unwrap());
            }
        }
    }

    fn try_place(&mut self) -> Result<Placement, WaitingOn> {
        let world = World {
            catalog: &self.catalog,
            records: &self.records,
            observed: &self.observed,
            now: self.observed.since,
        };
        let (name, rendered) = self.catalog.rendered.iter().next().unwrap();
        let release = Release { name, template: &rendered.template, digest: rendered.digest };
        let stage = "chat/prod".parse().unwrap();
        let mut usage = Usage::of(&world, &BTreeSet::new());
        self.placed.iter().for_each(|placement| usage.reserve(&stage, release.digest, placement));
        let placed = place(&usage, &stage, &"f".parse().unwrap(), &release)?;
        self.placed.push(placed.clone());
        Ok(placed)
    }

    /// Where the next unit goes, pool by pool, or what is missing.
    fn place(&mut self) -> String {
        let placed = match self.try_place() {
            Ok(placed) => placed,
            Err(waiting) => return waiting.to_string(),
        };
        let pools = placed.places.chunk_by(|a, b| a.pool == b.pool).map(|pool| {
            let gpus: usize = pool.iter().map(|place| place.gpus.len()).sum();
            let (first, last) = (&pool[0].host, &pool[pool.len() - 1].host);
            format!("{gpus} {} on {} hosts, {first} to {last}", pool[0].pool, pool.len())
        });
        pools.collect::<Vec<_>>().join("; ")
    }
}

const DISAGGREGATED: &str = "{mode: disaggregated, prefill: {gpus: 4, parallelism: {tensor: 4}}, \
     decode: {gpus: 64, parallelism: {data: 64, expert: 64}}}";
const RACK: [u32; 18] = [4; 18];

#[test]
fn a_unit_of_two_pools_is_whole_in_one_rack_or_nowhere() {
    let mut racks = racks(&[&RACK, &RACK[..15]], DISAGGREGATED);
    assert_snapshot!(racks.place(), @"4 prefill on 1 hosts, r0-00 to r0-00; 64 decode on 16 hosts, r0-01 to r0-16");
    // 4 + 60 GPUs are left, and none of that is one unit.
    assert_snapshot!(racks.place(), @"needs 68 GPUs free in one domain of fleet `f`; the most free is 60, on `rack-1`; add hosts to the fleet, free some, or use `strategy: replace`");
    // Addresses, GPUs and ports of members are their own.
    let places = &racks.placed[0].places;
    assert!(places.iter().all(|place| place.address == "10.0.0.1" && place.gpus == [0, 1, 2, 3]));
}

#[test]
fn a_silent_host_leaves_its_rack_too_small() {
    let mut racks = racks(&[&RACK, &RACK], DISAGGREGATED);
    for host in ["r0-03", "r0-04"] {
        racks.observed.hosts.get_mut(host).unwrap().connected = false;
    }
    assert_snapshot!(racks.place(), @"4 prefill on 1 hosts, r1-00 to r1-00; 64 decode on 16 hosts, r1-01 to r1-16");
    assert_snapshot!(racks.place(), @"needs 68 GPUs free in one domain of fleet `f`; the most free is 64, on `rack-0` (2 silent); add hosts to the fleet, free some, or use `strategy: replace`");
}

#[test]
fn fragmented_racks_are_filled_first_so_that_whole_ones_stay_free() {
    let aggregated = "{mode: aggregated, replica: {gpus: 8, parallelism: {tensor: 8}}}";
    let mut racks = racks(&[&[4, 4, 4, 4], &[4, 4], &[4, 4, 4]], aggregated);
    racks.in_zone("rack-0", "one");
    racks.in_zone("rack-1", "one");
    racks.in_zone("rack-2", "one");
    assert_snapshot!(racks.place(), @"8 replica on 2 hosts, r1-00 to r1-01");
    assert_snapshot!(racks.place(), @"8 replica on 2 hosts, r2-00 to r2-01");
    assert_snapshot!(racks.place(), @"8 replica on 2 hosts, r0-00 to r0-01");
}

#[test]
fn units_are_spread_over_what_fails_together() {
    let aggregated = "{mode: aggregated, replica: {gpus: 4, parallelism: {tensor: 4}}}";
    let mut racks = racks(&[&[4, 4], &[4, 4, 4], &[4, 4, 4]], aggregated);
    racks.in_zone("rack-0", "north");
    racks.in_zone("rack-1", "north");
    racks.in_zone("rack-2", "south");
    assert_snapshot!(racks.place(), @"4 replica on 1 hosts, r0-00 to r0-00");
    assert_snapshot!(racks.place(), @"4 replica on 1 hosts, r2-00 to r2-00");
    assert_snapshot!(racks.place(), @"4 replica on 1 hosts, r0-01 to r0-01");
    assert_snapshot!(racks.place(), @"4 replica on 1 hosts, r2-01 to r2-01");
}

#[test]
fn what_may_span_racks_spans_as_few_as_will_do() {
    let wide = "{mode: aggregated, placement: any, replica: {gpus: 16, parallelism: {tensor: 16}}}";
    let mut racks = racks(&[&[4, 4], &[4, 4, 4], &[4, 4]], wide);
    assert_snapshot!(racks.place(), @"16 replica on 4 hosts, r1-00 to r0-00");
    assert_eq!(racks.placed[0].chosen.spans, 2);
    assert_snapshot!(racks.place(), @"needs 16 GPUs free in all of fleet `f`; 12 are free; add hosts to the fleet, free some, or use `strategy: replace`");
}

#[test]
fn enough_in_the_wrong_shape_is_said_so() {
    let aggregated = "{mode: aggregated, replica: {gpus: 8, parallelism: {tensor: 8}}}";
    let mut racks = racks(&[&[3, 3, 3]], aggregated);
    assert_snapshot!(racks.place(), @"needs 8 GPUs free in one domain of fleet `f`; the most free is 9, on `rack-0`, but not as needed: replica as 8 on one host, or 4 on each of 2 hosts, or 2 on each of 4 hosts, or 1 on each of 8 hosts; add hosts to the fleet, free some, or use `strategy: replace`");
}

/// What a pool takes that may be spread over any number of hosts, with as much on each.
fn need(gpus: u32) -> PoolNeed {
    PoolNeed { amount: gpus, spreads: (1..=gpus).filter(|hosts| gpus.is_multiple_of(*hosts)).collect() }
}

proptest! {
    /// Unit after unit is placed for as long as there is any way to place one, and never on what another has.
    #[test]
    fn a_unit_has_a_place_whenever_there_is_one(
        hosts in prop::collection::vec(prop::collection::vec(0u32..7, 1..4), 1..4),
        (prefill, decode) in (1u32..6, 1u32..8),
        any in any::<bool>(),
    ) {
        let placement = if any { "any" } else { "same-domain" };
        let topology = format!(
            "{{mode: disaggregated, placement: {placement}, prefill: {{gpus: {prefill}, parallelism: {{tensor: {prefill}}}}}, \
             decode: {{gpus: {decode}, parallelism: {{tensor: {decode}}}}}}}"
        );
        let all: Vec<&[u32]> = hosts.iter().map(Vec::as_slice).collect();
        let mut racks = racks(&all, &topology);
        let mut free: BTreeMap<String, u32> = BTreeMap::new();
        for (rack, hosts) in hosts.iter().enumerate() {
            free.extend(hosts.iter().enumerate().map(|(number, gpus)| (format!("r{rack}-{number:02}"), *gpus)));
        }
        loop {
            let of_rack = |rack: usize| -> Vec<u32> {
                let prefix = format!("r{rack}-");
                free.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, free)| *free).collect()
            };
            let everywhere: Vec<u32> = free.values().copied().collect();
            let possible = (0..hosts.len()).any(|rack| brute_force(&of_rack(rack), &[need(prefill), need(decode)]))
                || any && brute_force(&everywhere, &[need(prefill), need(decode)]);
            let placed = racks.try_place();
            prop_assert_eq!(placed.is_ok(), possible, "{:?}", placed);
            let Ok(placed) = placed else { break };
            let mut given: BTreeSet<(String, u32)> = BTreeSet::new();
            let mut domains: BTreeSet<String> = BTreeSet::new();
            for place in &placed.places {
                let left = free.get_mut(place.host.as_str()).unwrap();
                *left = left.checked_sub(u32::try_from(place.gpus.len()).unwrap()).unwrap();
                domains.insert(place.host.as_str()[..2].to_owned());
                prop_assert!(place.gpus.iter().all(|gpu| given.insert((place.host.to_string(), *gpu))));
            }
            prop_assert!(any || domains.len() == 1);
            let total: usize = placed.places.iter().map(|place| place.gpus.len()).sum();
            prop_assert_eq!(total, (prefill + decode) as usize);
        }
    }
}
