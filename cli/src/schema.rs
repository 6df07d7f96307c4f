//! `denv schema`: the JSON Schema of a kind, for editors and CI.

use clap::Args;
use denv_schema::manifest::Kind;

use crate::error::Error;
use crate::output::{Exit, Output};
use crate::resource::manifest_kind;

/// Print the JSON Schema of a kind of manifest
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Schema {
    /// A kind: Release, Stage, Fleet …
    #[arg(value_parser = manifest_kind)]
    kind: Kind,
}

const EXAMPLES: &str = "\
Example:
  For an editor that knows YAML schemas:
    denv schema Stage > stage.schema.json";

pub(crate) fn run(arguments: &Schema, output: &mut Output) -> Result<Exit, Error> {
    output.json(&arguments.kind.json_schema())?;
    Ok(Exit::Done)
}
