//! `denv source`: the Git branches that say what should run.

use clap::{Args, Subcommand};
use denv_schema::api::{ApprovalRequest, SourceState, SourceView, short};

use crate::client::{Answer, Client};
use crate::error::Error;
use crate::findings;
use crate::get::{ListForm, show};
use crate::output::{Exit, Format, Output};
use crate::resource::Resource;
use crate::views::revision;

/// List sources, have them looked at again, and approve large deletions
#[derive(Debug, Args)]
pub(crate) struct Source {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List sources, as `denv get sources` does
    #[command(after_help = "Example:\n  denv source list")]
    List(ListForm),
    /// Fetch now instead of at the next poll, and say what became of it
    #[command(after_help = REFRESH_EXAMPLES)]
    Refresh(Refresh),
    /// Accept the revision that waits because of what it deletes: this one, and no other
    #[command(after_help = APPROVE_EXAMPLES)]
    Approve(Approve),
}

#[derive(Debug, Args)]
struct Approve {
    /// The source's name
    name: String,

    /// The commit that waits, as `denv describe source` shows it: whole, or its first 7 characters or more
    revision: String,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const APPROVE_EXAMPLES: &str = "\
Examples:
  What waits, and what it would delete:
    denv describe source main
  Accept it:
    denv source approve main 4f1d2c9a3b

A newer commit takes the place of one that waits, and is judged by itself. Who approved what is kept as an event.";

#[derive(Debug, Args)]
struct Refresh {
    /// The source's name
    name: String,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const REFRESH_EXAMPLES: &str = "\
Example:
  git push && denv source refresh main && denv rollout status chat/prod --watch

Exit status: 0 the newest revision is in force, 1 it was refused, awaits approval, or the remote can't be
read.";

pub(crate) async fn run(source: &Source, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    match &source.verb {
        Verb::List(form) => show(Resource::Sources, &client.sources().await?, "", *form, output),
        Verb::Refresh(refresh) => answered(&client.refresh(&refresh.name).await?, refresh.output, output),
        Verb::Approve(approve) => {
            let request = ApprovalRequest { revision: approve.revision.clone() };
            answered(&client.approve(&approve.name, &request).await?, approve.output, output)
        }
    }
}

fn answered(answer: &Answer, format: Format, output: &mut Output) -> Result<Exit, Error> {
    let view: SourceView = answer.read()?;
    match format {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => tell(&view, output)?,
    }
    Ok(if view.state == SourceState::Ready { Exit::Done } else { Exit::No })
}

fn tell(source: &SourceView, output: &mut Output) -> Result<(), Error> {
    if let Some(refused) = &source.refused {
        for finding in refused.diagnostics.iter() {
            output.note(&findings::render(finding, None));
        }
        output.note(&format!("refused: {}: {}", revision(&refused.revision), refused.reason));
    }
    if let Some(awaiting) = &source.awaiting {
        output.note(&format!(
            "awaits approval: {} would delete {}; accept it with `denv source approve {} {}`",
            revision(&awaiting.revision),
            awaiting.reason,
            source.name,
            short(&awaiting.revision.commit)
        ));
    }
    if let Some(problem) = &source.problem {
        output.note(&format!("unreachable: {problem}"));
    }
    match &source.accepted {
        Some(accepted) => output.say(&format!("in force: {}", revision(accepted))),
        None => output.say("nothing is in force yet"),
    }
}
