//! `denv promote`: the release that one stage has proven, to the next.

use clap::Args;
use denv_schema::api::{ManifestView, StageView};
use denv_schema::change::{ChangeRequest, FieldSetting};
use denv_schema::diff::ManifestKey;
use denv_schema::manifest::Kind;
use denv_schema::{Name, StageId};

use crate::apply::{How, change};
use crate::client::{Client, Connection};
use crate::error::Error;
use crate::output::{Exit, Output};

/// Have the next stage of an environment run what this one runs, as a commit in your name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Promote {
    /// The stage that has proven the release
    #[arg(value_name = "ENVIRONMENT/STAGE")]
    from: StageId,

    /// The stage to move, instead of the next one
    #[arg(long, value_name = "STAGE")]
    to: Option<Name>,

    /// Also a release that the stage has not come to run well
    #[arg(long)]
    unproven: bool,

    #[command(flatten)]
    how: How,
}

const EXAMPLES: &str = "\
Examples:
  denv promote chat/test --dry-run
  denv promote chat/test --wait

Exit status: 0 done, 1 refused, or the deployment failed, 2 trouble, 3 not over within --timeout.";

pub(crate) async fn run(
    arguments: &Promote,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Error> {
    let client = crate::connect(connection, output)?;
    let from = &arguments.from;
    let view: StageView = client.stage(from).await?.read()?;
    let proven = view.good.as_ref() == Some(&view.desired) && view.held.is_none();
    if !proven && !arguments.unproven {
        let message = format!("stage {from} has not come to run `{}` well", view.desired);
        let hint = format!("see `denv describe stage {from}`; promote it all the same with --unproven");
        return Err(Error::Refused { message, hint: Some(hint) });
    }
    let to = match &arguments.to {
        Some(to) => StageId { environment: from.environment.clone(), stage: to.clone() },
        None => next(from, &client).await?,
    };
    let request = ChangeRequest {
        set: vec![FieldSetting {
            manifest: ManifestKey { kind: Kind::Stage, name: to.to_string() },
            field: "/spec/release".to_owned(),
            value: view.desired.as_str().into(),
        }],
        message: Some(format!("Promote {} from {from} to {to}", view.desired)),
        ..ChangeRequest::default()
    };
    change(request, &arguments.how, connection, output).await
}

/// The stage after this one in its environment.
async fn next(from: &StageId, client: &Client) -> Result<StageId, Error> {
    let environments: Vec<ManifestView> = client.manifests(Kind::Environment).await?.items()?;
    let stages = environments
        .iter()
        .find(|environment| environment.name == from.environment.as_str())
        .and_then(|environment| environment.spec["stages"].as_array())
        .cloned()
        .unwrap_or_default();
    let names: Vec<&str> = stages.iter().filter_map(serde_json::Value::as_str).collect();
    let next = names.iter().position(|name| *name == from.stage.as_str()).and_then(|at| names.get(at + 1));
    match next.and_then(|next| next.parse().ok()) {
        Some(stage) => Ok(StageId { environment: from.environment.clone(), stage }),
        None => Err(Error::Refused {
            message: format!("{from} is the last stage of `{}`", from.environment),
            hint: Some(format!("its stages are {}", names.join(", "))),
        }),
    }
}
