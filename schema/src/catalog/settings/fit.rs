//! Whether a stage's units fit its fleets at all, by what the manifests say of their size.

use super::Report;
use crate::Name;
use crate::catalog::Catalog;
use crate::diagnostic::{Code, counted};
use crate::manifest::{FleetSpec, PlacementRule, ReleaseSpec, StageFleet, StageSpec};

pub(super) fn units(spec: &StageSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let Some(release) = catalog.releases.get(&spec.release) else { return };
    let Some(gpus) = release.topology.gpus() else { return };
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
    for (field, wanted) in [("min", Some(of_stage.units.min)), ("max", of_stage.units.max)] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted > fit) {
            let message = format!(
                "{} of {} each do not fit: the {} that fleet `{}` may have hold {fit}",
                counted(wanted as usize, "unit"),
                counted(gpus as usize, "GPU"),
                counted(hosts as usize, "host"),
                of_stage.name
            );
            report.say(
                Code::NoFit,
                &format!("{pointer}/{field}"),
                message,
                Some("raise the fleet's `hosts.max`, or lower this"),
            );
            return;
        }
    }
}
