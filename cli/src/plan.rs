//! `denv plan`: what the control plane would do, by its own planner.

use std::path::PathBuf;

use clap::Args;
use denv_planner::forecast::{Forecast, Pace, assumed, forecast};
use denv_planner::{Snapshot, World};
use denv_schema::diff::{Diff, diff};
use denv_schema::unheeded::unheeded;
use jiff::Timestamp;
use serde::Serialize;

use crate::client::Connection;
use crate::comparison::{markdown, text};
use crate::diff::{Form, configurations};
use crate::error::Error;
use crate::origin::{self, Origin, Side};
use crate::output::{Exit, Output};
use crate::validate::warn;

/// Show what the control plane would do if this were in force: units, hosts, batches, time, room
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanVerb {
    /// What is to be in force: a folder, a revision, or - for standard input
    #[arg(value_name = "FOLDER|REVISION|-")]
    desired: Option<String>,

    /// Plan against a snapshot, and not against the control plane
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,

    /// Plan as if every host of the manifests were there, and nothing ran
    #[arg(long, conflicts_with = "snapshot")]
    from_nothing: bool,

    /// The folder of the manifests, in a clone of their repository
    #[arg(short = 'C', long = "folder", value_name = "DIR", default_value = ".")]
    here: PathBuf,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

const EXAMPLES: &str = "\
Examples:
  What would happen if the working tree were in force:
    denv plan
  For a comment on a pull request, without a way to the control plane:
    denv plan HEAD --snapshot world.json -o markdown
  Before there is a control plane:
    denv plan examples/manifests/vllm-8gpu --from-nothing
  What a rendered configuration would do:
    kubectl kustomize overlays/prod | denv plan -

The control plane's own planner is run forward against hosts that do as they are told. Nothing is changed.

Exit status: 0 everything would go through, 1 something would wait for room or for a person, 2 trouble.";

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A preview, whole.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    pub from: String,
    pub to: String,
    pub diff: Diff,
    pub forecast: Forecast,
    /// Seconds until all is done if everything takes as long as it may; none if something would wait.
    pub slowest_seconds: Option<u64>,
}

pub(crate) async fn run(
    arguments: &PlanVerb,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Error> {
    let here = arguments.here.as_path();
    let mut snapshot: Snapshot = match &arguments.snapshot {
        Some(path) => origin::snapshot_file(path)?,
        None if arguments.from_nothing => Snapshot::nothing(OWN_VERSION, Timestamp::now()),
        None => crate::connect(connection, output)?.snapshot().await?.read()?,
    };
    if snapshot.version != OWN_VERSION {
        let theirs = &snapshot.version;
        output.warn(&format!(
            "the control plane is denv {theirs} and this is {OWN_VERSION}: it may plan otherwise"
        ));
    }
    let desired = arguments.desired.as_ref();
    let desired = desired.map_or_else(|| Origin::Folder(here.to_owned()), |text| Origin::typed(text, here));
    let (before, after) = (Side::of_snapshot(&snapshot), desired.read(here, &mut None)?);
    let Some((old, new)) = configurations(&before, &after, &snapshot.deployed, output) else {
        return Ok(Exit::Trouble);
    };
    warn(&unheeded(&new.catalog), output);
    if arguments.from_nothing {
        snapshot.observed = assumed(&new.catalog, snapshot.taken_at);
    }
    let Snapshot { records, observed, taken_at, .. } = &snapshot;
    let world = World { catalog: &new.catalog, records, observed, now: *taken_at };
    let preview = Preview {
        diff: diff(&old, &new),
        forecast: forecast(&world, Pace::Expected),
        slowest_seconds: forecast(&world, Pace::Slowest).seconds,
        from: before.label,
        to: after.label,
    };
    match arguments.output {
        Form::Text => output.say(&text::preview(&preview))?,
        Form::Json => output.json(&preview)?,
        Form::Markdown => output.say(&markdown::preview(&preview))?,
    }
    Ok(if preview.goes_through() { Exit::Done } else { Exit::No })
}

impl Preview {
    pub(crate) fn goes_through(&self) -> bool {
        self.forecast.waiting.is_empty()
            && self.forecast.violations.is_empty()
            && self.forecast.seconds.is_some()
    }
}
