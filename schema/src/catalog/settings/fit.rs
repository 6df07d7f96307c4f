//! Whether a stage's units fit its fleets at all, by what the manifests say of their size.

use super::Report;
use crate::Name;
use crate::catalog::Catalog;
use crate::diagnostic::{Code, counted};
use crate::manifest::{FleetSpec, PlacementRule, ReleaseSpec, StageFleet, StageSpec};

pub(super) fn units(spec: &StageSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let Some(release) = catalog.releases.get(&spec.release) else { return };
    let Some(gpus) = release.topology.gpus() else { return on_slots(spec, release, catalog, report) };
    for (i, of_stage) in spec.fleets.iter().enumerate() {
        let Some(fleet) = catalog.fleets.get(&of_stage.name) else { continue };
        let (Some(per_host), Some(per_domain)) = (fleet.gpus_per_host, fleet.gpus_per_domain()) else {
            continue;
        };
        let all = per_host.saturating_mul(fleet.hosts.max);
        let (room, within) = match release.topology.placement {
            PlacementRule::SameDomain => (per_domain.min(all), "one domain"),
            PlacementRule::Any => (all, "all"),
        };
        if gpus > room {
            let message = format!(
                "a unit of release `{}` takes {}, and fleet `{}` has {room} in {within}",
                spec.release,
                counted(gpus as usize, "GPU"),
                of_stage.name
            );
            let hint = elsewhere(gpus, release, catalog);
            report.say(Code::NoFit, &format!("/spec/fleets/{i}/name"), message, Some(&hint));
            continue;
        }
        if !pools(&format!("/spec/fleets/{i}/name"), per_host, spec, (of_stage, catalog), report) {
            continue;
        }
        many(&format!("/spec/fleets/{i}/units"), gpus, release, (of_stage, fleet), report);
    }
}

/// More units than the CPU slots of a fleet hold, where all its hosts are written.
fn on_slots(spec: &StageSpec, release: &ReleaseSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let needs: Vec<u32> = release.topology.pools().filter_map(|(_, pool)| pool.cpu_slots).collect();
    let each: u32 = needs.iter().fold(0, |sum, slots| sum.saturating_add(*slots));
    for (i, of_stage) in spec.fleets.iter().enumerate() {
        let Some(fleet) = catalog.fleets.get(&of_stage.name) else { continue };
        let hosts = catalog.hosts.values().filter(|host| host.fleet == of_stage.name);
        let slots: Vec<u32> = hosts.map(|host| host.cpu_slots.unwrap_or(0)).collect();
        if each == 0 || slots.len() < fleet.hosts.max as usize {
            continue;
        }
        let fit: u32 = match needs.len() {
            1 => slots.iter().map(|slots| slots / each).sum(),
            // Pools may be on hosts of their own: it is this many at most.
            _ => slots.iter().sum::<u32>() / each,
        };
        let (hosts, units) =
            (counted(slots.len(), "host"), format!("{} each", counted(each as usize, "CPU slot")));
        too_many(&format!("/spec/fleets/{i}/units"), of_stage, (fit, &hosts, &units), report);
    }
}

/// Whether each pool can be cut into parts that hosts can hold.
fn pools(
    pointer: &str,
    per_host: u32,
    spec: &StageSpec,
    (of_stage, catalog): (&StageFleet, &Catalog),
    report: &mut Report<'_>,
) -> bool {
    let Some(rendered) = catalog.rendered.get(&spec.release) else { return true };
    let template = &rendered.template;
    for pool in &template.pools {
        let Some(gpus) = pool.needs.gpus else { continue };
        let spread = template.spread(pool);
        let Some(least) = spread.hosts.iter().map(|hosts| gpus / hosts).min() else { continue };
        if least > per_host {
            let message = format!(
                "the {} of release `{}` takes at least {} on each host, and a host of fleet `{}` has {per_host}",
                pool.name,
                spec.release,
                counted(least as usize, "GPU"),
                of_stage.name
            );
            report.say(Code::NoFit, pointer, message, spread.limit);
            return false;
        }
    }
    true
}

/// Where such a unit would fit, or what the largest domain is.
fn elsewhere(gpus: u32, release: &ReleaseSpec, catalog: &Catalog) -> String {
    let accelerator = catalog.recipes.get(&release.recipe).map(|recipe| &recipe.hardware.accelerator);
    let same =
        catalog.fleets.iter().filter(|(_, fleet)| accelerator.is_none_or(|of| *of == fleet.accelerator));
    let domains: Vec<(u32, &Name)> =
        same.filter_map(|(name, fleet)| Some((fleet.gpus_per_domain()?, name))).collect();
    let fitting: Vec<String> = domains
        .iter()
        .filter(|(size, _)| *size >= gpus)
        .take(4)
        .map(|(_, name)| format!("`{name}`"))
        .collect();
    if !fitting.is_empty() {
        return format!("it fits in one domain of {}", fitting.join(", "));
    }
    match domains.iter().max_by_key(|(size, name)| (*size, std::cmp::Reverse(*name))) {
        Some((size, name)) => format!(
            "the largest domain of that accelerator has {size} GPUs, in fleet `{name}`; make the unit smaller, or, where \
             the engine can cross the network, write `placement: any`"
        ),
        None => "no fleet of that accelerator says how large its domains are".to_owned(),
    }
}

/// More units than all hosts that the fleet may ever have can hold.
fn many(
    pointer: &str,
    gpus: u32,
    release: &ReleaseSpec,
    (of_stage, fleet): (&StageFleet, &FleetSpec),
    report: &mut Report<'_>,
) {
    let (Some(per_host), Some(per_domain)) = (fleet.gpus_per_host, fleet.gpus_per_domain()) else { return };
    let hosts = fleet.hosts.max;
    let fit = match release.topology.placement {
        PlacementRule::SameDomain => {
            let rest = (hosts % fleet.domain.hosts).saturating_mul(per_host) / gpus;
            (hosts / fleet.domain.hosts).saturating_mul(per_domain / gpus).saturating_add(rest)
        }
        PlacementRule::Any => per_host.saturating_mul(hosts) / gpus,
    };
    let (hosts, units) = (counted(hosts as usize, "host"), format!("{} each", counted(gpus as usize, "GPU")));
    too_many(pointer, of_stage, (fit, &hosts, &units), report);
}

/// What a stage wants of a fleet, all of whose `hosts` hold `fit` units.
fn too_many(
    pointer: &str,
    of_stage: &StageFleet,
    (fit, hosts, units): (u32, &str, &str),
    report: &mut Report<'_>,
) {
    for (field, wanted) in [("min", Some(of_stage.units.min)), ("max", of_stage.units.max)] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted > fit) {
            let wanted = counted(wanted as usize, "unit");
            let name = &of_stage.name;
            let message = format!(
                "{wanted} of {units} do not fit: the {hosts} that fleet `{name}` may have hold {fit}"
            );
            let hint = "give the fleet more or larger hosts, and raise its `hosts.max`, or lower this";
            report.say(Code::NoFit, &format!("{pointer}/{field}"), message, Some(hint));
            return;
        }
    }
}
