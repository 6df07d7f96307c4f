//! `denv diff`: what two configurations differ in, and what each difference does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use denv_planner::Snapshot;
use denv_schema::diff::{Configuration, Diff, diff};
use denv_schema::{Diagnostics, Digest, Name};
use serde::Serialize;

use crate::client::Connection;
use crate::comparison::{markdown, text};
use crate::error::Error;
use crate::findings;
use crate::origin::{self, Origin, Side};
use crate::output::{Exit, Output};

/// Show what two configurations differ in, and what each difference does
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffVerb {
    /// Folders or revisions: what was, and what is to be; without them HEAD and the working tree
    #[arg(value_name = "FOLDER|REVISION", num_args = 0..=2)]
    sides: Vec<String>,

    /// Compare with what the control plane runs
    #[arg(long, conflicts_with = "snapshot")]
    live: bool,

    /// Compare with what a control plane ran when this snapshot was taken
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,

    /// The folder of the manifests, in a clone of their repository
    #[arg(short = 'C', long = "folder", value_name = "DIR", default_value = ".")]
    here: PathBuf,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// How a comparison is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    Text,
    /// For tools
    Json,
    /// For a comment on a pull request: the same change gives the same text
    Markdown,
}

const EXAMPLES: &str = "\
Examples:
  What I have not committed yet:
    denv diff
  What this branch does:
    denv diff origin/main HEAD
  What would change if this were in force:
    denv diff --live
  For a comment on a pull request:
    denv diff origin/main HEAD -o markdown

Exit status: 0 no difference, 1 some, 2 the manifests can't be read or have faults.";

#[derive(Serialize)]
struct Report<'a> {
    from: &'a str,
    to: &'a str,
    #[serde(flatten)]
    diff: &'a Diff,
}

pub(crate) async fn run(
    arguments: &DiffVerb,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Error> {
    let here = arguments.here.as_path();
    let origin = |text: &String| Origin::typed(text, here);
    let snapshot: Option<Snapshot> = match (&arguments.snapshot, arguments.live) {
        (Some(path), _) => Some(origin::snapshot_file(path)?),
        (None, true) => Some(crate::connect(connection, output)?.snapshot().await?.read()?),
        (None, false) => None,
    };
    let running = snapshot.as_ref().map(Side::of_snapshot);
    let deployed = snapshot.map(|snapshot| snapshot.deployed).unwrap_or_default();
    let clone = &mut None;
    let working = || Origin::Folder(here.to_owned());
    let (before, after) = match (running, arguments.sides.as_slice()) {
        (Some(before), []) => (before, working().read(here, clone)?),
        (Some(before), [after]) => (before, origin(after).read(here, clone)?),
        (Some(_), _) => {
            let message = "with --live or --snapshot, name only what is to be".to_owned();
            return Err(Error::Usage { message, hint: None });
        }
        (None, []) => (Origin::Revision("HEAD".to_owned()).read(here, clone)?, working().read(here, clone)?),
        (None, [before]) => (origin(before).read(here, clone)?, working().read(here, clone)?),
        (None, sides) => (origin(&sides[0]).read(here, clone)?, origin(&sides[1]).read(here, clone)?),
    };
    let Some((old, new)) = configurations(&before, &after, &deployed, output) else {
        return Ok(Exit::Trouble);
    };
    let diff = diff(&old, &new);
    match arguments.output {
        Form::Text => output.say(&text::diff(&before.label, &after.label, &diff))?,
        Form::Json => output.json(&Report { from: &before.label, to: &after.label, diff: &diff })?,
        Form::Markdown => output.say(&markdown::diff(&before.label, &after.label, &diff))?,
    }
    // The process ends here: giving back a hundred thousand small pieces of memory one by one would only delay it.
    std::mem::forget((before, after, old, new));
    Ok(if diff.is_empty() { Exit::Done } else { Exit::No })
}

/// Both sides, if both are valid; else what is wrong has been said. `deployed` holds the releases that have run, which may
/// not read otherwise.
pub(crate) fn configurations(
    before: &Side,
    after: &Side,
    deployed: &BTreeMap<Name, Digest>,
    output: &mut Output,
) -> Option<(Configuration, Configuration)> {
    let [old, new] = Configuration::pair(&before.files, &after.files, deployed);
    let mut sound = |side: &Side, read: Result<Configuration, Diagnostics>| {
        let found = match read {
            Ok(configuration) if side.unreadable.is_empty() => return Some(configuration),
            Ok(_) => side.unreadable.clone(),
            Err(found) => side.unreadable.clone().with(&found),
        };
        output.note(&findings::text(&found, &side.files));
        output.note(&format!("{} is not a valid configuration", side.label));
        None
    };
    let (old, new) = (sound(before, old), sound(after, new));
    Some((old?, new?))
}
