//! The whole command line. Each verb's own arguments stand in its file.

use clap::{Parser, Subcommand};

use crate::access::Access;
use crate::apply::{Apply, Delete};
use crate::client::Connection;
use crate::comment::Comment;
use crate::completion::Completion;
use crate::describe::Describe;
use crate::diff::DiffVerb;
use crate::events::Events;
use crate::explain::Explain;
use crate::gateway::Gateway;
use crate::get::Get;
use crate::host::Host;
use crate::key::Key;
use crate::parity::Parity;
use crate::plan::PlanVerb;
use crate::promote::Promote;
use crate::rollout::Rollout;
use crate::scale::Scale;
use crate::schema::Schema;
use crate::snapshot::SnapshotVerb;
use crate::source::Source;
use crate::usage::Usage;
use crate::validate::Validate;
use crate::weights::WeightsVerb;
use crate::why::Why;

/// Runs inference engines as a Git repository says
#[derive(Debug, Parser)]
#[command(name = "denv", version, max_term_width = 110, arg_required_else_help = true, after_help = HELP)]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Validate(Validate),
    Diff(DiffVerb),
    Plan(PlanVerb),
    Apply(Apply),
    Delete(Delete),
    Promote(Promote),
    Snapshot(SnapshotVerb),
    Comment(Comment),
    Get(Get),
    Describe(Describe),
    Rollout(Rollout),
    Parity(Parity),
    Scale(Scale),
    Why(Why),
    Host(Host),
    Gateway(Gateway),
    Source(Source),
    Access(Access),
    Key(Key),
    Weights(WeightsVerb),
    Usage(Usage),
    Events(Events),
    Schema(Schema),
    Explain(Explain),
    Completion(Completion),
    /// Print the version
    Version,
}

const HELP: &str = "\
Examples:
  Check manifests before they are committed:
    denv validate manifests/
  See what a change does before it is merged:
    denv diff origin/main HEAD
    denv plan
  See what runs, and why something does not:
    denv get stages
    denv why stage chat/prod
  Watch a change roll:
    denv rollout status chat/prod --watch

Exit status:
  0  done
  1  the answer is no: manifests with faults, a rollout that failed, no such thing, a refusal
  2  trouble: wrong usage, unreadable files, a control plane out of reach, a wrong token
  3  not within --timeout";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_each_verb_has_examples() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        let without_examples: Vec<String> = leaves(&command)
            .into_iter()
            .filter(|leaf| !matches!(leaf.get_name(), "help" | "version"))
            .filter(|leaf| leaf.get_after_help().is_none_or(|help| !help.to_string().contains("Example")))
            .map(|leaf| leaf.get_bin_name().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(without_examples, Vec::<String>::new());
    }

    fn leaves(command: &clap::Command) -> Vec<&clap::Command> {
        if command.get_name() == "help" {
            return Vec::new();
        }
        match command.has_subcommands() {
            true => command.get_subcommands().flat_map(leaves).collect(),
            false => vec![command],
        }
    }
}
