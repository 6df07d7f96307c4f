//! `denv`: the process around the command line. Everything else is in the library.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use denv_cli::{Arguments, Exit, Output};

fn main() -> ExitCode {
    // Before anything that may speak TLS. It fails only where a provider stands already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = Arguments::parse();
    let mut output = Output::standard();
    match run(arguments, &mut output) {
        Ok(exit) => exit.into(),
        Err(error) => {
            output.trouble(error.as_ref(), None);
            Exit::Trouble.into()
        }
    }
}

fn run(arguments: Arguments, output: &mut Output) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("cannot start the runtime")?.block_on(denv_cli::run(arguments, output)))
}
