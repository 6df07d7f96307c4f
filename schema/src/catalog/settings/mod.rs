//! Settings that can't all be followed, within a manifest and between manifests.

mod topology;

use std::collections::{BTreeMap, BTreeSet};

use super::faulty::Faulty;
use super::secrets::secrets;
use super::{Catalog, Entry, report};
use crate::Name;
use crate::diagnostic::{Code, Diagnostics, counted};
use crate::launch::{MODEL, PORT, WEIGHTS};
use crate::manifest::{
    AnyManifest, CustomerSpec, EndpointSpec, EngineKind, EngineSpec, EnvironmentSpec, FleetSpec, Manifest,
    RecipeSpec, ReleaseSpec, StageSpec, Strategy,
};

/// Settings that can't all be followed.
pub(super) fn settings(entries: &[Entry<'_>], catalog: &Catalog, faulty: &Faulty, found: &mut Diagnostics) {
    let (mut hashes, mut models) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        let mut contradict = |pointer: &str, message: String, hint: Option<&str>| {
            report(found, entry, pointer, Code::Contradiction, message, hint.map(str::to_owned));
        };
        match entry.manifest {
            AnyManifest::Fleet(m) => fleet(&m.metadata.name, &m.spec, catalog, faulty, &mut contradict),
            AnyManifest::Engine(m) => engine(&m.spec, &mut contradict),
            AnyManifest::Recipe(m) => recipe(&m.spec, &mut contradict),
            AnyManifest::Release(m) => release(&m.spec, catalog, &mut contradict),
            AnyManifest::Environment(m) => environment(&m.metadata.name, &m.spec, &mut contradict),
            AnyManifest::Stage(m) => stage(m, catalog, &mut contradict),
            AnyManifest::Endpoint(m) => endpoint(&m.metadata.name, &m.spec, &mut models, &mut contradict),
            AnyManifest::Customer(m) => customer(&m.spec, &mut contradict),
            AnyManifest::Key(m) => {
                if let Some(other) = hashes.insert(m.spec.hash, m.metadata.name.clone()) {
                    contradict(
                        "/spec/hash",
                        format!("Key `{other}` has the same hash"),
                        Some("make a key for each"),
                    );
                }
            }
            AnyManifest::Provider(_)
            | AnyManifest::Host(_)
            | AnyManifest::WeightCache(_)
            | AnyManifest::ParitySuite(_)
            | AnyManifest::Alarm(_)
            | AnyManifest::PriceList(_)
            | AnyManifest::Access(_)
            | AnyManifest::Webhook(_) => {}
        }
        secrets(entry, found);
    }
}

/// Reports a contradiction: where, what, and perhaps a way out.
type Contradict<'a> = &'a mut dyn FnMut(&str, String, Option<&str>);

fn fleet(name: &Name, spec: &FleetSpec, catalog: &Catalog, faulty: &Faulty, contradict: Contradict<'_>) {
    let (min, max) = (spec.hosts.min, spec.hosts.max);
    if min > max {
        contradict("/spec/hosts/min", format!("the least, {min}, is more than the most, {max}"), None);
        return;
    }
    let count = catalog.hosts_of(name).count();
    let written = u32::try_from(count).unwrap_or(u32::MAX);
    let say = if count == 1 { "says it is" } else { "say they are" };
    let hosts = format!("{} {say} of this fleet", counted(count, "Host"));
    if written > max {
        let message = format!("{hosts}, and it has at most {max}");
        contradict("/spec/hosts/max", message, Some("raise `max`, or move hosts to another fleet"));
    } else if written < min && !faulty.may_have_host_of(name) {
        let message = format!("{hosts}, and it has at least {min}");
        contradict("/spec/hosts/min", message, Some("write the missing Host manifests, or lower `min`"));
    }
}

