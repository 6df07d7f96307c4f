//! `denv rollout`: how a stage's change goes, and what a person asks of it.

mod status;
mod verdict;

use std::time::Duration;

use clap::{Args, Subcommand};
use denv_schema::api::{RolloutAction, RolloutRequest, StageView};
use denv_schema::{Name, StageId};

use crate::client::Client;
use crate::error::Error;
use crate::output::{Exit, Format, Output};

/// Follow, approve, pause, resume, abort or retry the change of a stage
#[derive(Debug, Args)]
pub(crate) struct Rollout {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Status(status::Status),
    /// Let a change begin that waits for a person
    ///
    /// Stages with `rollout.approval: required` have each change wait until somebody says this. It is kept with the
    /// change: who, and when. A newer release, and a retry, are approved anew; going back needs no approval.
    #[command(after_help = APPROVE)]
    Approve(Approve),
    /// Stop: nothing more starts or drains, and what runs runs on
    #[command(after_help = "Example:\n  denv rollout pause chat/prod")]
    Pause(Ask),
    /// Go on with what was paused
    #[command(after_help = "Example:\n  denv rollout resume chat/prod")]
    Resume(Ask),
    /// Go back to the good release, and hold there
    #[command(
        after_help = "Example:\n  denv rollout abort chat/prod && denv rollout status chat/prod --watch"
    )]
    Abort(Ask),
    /// Try again the release that the stage holds back; where approval is required, it is asked for again
    #[command(
        after_help = "Example:\n  denv rollout retry chat/prod && denv rollout status chat/prod --watch"
    )]
    Retry(Ask),
}

const APPROVE: &str = "\
Examples:
  denv describe stage chat/prod
  denv rollout approve chat/prod --release flash-r13
  denv rollout status chat/prod --watch";

#[derive(Debug, Args)]
struct Approve {
    #[command(flatten)]
    ask: Ask,

    /// Approve only if the change is to this release, so that nothing newer is approved unseen
    #[arg(long, value_name = "RELEASE")]
    release: Option<Name>,
}

#[derive(Debug, Args)]
struct Ask {
    /// The stage
    #[arg(value_name = "ENVIRONMENT/STAGE")]
    stage: StageId,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(crate) async fn run(rollout: &Rollout, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let mut release = None;
    let (ask, action) = match &rollout.verb {
        Verb::Status(status) => return status::run(status, client, output).await,
        Verb::Approve(approve) => {
            release.clone_from(&approve.release);
            (&approve.ask, RolloutAction::Approve)
        }
        Verb::Pause(ask) => (ask, RolloutAction::Pause),
        Verb::Resume(ask) => (ask, RolloutAction::Resume),
        Verb::Abort(ask) => (ask, RolloutAction::Abort),
        Verb::Retry(ask) => (ask, RolloutAction::Retry),
    };
    let answer = client.rollout(&ask.stage, &RolloutRequest { action, release }).await?;
    match ask.output {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => output.say(&done(&answer.read()?, action))?,
    }
    Ok(Exit::Done)
}

fn done(stage: &StageView, action: RolloutAction) -> String {
    let id = &stage.stage;
    let good = stage.good.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    match action {
        RolloutAction::Pause => {
            format!(
                "{id} is paused; go on with `denv rollout resume {id}`, go back with `denv rollout abort {id}`"
            )
        }
        RolloutAction::Resume => format!("{id} goes on to {}", stage.desired),
        RolloutAction::Abort => format!("{id} goes back to {good}"),
        RolloutAction::Retry => format!("{id} tries {} again", stage.desired),
        RolloutAction::Approve => {
            let to = stage.deployment.as_ref().map_or(&stage.desired, |deployment| &deployment.to);
            format!("{id} may go on to {to}; follow it with `denv rollout status {id} --watch`")
        }
    }
}

/// Follows the change of a stage to its end, and says it.
pub(crate) async fn follow(
    stage: &StageId,
    timeout: Duration,
    client: &Client,
    output: &mut Output,
) -> Result<Exit, Error> {
    status::run(&status::Status::watched(stage.clone(), timeout), client, output).await
}
