//! `denv scale`: how many units of a stage run, within what its manifest allows.

use clap::Args;
use denv_schema::StageId;
use denv_schema::api::{ScaleRequest, StageView};

use crate::client::Client;
use crate::error::Error;
use crate::output::{Exit, Format, Output};
use crate::text::counted;

/// Say how many units of a stage run, within the ranges of its manifest
///
/// Fleets of the lowest priority number get their units first and lose them last. The number stays until it is said
/// again, also over changes of the manifest, whose ranges bound it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Scale {
    /// The stage
    #[arg(value_name = "ENVIRONMENT/STAGE")]
    stage: StageId,

    /// How many units, in all its fleets together
    #[arg(required_unless_present = "reset")]
    units: Option<u32>,

    /// As many as the manifest says at least
    #[arg(long, conflicts_with = "units")]
    reset: bool,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  denv scale chat/prod 6
  denv scale chat/prod --reset";

pub(crate) async fn run(scale: &Scale, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let answer = client.scale(&scale.stage, &ScaleRequest { units: scale.units }).await?;
    match scale.output {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => {
            let view: StageView = answer.read()?;
            let wanted = counted(view.wanted as usize, "unit");
            output.say(&format!("{} is to have {wanted}, and {} are ready", view.stage, view.ready))?;
        }
    }
    Ok(Exit::Done)
}