fn engine(spec: &EngineSpec, contradict: Contradict<'_>) {
    for (i, argument) in spec.command.iter().enumerate() {
        placeholders(&format!("/spec/command/{i}"), argument, contradict);
    }
    if spec.kind == EngineKind::Command && !spec.command.iter().any(|argument| argument.contains(PORT)) {
        let message =
            format!("the command does not say `{PORT}`, so the engine can't be told where to listen");
        contradict(
            "/spec/command",
            message,
            Some("pass it as a flag, or as a variable in the recipe's `env`"),
        );
    }
}

fn recipe(spec: &RecipeSpec, contradict: Contradict<'_>) {
    for (i, argument) in spec.flags.iter().enumerate() {
        placeholders(&format!("/spec/flags/{i}"), argument, contradict);
    }
    for (name, value) in &spec.env {
        placeholders(&format!("/spec/env/{name}"), value, contradict);
    }
}

/// Only what denvd fills in may stand in `${…}`.
fn placeholders(pointer: &str, text: &str, contradict: Contradict<'_>) {
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        rest = &rest[start..];
        if let Some(known) = [PORT, WEIGHTS, MODEL].iter().find(|known| rest.starts_with(**known)) {
            rest = &rest[known.len()..];
            continue;
        }
        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
        let message = format!("`{}` is not filled in by denv", &rest[..end]);
        contradict(pointer, message, Some("there are `${port}`, `${weights}` and `${model}`"));
        rest = &rest[end..];
    }
}

fn release(spec: &ReleaseSpec, catalog: &Catalog, contradict: Contradict<'_>) {
    if let Some(recipe) = catalog.recipes.get(&spec.recipe) {
        if recipe.engine != spec.engine {
            let message = format!("recipe `{}` is for engine `{}`", spec.recipe, recipe.engine);
            contradict("/spec/engine", message, Some("use the recipe's engine, or another recipe"));
        }
        if recipe.model != spec.model.name {
            let message = format!("recipe `{}` is for model `{}`", spec.recipe, recipe.model);
            contradict("/spec/model/name", message, Some("use the recipe's model, or another recipe"));
        }
    }
    for (i, argument) in spec.config.flags.iter().enumerate() {
        placeholders(&format!("/spec/config/flags/{i}"), argument, contradict);
    }
    if spec.model.weights.is_none() {
        let recipe = catalog.recipes.get(&spec.recipe);
        let arguments = catalog.engines.get(&spec.engine).into_iter().flat_map(|engine| &engine.command);
        let of_recipe = recipe.into_iter().flat_map(|recipe| recipe.flags.iter().chain(recipe.env.values()));
        if arguments.chain(of_recipe).chain(&spec.config.flags).any(|argument| argument.contains(WEIGHTS)) {
            let message =
                format!("the engine's command asks for `{WEIGHTS}`, and the model has no `weights`");
            contradict("/spec/model", message, None);
        }
    }
    topology::topology(spec, catalog, contradict);
}

fn environment(name: &Name, spec: &EnvironmentSpec, contradict: Contradict<'_>) {
    no_dot("/metadata/name", name, contradict);
    let mut seen = BTreeSet::new();
    for (i, stage) in spec.stages.iter().enumerate() {
        if !seen.insert(stage) {
            contradict(&format!("/spec/stages/{i}"), format!("stage `{stage}` is listed twice"), None);
        }
    }
}

/// Unit ids join environment and stage with dots, so those names must not hold any.
fn no_dot(pointer: &str, name: &Name, contradict: Contradict<'_>) {
    if name.as_str().contains('.') {
        let message = format!("`{name}` holds a dot, which names of environments and stages can't");
        contradict(pointer, message, Some("use `-`"));
    }
}

