//! Engines, recipes and releases: that they belong together, and that their commands ask only for what denv fills in.

use super::{Report, topology};
use crate::Name;
use crate::catalog::Catalog;
use crate::diagnostic::Code;
use crate::launch::{PLACEHOLDERS, PORT, WEIGHTS};
use crate::manifest::{EngineKind, EngineSpec, RecipeSpec, ReleaseSpec};

pub(super) fn engine(spec: &EngineSpec, report: &mut Report<'_>) {
    for (i, argument) in spec.command.iter().enumerate() {
        placeholders(&format!("/spec/command/{i}"), argument, report);
    }
    if spec.kind == EngineKind::Command && !spec.command.iter().any(|argument| argument.contains(PORT)) {
        let message =
            format!("the command does not say `{PORT}`, so the engine can't be told where to listen");
        report.contradict(
            "/spec/command",
            message,
            Some("pass it as a flag, or as a variable in the recipe's `env`"),
        );
    }
}

pub(super) fn recipe(spec: &RecipeSpec, report: &mut Report<'_>) {
    for (i, argument) in spec.flags.iter().enumerate() {
        placeholders(&format!("/spec/flags/{i}"), argument, report);
    }
    for (name, value) in &spec.env {
        placeholders(&format!("/spec/env/{name}"), value, report);
    }
}

pub(super) fn release(name: &Name, spec: &ReleaseSpec, catalog: &Catalog, report: &mut Report<'_>) {
    if let Some(recipe) = catalog.recipes.get(&spec.recipe) {
        if recipe.engine != spec.engine {
            let message = format!("recipe `{}` is for engine `{}`", spec.recipe, recipe.engine);
            report.contradict("/spec/engine", message, Some("use the recipe's engine, or another recipe"));
        }
        if recipe.model != spec.model.name {
            let message = format!("recipe `{}` is for model `{}`", spec.recipe, recipe.model);
            report.contradict("/spec/model/name", message, Some("use the recipe's model, or another recipe"));
        }
    }
    for (i, argument) in spec.config.flags.iter().enumerate() {
        placeholders(&format!("/spec/config/flags/{i}"), argument, report);
    }
    if spec.model.weights.is_none() {
        let recipe = catalog.recipes.get(&spec.recipe);
        let arguments = catalog.engines.get(&spec.engine).into_iter().flat_map(|engine| &engine.command);
        let of_recipe = recipe.into_iter().flat_map(|recipe| recipe.flags.iter().chain(recipe.env.values()));
        if arguments.chain(of_recipe).chain(&spec.config.flags).any(|argument| argument.contains(WEIGHTS)) {
            let message =
                format!("the engine's command asks for `{WEIGHTS}`, and the model has no `weights`");
            report.contradict("/spec/model", message, None);
        }
    }
    topology::topology(spec, catalog, report);
    for limit in catalog.rendered.get(name).into_iter().flat_map(|rendered| rendered.template.limits()) {
        report.say(Code::EngineLimit, &limit.field, limit.reason, Some(limit.remedy));
    }
}

/// Only what denv fills in may stand in `${…}`.
fn placeholders(pointer: &str, text: &str, report: &mut Report<'_>) {
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        rest = &rest[start..];
        if let Some(known) = PLACEHOLDERS.iter().find(|known| rest.starts_with(**known)) {
            rest = &rest[known.len()..];
            continue;
        }
        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
        let message = format!("`{}` is not filled in by denv", &rest[..end]);
        let known = PLACEHOLDERS.map(|known| format!("`{known}`")).join(", ");
        report.contradict(pointer, message, Some(&format!("there are {known}")));
        rest = &rest[end..];
    }
}
