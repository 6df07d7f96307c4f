//! Stages and endpoints: that a stage is in its environment, on fleets it may use, routed and watched as can be.

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, listed_once};
use crate::catalog::Catalog;
use crate::diagnostic::Code;
use crate::manifest::{EndpointSpec, FleetSpec, Manifest, RoutingPolicy, StageFleet, StageSpec};
use crate::{Name, StageId};

/// Unit ids join environment and stage with dots, so those names must not hold any.
pub(super) fn no_dot(pointer: &str, name: &Name, report: &mut Report<'_>) {
    if name.as_str().contains('.') {
        let message = format!("`{name}` holds a dot, which names of environments and stages can't");
        report.contradict(pointer, message, Some("use `-`"));
    }
}

pub(super) fn stage(manifest: &Manifest<StageSpec>, catalog: &Catalog, report: &mut Report<'_>) {
    let (name, spec) = (&manifest.metadata.name, &manifest.spec);
    no_dot("/metadata/name", name, report);
    if let Some(environment) = catalog.environments.get(&spec.environment)
        && !environment.stages.contains(name)
    {
        let message = format!("Environment `{}` does not list stage `{name}`", spec.environment);
        let hint = "add it to the environment's `stages`, in its place in the order";
        report.contradict("/metadata/name", message, Some(hint));
    }
    let recipe = catalog.releases.get(&spec.release).and_then(|release| catalog.recipes.get(&release.recipe));
    let mut seen = BTreeSet::new();
    for (i, of_stage) in spec.fleets.iter().enumerate() {
        let pointer = format!("/spec/fleets/{i}/name");
        if !seen.insert(&of_stage.name) {
            report.contradict(&pointer, format!("fleet `{}` is listed twice", of_stage.name), None);
        }
        if of_stage.units.most() < of_stage.units.min {
            let (min, most) = (of_stage.units.min, of_stage.units.most());
            let message = format!("the most, {most}, is less than the least, {min}");
            report.contradict(&format!("/spec/fleets/{i}/units/max"), message, None);
        }
        let Some(fleet) = catalog.fleets.get(&of_stage.name) else { continue };
        if let Some(recipe) = recipe
            && recipe.hardware.accelerator != fleet.accelerator
        {
            let message = format!(
                "release `{}` is for `{}`, and fleet `{}` has `{}`",
                spec.release, recipe.hardware.accelerator, of_stage.name, fleet.accelerator
            );
            let hint = "use a fleet with that accelerator, or a recipe tested on this one";
            report.contradict(&pointer, message, Some(hint));
        }
        residency(&pointer, spec, (of_stage, fleet), catalog, report);
    }
    routing(spec, catalog, report);
    listed_once("/spec/alarms", &spec.alarms, "alarm", report);
    listed_once("/spec/residency", &spec.residency, "residency", report);
    let id = StageId { environment: spec.environment.clone(), stage: name.clone() };
    parity(&id, spec, catalog, report);
}

fn residency(
    pointer: &str,
    spec: &StageSpec,
    (of_stage, fleet): (&StageFleet, &FleetSpec),
    catalog: &Catalog,
    report: &mut Report<'_>,
) {
    let is_allowed =
        |fleet: &FleetSpec| fleet.residency.as_ref().is_some_and(|of| spec.residency.contains(of));
    if spec.residency.is_empty() || is_allowed(fleet) {
        return;
    }
    let stands =
        fleet.residency.as_ref().map_or("no stated residency".to_owned(), |of| format!("residency `{of}`"));
    let allowed = spec.residency.iter().map(|of| format!("`{of}`")).collect::<Vec<_>>().join(", ");
    let message = format!("fleet `{}` has {stands}, and the stage allows {allowed}", of_stage.name);
    let others = catalog.fleets.iter().filter(|(_, fleet)| is_allowed(fleet)).map(|(name, _)| name);
    let others: Vec<String> = others.take(4).map(|name| format!("`{name}`")).collect();
    let hint = match others.as_slice() {
        [] => "no fleet there is has such a residency; say it in the fleet's `residency`, if it is so"
            .to_owned(),
        others => format!("fleets there: {}", others.join(", ")),
    };
    report.say(Code::Residency, pointer, message, Some(&hint));
}

