//! `denv completion`: what shells need to complete the command line.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::error::Error;
use crate::output::{Exit, Output};

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completion {
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  bash, in this shell and in those to come:
    source <(denv completion bash)
    denv completion bash > ~/.local/share/bash-completion/completions/denv
  zsh, into a folder of $fpath:
    denv completion zsh > ~/.zfunc/_denv
  fish:
    denv completion fish > ~/.config/fish/completions/denv.fish";

pub(crate) fn run(arguments: &Completion, output: &mut Output) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "denv", &mut script);
    output.say(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
