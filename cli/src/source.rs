//! `denv source`: the Git branches that say what should run.

use clap::{Args, Subcommand};
use denv_schema::api::{SourceState, SourceView};

use crate::client::Client;
use crate::error::Error;
use crate::excerpt;
use crate::get::{ListForm, show};
use crate::output::{Exit, Format, Output};
use crate::resource::Resource;
use crate::views::revision;

/// List sources, and have them looked at again
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
}

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

Exit status: 0 the newest revision is in force, 1 it was refused or the remote can't be read.";

pub(crate) async fn run(source: &Source, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    match &source.verb {
        Verb::List(form) => show(Resource::Sources, &client.sources().await?, "", *form, output),
        Verb::Refresh(refresh) => {
            let answer = client.refresh(&refresh.name).await?;
            let view: SourceView = answer.read()?;
            match refresh.output {
                Format::Json => output.json(&answer.0)?,
                Format::Yaml => output.yaml(&answer.0)?,
                Format::Text => tell(&view, output)?,
            }
            Ok(if view.state == SourceState::Ready { Exit::Done } else { Exit::No })
        }
    }
}

fn tell(source: &SourceView, output: &mut Output) -> Result<(), Error> {
    if let Some(refused) = &source.refused {
        for finding in refused.diagnostics.iter() {
            output.note(&excerpt::render(finding, None));
        }
        output.note(&format!("refused: {}: {}", revision(&refused.revision), refused.reason));
    }
    if let Some(problem) = &source.problem {
        output.note(&format!("unreachable: {problem}"));
    }
    match &source.accepted {
        Some(accepted) => output.say(&format!("in force: {}", revision(accepted))),
        None => output.say("nothing is in force yet"),
    }
}
