//! What no single manifest can say: names that are taken, references to nothing, settings that contradict.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};

use super::{Catalog, Entry, report};
use crate::diagnostic::{Code, Diagnostics, nearest};
use crate::launch::{MODEL, PORT, WEIGHTS};
use crate::manifest::{
    AnyManifest, CustomerSpec, EndpointSpec, EngineKind, EngineSpec, EnvironmentSpec, FleetSpec, Kind,
    Manifest, RecipeSpec, ReleaseSpec, StageSpec, Strategy,
};
use crate::{Digest, Name, StageId};

/// Puts every manifest under its name; a name that is taken is reported with the place that took it.
pub(super) fn index(entries: &[Entry], found: &mut Diagnostics) -> Catalog {
    let mut catalog = Catalog::default();
    let mut taken: BTreeMap<(Kind, String), &Entry> = BTreeMap::new();
    for entry in entries {
        let name = &entry.manifest.metadata().name;
        let key = match &entry.manifest {
            AnyManifest::Stage(stage) => stage_id(stage).to_string(),
            _ => name.to_string(),
        };
        match taken.entry((entry.manifest.kind(), key)) {
            Slot::Vacant(slot) => {
                slot.insert(entry);
            }
            Slot::Occupied(slot) => {
                let (kind, key) = slot.key();
                let first = slot.get();
                let line = first.document.value_place("/metadata/name").line;
                let message = format!("{kind} `{key}` exists already, at {}:{line}", first.file);
                let hint = Some("give one of them another name, or remove it".to_owned());
                report(found, entry, "/metadata/name", Code::DuplicateName, message, hint);
                continue;
            }
        }
        let name = name.clone();
        match &entry.manifest {
            AnyManifest::Provider(m) => drop(catalog.providers.insert(name, m.spec.clone())),
            AnyManifest::Fleet(m) => drop(catalog.fleets.insert(name, m.spec.clone())),
            AnyManifest::Host(m) => drop(catalog.hosts.insert(name, m.spec.clone())),
            AnyManifest::Engine(m) => drop(catalog.engines.insert(name, m.spec.clone())),
            AnyManifest::Recipe(m) => drop(catalog.recipes.insert(name, m.spec.clone())),
            AnyManifest::Release(m) => drop(catalog.releases.insert(name, m.spec.clone())),
            AnyManifest::Environment(m) => drop(catalog.environments.insert(name, m.spec.clone())),
            AnyManifest::Stage(m) => drop(catalog.stages.insert(stage_id(m), m.spec.clone())),
            AnyManifest::Endpoint(m) => drop(catalog.endpoints.insert(name, m.spec.clone())),
            AnyManifest::Customer(m) => drop(catalog.customers.insert(name, m.spec.clone())),
            AnyManifest::Key(m) => drop(catalog.keys.insert(name, m.spec.clone())),
        }
    }
    catalog
}

fn stage_id(manifest: &Manifest<StageSpec>) -> StageId {
    StageId { environment: manifest.spec.environment.clone(), stage: manifest.metadata.name.clone() }
}

/// Every name that a manifest mentions must be one that exists.
pub(super) fn references(entries: &[Entry], catalog: &Catalog, found: &mut Diagnostics) {
    for entry in entries {
        let mut refer = Referrer { entry, found };
        match &entry.manifest {
            AnyManifest::Provider(_) | AnyManifest::Engine(_) => {}
            AnyManifest::Fleet(m) => {
                refer.to("/spec/provider", Kind::Provider, &m.spec.provider, &catalog.providers)
            }
            AnyManifest::Host(m) => refer.to("/spec/fleet", Kind::Fleet, &m.spec.fleet, &catalog.fleets),
            AnyManifest::Recipe(m) => {
                refer.to("/spec/engine", Kind::Engine, &m.spec.engine, &catalog.engines)
            }
            AnyManifest::Release(m) => {
                refer.to("/spec/engine", Kind::Engine, &m.spec.engine, &catalog.engines);
                refer.to("/spec/recipe", Kind::Recipe, &m.spec.recipe, &catalog.recipes);
            }
            AnyManifest::Environment(m) => {
                let environment = &m.metadata.name;
                for (i, stage) in m.spec.stages.iter().enumerate() {
                    let id = StageId { environment: environment.clone(), stage: stage.clone() };
                    refer.to(&format!("/spec/stages/{i}"), Kind::Stage, &id, &catalog.stages);
                }
            }
            AnyManifest::Stage(m) => {
                refer.to("/spec/environment", Kind::Environment, &m.spec.environment, &catalog.environments);
                refer.to("/spec/release", Kind::Release, &m.spec.release, &catalog.releases);
                for (i, fleet) in m.spec.fleets.iter().enumerate() {
                    refer.to(&format!("/spec/fleets/{i}/name"), Kind::Fleet, &fleet.name, &catalog.fleets);
                }
            }
            AnyManifest::Endpoint(m) => {
                for (i, model) in m.spec.models.iter().enumerate() {
                    refer.to(&format!("/spec/models/{i}/stage"), Kind::Stage, &model.stage, &catalog.stages);
                }
            }
            AnyManifest::Customer(m) => {
                for (i, endpoint) in m.spec.endpoints.iter().enumerate() {
                    refer.to(&format!("/spec/endpoints/{i}"), Kind::Endpoint, endpoint, &catalog.endpoints);
                }
            }
            AnyManifest::Key(m) => {
                refer.to("/spec/customer", Kind::Customer, &m.spec.customer, &catalog.customers)
            }
        }
    }
}

