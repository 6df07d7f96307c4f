//! `denv validate`: what the control plane would say of these manifests, without asking it.

use std::path::PathBuf;

use clap::Args;
use denv_schema::Catalog;
use denv_schema::manifest::Kind;
use denv_schema::unheeded::unheeded;
use owo_colors::OwoColorize as _;

use crate::error::Error;
use crate::findings::{self, Form};
use crate::inputs::{self, Inputs, Read};
use crate::output::{Exit, Output};
use crate::text::counted;

/// Check manifests, as one configuration, without a control plane
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Validate {
    /// Folders with all below them, files, or - for standard input; together they are one configuration
    #[arg(value_name = "DIR|FILE|-", required_unless_present = "files")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    inputs: Inputs,

    /// The form of the findings
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

const EXAMPLES: &str = "\
Examples:
  A whole configuration:
    denv validate manifests/
  What a script made:
    kubectl kustomize overlays/prod | denv validate -f -
  In CI, for tools:
    denv validate manifests/ -o sarif > denv.sarif
    denv validate manifests/ -o github

Exit status: 0 valid, 1 faults were found, 2 the manifests can't be read.";

pub(crate) fn run(arguments: &Validate, output: &mut Output) -> Result<Exit, Error> {
    let mut read = Read::default();
    for path in &arguments.paths {
        read.add(path, true)?;
    }
    arguments.inputs.add_to(&mut read)?;
    let nothing = || {
        let paths = arguments.paths.iter().map(PathBuf::as_path).chain(arguments.inputs.paths());
        inputs::nothing(paths)
    };
    if read.is_empty() {
        return Err(nothing().into());
    }
    let Read { files, unreadable } = read;
    let found = match Catalog::from_files(&files) {
        Ok(catalog) if unreadable.is_empty() => {
            let summary = summary(&catalog).ok_or_else(nothing)?;
            match arguments.output {
                Form::Text => {
                    output.say(&format!("{} {summary}", "valid:".green().bold()))?;
                    warn(&unheeded(&catalog), output);
                }
                form => findings::tell(&unreadable, &files, form, output)?,
            }
            return Ok(Exit::Done);
        }
        Ok(_) => unreadable,
        Err(found) => unreadable.with(&found),
    };
    findings::tell(&found, &files, arguments.output, output)?;
    Ok(Exit::No)
}

/// Settings that have no effect yet, a few of them by name.
pub(crate) fn warn(unheeded: &[String], output: &mut Output) {
    const MOST: usize = 8;
    if unheeded.is_empty() {
        return;
    }
    let rest = if unheeded.len() > MOST { ", …" } else { "" };
    let named = unheeded.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    output.warn(&format!(
        "{} kept, and not acted on by this version: {named}{rest}",
        counted(unheeded.len(), "setting")
    ));
}

/// `12 manifests (2 hosts, 1 stage, …)`, where there are any.
fn summary(catalog: &Catalog) -> Option<String> {
    let count = |kind: &Kind| match kind {
        Kind::Provider => catalog.providers.len(),
        Kind::Fleet => catalog.fleets.len(),
        Kind::Host => catalog.hosts.len(),
        Kind::WeightCache => catalog.weight_caches.len(),
        Kind::Engine => catalog.engines.len(),
        Kind::Recipe => catalog.recipes.len(),
        Kind::Release => catalog.releases.len(),
        Kind::Environment => catalog.environments.len(),
        Kind::Stage => catalog.stages.len(),
        Kind::ParitySuite => catalog.parity_suites.len(),
        Kind::Alarm => catalog.alarms.len(),
        Kind::Endpoint => catalog.endpoints.len(),
        Kind::Customer => catalog.customers.len(),
        Kind::Key => catalog.keys.len(),
        Kind::PriceList => catalog.price_lists.len(),
        Kind::Access => catalog.access.len(),
        Kind::Webhook => catalog.webhooks.len(),
    };
    let counts: Vec<(&Kind, usize)> =
        Kind::ALL.iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count > 0).collect();
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let each: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{count} {}", if *count == 1 { kind.singular() } else { kind.plural() }))
        .collect();
    (total > 0).then(|| format!("{} ({})", counted(total, "manifest"), each.join(", ")))
}