fn stage(manifest: &Manifest<StageSpec>, catalog: &Catalog, contradict: Contradict<'_>) {
    let (name, spec) = (&manifest.metadata.name, &manifest.spec);
    no_dot("/metadata/name", name, contradict);
    if let Some(environment) = catalog.environments.get(&spec.environment)
        && !environment.stages.contains(name)
    {
        let message = format!("Environment `{}` does not list stage `{name}`", spec.environment);
        contradict(
            "/metadata/name",
            message,
            Some("add it to the environment's `stages`, in its place in the order"),
        );
    }
    let recipe = catalog.releases.get(&spec.release).and_then(|release| catalog.recipes.get(&release.recipe));
    let mut seen = BTreeSet::new();
    for (i, of_stage) in spec.fleets.iter().enumerate() {
        let pointer = format!("/spec/fleets/{i}/name");
        if !seen.insert(&of_stage.name) {
            contradict(&pointer, format!("fleet `{}` is listed twice", of_stage.name), None);
        }
        let Some(fleet) = catalog.fleets.get(&of_stage.name) else { continue };
        if let Some(recipe) = recipe
            && recipe.hardware.accelerator != fleet.accelerator
        {
            let message = format!(
                "release `{}` is for `{}`, and fleet `{}` has `{}`",
                spec.release, recipe.hardware.accelerator, of_stage.name, fleet.accelerator
            );
            contradict(
                &pointer,
                message,
                Some("use a fleet with that accelerator, or a recipe tested on this one"),
            );
        }
        if !spec.residency.is_empty()
            && !fleet.residency.as_ref().is_some_and(|of| spec.residency.contains(of))
        {
            let stands = fleet
                .residency
                .as_ref()
                .map_or("no stated residency".to_owned(), |of| format!("residency `{of}`"));
            let allowed = spec.residency.iter().map(|of| format!("`{of}`")).collect::<Vec<_>>().join(", ");
            contradict(
                &pointer,
                format!("fleet `{}` has {stands}, and the stage allows {allowed}", of_stage.name),
                None,
            );
        }
    }
    rollout(spec, contradict);
}

fn rollout(spec: &StageSpec, contradict: Contradict<'_>) {
    let total = spec.fleets.iter().fold(0u32, |sum, fleet| sum.saturating_add(fleet.units.min));
    let rollout = &spec.rollout;
    // Shares are compared where they differ: at a hundred units, and at what this stage has.
    for among in [100, total] {
        let sizes: Vec<u32> = rollout.batches.iter().map(|batch| batch.of(among)).collect();
        if let Some(i) = (1..sizes.len()).find(|i| sizes[*i] < sizes[*i - 1]) {
            let message = format!("batch {} is smaller than the one before it", i + 1);
            contradict(
                &format!("/spec/rollout/batches/{i}"),
                message,
                Some("batches are totals: write them ascending"),
            );
            return;
        }
    }
    if rollout.batches.last().is_some_and(|last| last.of(total) < total) {
        let message = format!("the last batch leaves units on the old release: the stage has {total}");
        contradict("/spec/rollout/batches", message, Some("end the batches with `100%`"));
    }
    if rollout.strategy == Strategy::Replace
        && total > 0
        && rollout.max_unavailable.of_rounded_down(total) == 0
    {
        let message = format!(
            "`replace` stops a unit first, and `maxUnavailable: {}` allows none",
            rollout.max_unavailable
        );
        contradict(
            "/spec/rollout/maxUnavailable",
            message,
            Some("allow at least 1, or use `strategy: surge`"),
        );
    }
}

fn endpoint(
    name: &Name,
    spec: &EndpointSpec,
    models: &mut BTreeMap<String, Name>,
    contradict: Contradict<'_>,
) {
    for (i, model) in spec.models.iter().enumerate() {
        // Gateways serve all endpoints at one address, so a model's name must say which is meant.
        if let Some(other) = models.insert(model.name.clone(), name.clone()) {
            let message = format!("Endpoint `{other}` serves the model `{}` already", model.name);
            contradict(&format!("/spec/models/{i}/name"), message, Some("give one of them another name"));
        }
    }
}

fn customer(spec: &CustomerSpec, contradict: Contradict<'_>) {
    let mut seen = BTreeSet::new();
    for (i, endpoint) in spec.endpoints.iter().enumerate() {
        if !seen.insert(endpoint) {
            contradict(
                &format!("/spec/endpoints/{i}"),
                format!("endpoint `{endpoint}` is listed twice"),
                None,
            );
        }
    }
}
