//! `denv gateway`: what serves endpoints, and the tokens by which gateways join.

use clap::{Args, Subcommand};
use denv_schema::api::JoinRole;

use crate::client::Client;
use crate::error::Error;
use crate::get::{ListForm, show};
use crate::host::{NewToken, new_token};
use crate::output::{Exit, Output};
use crate::resource::Resource;

/// List gateways, and let them join
#[derive(Debug, Args)]
pub(crate) struct Gateway {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List gateways, as `denv get gateways` does
    #[command(after_help = "Example:\n  denv gateway list -o wide")]
    List(ListForm),
    /// Make a one-time token, by which a gateway joins
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(NewToken),
}

const TOKEN_EXAMPLES: &str = "\
Examples:
  On the control plane's side:
    denv gateway token gw-1 > gw-1.token
  Where the gateway runs, once:
    denv-gateway --server HOST:PORT --token-file gw-1.token";

pub(crate) async fn run(gateway: &Gateway, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    match &gateway.verb {
        Verb::List(form) => show(Resource::Gateways, &client.gateways().await?, "", *form, output),
        Verb::Token(token) => new_token(token, JoinRole::Gateway, client, output).await,
    }
}
