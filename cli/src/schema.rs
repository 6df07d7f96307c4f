//! `denv schema`: the JSON Schemas of manifests, for editors and CI, and their Kubernetes definitions.

use clap::{Args, ValueEnum};
use denv_schema::manifest::Kind;
use denv_schema::reference;

use crate::error::Error;
use crate::output::{Exit, Output, yaml};
use crate::resource::manifest_kind;

/// Print the JSON Schema of a kind of manifest, or of all
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Schema {
    /// A kind: Release, Stage, Fleet … Without it: all
    #[arg(value_parser = manifest_kind)]
    kind: Option<Kind>,
    /// Print Kubernetes CustomResourceDefinitions instead
    #[arg(long)]
    crd: bool,
    /// The form of definitions
    #[arg(short, long, value_enum, default_value_t = Form::Yaml, requires = "crd")]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A document for each
    Yaml,
    /// A list of all
    Json,
}

const EXAMPLES: &str = "\
Examples:
  For an editor that knows YAML schemas:
    denv schema > denv.schema.json
    denv schema Stage > stage.schema.json
  For a Kubernetes cluster:
    denv schema --crd | kubectl apply -f -";

pub(crate) fn run(arguments: &Schema, output: &mut Output) -> Result<Exit, Error> {
    match (arguments.crd, arguments.kind) {
        (false, Some(kind)) => output.json(&reference::json_schema(kind))?,
        (false, None) => output.json(&reference::all_kinds())?,
        (true, kind) => definitions(kind, arguments.output, output)?,
    }
    Ok(Exit::Done)
}

fn definitions(kind: Option<Kind>, form: Form, output: &mut Output) -> Result<(), Error> {
    let kinds: Vec<Kind> = kind.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    let definitions: Vec<_> = kinds.into_iter().map(reference::crd).collect();
    match (form, definitions.as_slice()) {
        (Form::Json, [only]) => output.json(only)?,
        (Form::Json, _) => {
            let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": definitions });
            output.json(&list)?;
        }
        (Form::Yaml, _) => {
            let documents: Vec<String> = definitions.iter().map(yaml).collect::<Result<_, _>>()?;
            output.say(&documents.join("---\n"))?;
        }
    }
    Ok(())
}
