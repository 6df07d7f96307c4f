//! `denv snapshot`: what the control plane plans by, to be planned with elsewhere.

use clap::Args;

use crate::client::Client;
use crate::error::Error;
use crate::output::{Exit, Output};

/// Print the world that the control plane plans by, for `denv plan --snapshot`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SnapshotVerb {}

const EXAMPLES: &str = "\
Examples:
  Keep what runs, and plan against it where the control plane is out of reach:
    denv snapshot > world.json
    denv plan --snapshot world.json

It holds the manifests in force, denv's records and what hosts report: no keys, no secrets.";

pub(crate) async fn run(_: &SnapshotVerb, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let answer = client.snapshot().await?;
    output.json(&answer.0)?;
    Ok(Exit::Done)
}