fn routing(spec: &StageSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let policy = spec.routing.policy;
    let weights = || spec.fleets.iter().enumerate().filter_map(|(i, fleet)| Some((i, fleet.weight?)));
    if policy == RoutingPolicy::Weighted {
        if weights().count() == spec.fleets.len() && weights().all(|(_, weight)| weight == 0) {
            let message = "all fleets have the weight 0, so none gets a request".to_owned();
            report.contradict("/spec/fleets", message, Some("give one of them a weight"));
        }
    } else if let Some((i, _)) = weights().next() {
        let message = "weights have no meaning under this routing policy".to_owned();
        report.contradict(
            &format!("/spec/fleets/{i}/weight"),
            message,
            Some("write `routing: {policy: weighted}`, or leave the weights out"),
        );
    }
    if policy == RoutingPolicy::LeastCost {
        let fleets = spec.fleets.iter().enumerate();
        let mut currency = None;
        for (i, fleet) in fleets.filter_map(|(i, of)| Some((i, catalog.fleets.get(&of.name)?))) {
            let pointer = format!("/spec/fleets/{i}/name");
            let Some(price) = fleet.price else {
                let message = "requests go where they cost least, and this fleet does not say what it costs";
                report.contradict(&pointer, message.to_owned(), Some("write the fleet's `price`"));
                continue;
            };
            if *currency.get_or_insert(price.currency) != price.currency {
                let message = "the fleets' prices are in different currencies, and denv does not convert";
                report.contradict(&pointer, message.to_owned(), Some("write them in one"));
            }
        }
    }
}

fn parity(id: &StageId, spec: &StageSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let Some(parity) = &spec.parity else { return };
    if !parity.before && !parity.after {
        let message = "the suite is run neither before nor after".to_owned();
        report.contradict("/spec/parity", message, Some("write `before: true`, or leave `parity` out"));
    }
    // Each stage has one reference at most, so following them ends or comes back.
    let (mut way, mut at) = (vec![id.clone()], id.clone());
    while let Some(next) = reference(&at, catalog) {
        if next == *id {
            let way: Vec<String> = way.iter().skip(1).map(|stage| format!("`{stage}`")).collect();
            let message = match way.as_slice() {
                [] => format!("stage `{id}` is compared with itself"),
                way => format!(
                    "stage `{id}` is compared with {}, and that with `{id}`",
                    way.join(", that with ")
                ),
            };
            let hint = "compare with `previous-release`, or with something that does not depend on it";
            report.say(Code::Cycle, "/spec/parity/suite", message, Some(hint));
            return;
        }
        if way.contains(&next) {
            return;
        }
        way.push(next.clone());
        at = next;
    }
}

/// The stage whose answers a stage is compared with.
fn reference(id: &StageId, catalog: &Catalog) -> Option<StageId> {
    let suite = &catalog.stages.get(id)?.parity.as_ref()?.suite;
    let reference = catalog.parity_suites.get(suite)?.reference.as_ref()?;
    let endpoint = catalog.endpoints.get(reference.endpoint.as_ref()?)?;
    let model = reference.model.as_ref()?;
    endpoint.models.iter().find(|offered| offered.name == *model).map(|offered| offered.stage.clone())
}

pub(super) fn endpoint(
    name: &Name,
    spec: &EndpointSpec,
    models: &mut BTreeMap<String, Name>,
    report: &mut Report<'_>,
) {
    listed_once("/spec/apis", &spec.apis, "API", report);
    for (i, model) in spec.models.iter().enumerate() {
        // Gateways serve all endpoints at one address, so a model's name must say which is meant.
        if let Some(other) = models.insert(model.name.clone(), name.clone()) {
            let message = format!("Endpoint `{other}` serves the model `{}` already", model.name);
            let pointer = format!("/spec/models/{i}/name");
            report.contradict(&pointer, message, Some("give one of them another name"));
        }
    }
}