struct Referrer<'a> {
    entry: &'a Entry,
    found: &'a mut Diagnostics,
}

impl Referrer<'_> {
    fn to<K: Ord + ToString, V>(&mut self, pointer: &str, kind: Kind, name: &K, known: &BTreeMap<K, V>) {
        if known.contains_key(name) {
            return;
        }
        let name = name.to_string();
        let names: Vec<String> = known.keys().map(ToString::to_string).collect();
        let hint = nearest(&name, names.iter().map(String::as_str)).or_else(|| {
            let list = names.iter().take(8).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Some(if names.is_empty() {
                format!("there is no {kind} yet")
            } else {
                format!("there are {list}")
            })
        });
        report(
            self.found,
            self.entry,
            pointer,
            Code::UnknownReference,
            format!("there is no {kind} `{name}`"),
            hint,
        );
    }
}

/// Settings that can't all be followed.
pub(super) fn settings(entries: &[Entry], catalog: &Catalog, found: &mut Diagnostics) {
    let (mut hashes, mut models) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        let mut contradict = |pointer: &str, message: String, hint: Option<&str>| {
            report(found, entry, pointer, Code::Contradiction, message, hint.map(str::to_owned));
        };
        match &entry.manifest {
            AnyManifest::Fleet(m) => fleet(&m.metadata.name, &m.spec, catalog, &mut contradict),
            AnyManifest::Engine(m) => engine(&m.spec, &mut contradict),
            AnyManifest::Recipe(m) => {
                recipe(&m.spec, &mut contradict);
                inline_secrets(entry, &m.spec, found);
            }
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
            AnyManifest::Provider(_) | AnyManifest::Host(_) => {}
        }
    }
}

/// Reports a contradiction: where, what, and perhaps a way out.
type Contradict<'a> = &'a mut dyn FnMut(&str, String, Option<&str>);

fn fleet(name: &Name, spec: &FleetSpec, catalog: &Catalog, contradict: Contradict<'_>) {
    let (min, max) = (spec.hosts.min, spec.hosts.max);
    if min > max {
        contradict("/spec/hosts/min", format!("the least, {min}, is more than the most, {max}"), None);
        return;
    }
    let count = catalog.hosts_of(name).count();
    let written = u32::try_from(count).unwrap_or(u32::MAX);
    if written > max {
        let message = format!("{count} Hosts say they are of this fleet, and it has at most {max}");
        contradict("/spec/hosts/max", message, Some("raise `max`, or move hosts to another fleet"));
    } else if written < min {
        let message = format!("{count} Hosts say they are of this fleet, and it has at least {min}");
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

/// A variable whose name says that it is a secret must be a reference.
fn inline_secrets(entry: &Entry, spec: &RecipeSpec, found: &mut Diagnostics) {
    const SECRET_WORDS: [&str; 6] = ["SECRET", "PASSWORD", "PASSWD", "TOKEN", "APIKEY", "API_KEY"];
    for (name, value) in &spec.env {
        let upper = name.to_uppercase();
        // `MAX_TOKENS` and the like count tokens of text.
        let secret = SECRET_WORDS.iter().any(|word| upper.ends_with(word)) || upper.ends_with("ACCESS_KEY");
        if secret && !value.starts_with("env:") && !value.starts_with("file:") {
            let message = format!("`{name}` looks like a secret and is written out");
            let hint = "write where the host finds it: `env:NAME` (of denvd) or `file:/path`".to_owned();
            report(found, entry, &format!("/spec/env/{name}"), Code::InlineSecret, message, Some(hint));
        }
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
    let replica = &spec.topology.replica;
    match (replica.gpus, replica.cpu_slots) {
        (Some(gpus), None) => {
            let world = replica.parallelism.world_size();
            if world != gpus {
                let message = format!(
                    "tensor × pipeline × data parallelism is {world}, and the replica has {gpus} GPUs"
                );
                contradict("/spec/topology/replica", message, Some("make the degrees multiply to the GPUs"));
            }
        }
        (None, Some(_)) => {}
        _ => contradict(
            "/spec/topology/replica",
            "a replica takes either `gpus` or `cpuSlots`".to_owned(),
            Some("write one of them"),
        ),
    }
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

/// A release that has run must mean what it meant.
pub(super) fn deployed(
    entries: &[Entry],
    catalog: &Catalog,
    deployed: &BTreeMap<Name, Digest>,
    found: &mut Diagnostics,
) {
    for entry in entries {
        let AnyManifest::Release(manifest) = &entry.manifest else { continue };
        let name = &manifest.metadata.name;
        let (Some(before), Some(now)) = (deployed.get(name), catalog.rendered.get(name)) else { continue };
        if *before != now.digest {
            let message = format!("release `{name}` was deployed and would mean something else now");
            let hint = "leave it, its recipe and its engine as they were; make a new Release under another name and \
                        point the stage at it"
                .to_owned();
            report(found, entry, "/metadata/name", Code::ChangedRelease, message, Some(hint));
        }
    }
}
