//! `denv parity`: how a release's answers compared with those that are right.

use clap::{Args, Subcommand, ValueEnum};
use denv_gates::Outcome;
use denv_gates::parity::{Report, html};
use denv_schema::StageId;

use crate::client::Client;
use crate::error::Error;
use crate::output::{Exit, Output};

/// Show how a release's answers compared with those that are right
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Parity {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Report(ReportArguments),
}

/// Show the last run of a stage's parity suite, with each case and every difference
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct ReportArguments {
    /// The stage
    #[arg(value_name = "ENVIRONMENT/STAGE")]
    stage: StageId,

    /// The run of this deployment, instead of the last that had one
    #[arg(long, value_name = "NUMBER")]
    deployment: Option<u64>,

    /// The run before the release took traffic, or after its last batch [default: the later of those there are]
    #[arg(long, value_enum)]
    when: Option<When>,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// As the control plane sends it
    Json,
    /// A page that needs nothing beside itself
    Html,
}

const EXAMPLES: &str = "\
Examples:
  denv parity report chat/prod
  What the third deployment's gate saw, as a page:
    denv parity report chat/prod --deployment 3 --when before -o html > report.html

Exit status: 0 it passed, 1 it did not, or there is no such run, 2 trouble.";

pub(crate) async fn run(arguments: &Parity, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let Verb::Report(arguments) = &arguments.verb;
    let when = arguments.when.map(|when| match when {
        When::Before => "before",
        When::After => "after",
    });
    let answer = client.parity(&arguments.stage, arguments.deployment, when).await?;
    let report: Report = answer.read()?;
    match arguments.output {
        Form::Text => output.say(&report.text())?,
        Form::Html => output.say(&html(&report))?,
        Form::Json => output.json(&answer.0)?,
    }
    Ok(if report.outcome == Outcome::Pass { Exit::Done } else { Exit::No })
}
