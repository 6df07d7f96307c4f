//! `denv validate`: what the control plane would say of these manifests, without asking it.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use denv_schema::manifest::Kind;
use denv_schema::tree::{self, Files, ReadError};
use denv_schema::{Catalog, Diagnostics};
use owo_colors::OwoColorize as _;

use crate::error::Error;
use crate::excerpt;
use crate::output::{Exit, Output};
use crate::text::counted;

/// Check manifests, as one configuration, without a control plane
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Validate {
    /// Folders, files, or - for standard input; together they are one configuration
    #[arg(value_name = "DIR|FILE|-", required_unless_present = "files")]
    paths: Vec<PathBuf>,

    /// The same
    #[arg(short = 'f', long = "file", value_name = "DIR|FILE|-")]
    files: Vec<PathBuf>,

    /// The form of the findings
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people, on standard error
    Text,
    /// A list, on standard output
    Json,
}

const EXAMPLES: &str = "\
Examples:
  A whole configuration:
    denv validate manifests/
  What a script made:
    ./render.sh | denv validate -
  In CI, for tools:
    denv validate manifests/ -o json

Exit status: 0 valid, 1 faults were found, 2 the manifests can't be read.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ValidateError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot read standard input")]
    Stdin(#[source] io::Error),
    #[error("there are no manifests in {0}")]
    Nothing(String),
}

impl ValidateError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = "manifests are .yaml and .yml files; hidden files and folders are left out";
        matches!(self, ValidateError::Nothing(_)).then(|| hint.to_owned())
    }
}

pub(crate) fn run(arguments: &Validate, output: &mut Output) -> Result<Exit, Error> {
    let mut files = Files::new();
    let paths: Vec<&Path> = arguments.paths.iter().chain(&arguments.files).map(PathBuf::as_path).collect();
    for path in &paths {
        files.extend(read(path)?);
    }
    let nothing = || {
        let paths = paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>();
        ValidateError::Nothing(paths.join(", "))
    };
    if files.is_empty() {
        return Err(nothing().into());
    }
    match Catalog::from_files(&files) {
        Ok(catalog) => {
            let summary = summary(&catalog).ok_or_else(nothing)?;
            match arguments.output {
                Form::Text => output.say(&format!("{} {summary}", "valid:".green().bold()))?,
                Form::Json => output.json(&Diagnostics::default())?,
            }
            Ok(Exit::Done)
        }
        Err(found) => {
            match arguments.output {
                Form::Text => explain(&found, &files, output),
                Form::Json => output.json(&found)?,
            }
            Ok(Exit::No)
        }
    }
}

/// The manifests at a path, by the path a person would type from here.
fn read(path: &Path) -> Result<Files, ValidateError> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map_err(ValidateError::Stdin)?;
        return Ok(Files::from([("stdin".to_owned(), bytes)]));
    }
    let files = tree::read(path)?;
    let place = |name: &str| {
        let whole = if path.is_dir() { path.join(name) } else { path.to_owned() };
        whole.strip_prefix(".").unwrap_or(&whole).to_string_lossy().into_owned()
    };
    Ok(files.into_iter().map(|(name, bytes)| (place(&name), bytes)).collect())
}

/// `12 manifests (2 hosts, 1 stage, …)`, where there are any.
fn summary(catalog: &Catalog) -> Option<String> {
    let count = |kind: &Kind| match kind {
        Kind::Provider => catalog.providers.len(),
        Kind::Fleet => catalog.fleets.len(),
        Kind::Host => catalog.hosts.len(),
        Kind::Engine => catalog.engines.len(),
        Kind::Recipe => catalog.recipes.len(),
        Kind::Release => catalog.releases.len(),
        Kind::Environment => catalog.environments.len(),
        Kind::Stage => catalog.stages.len(),
        Kind::Endpoint => catalog.endpoints.len(),
        Kind::Customer => catalog.customers.len(),
        Kind::Key => catalog.keys.len(),
    };
    let counts: Vec<(&Kind, usize)> =
        Kind::ALL.iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count > 0).collect();
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let each: Vec<String> =
        counts.iter().map(|(kind, count)| counted(*count, &kind.as_str().to_lowercase())).collect();
    (total > 0).then(|| format!("{} ({})", counted(total, "manifest"), each.join(", ")))
}

/// All findings, each with its line, and a count.
pub(crate) fn explain(found: &Diagnostics, files: &Files, output: &mut Output) {
    for finding in found.iter() {
        let source = files.get(&finding.file).and_then(|bytes| std::str::from_utf8(bytes).ok());
        output.note(&format!("{}\n", excerpt::render(finding, source)));
    }
    let wrong: BTreeSet<&str> = found.iter().map(|finding| finding.file.as_str()).collect();
    output.note(&format!("{} in {}", counted(found.len(), "problem"), counted(wrong.len(), "file")));
}
