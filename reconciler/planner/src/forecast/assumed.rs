//! A world in which every host of the manifests is there and nothing runs: for previews without a control plane.

use denv_schema::wire::{Gpu, HostReport, Inventory};
use denv_schema::{Catalog, Name};
use jiff::Timestamp;

use crate::world::{HostObserved, Observed};

/// What a host has if neither it nor its fleet says: the servers that most people have.
const USUAL_GPUS: u32 = 8;

/// All hosts connected, with the hardware that their manifests declare.
pub fn assumed(catalog: &Catalog, now: Timestamp) -> Observed {
    let host = |(name, spec): (&Name, &denv_schema::manifest::HostSpec)| {
        let declared = catalog.fleets.get(&spec.fleet).and_then(|fleet| fleet.gpus_per_host);
        let gpus = declared.unwrap_or(if spec.cpu_slots.is_some() { 0 } else { USUAL_GPUS });
        let gpu = |index| Gpu { index, model: String::new(), memory_bytes: 0 };
        let inventory = Inventory { gpus: (0..gpus).map(gpu).collect(), ..Inventory::default() };
        let observed = HostObserved {
            connected: true,
            last_seen: now,
            version: String::new(),
            ingress: String::new(),
            report: HostReport { inventory, ..HostReport::default() }.into(),
        };
        (name.clone(), observed)
    };
    Observed { hosts: catalog.hosts.iter().map(host).collect(), since: now, ..Observed::default() }
}
