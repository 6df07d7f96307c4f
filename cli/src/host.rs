//! `denv host`: machines that run denvd, and the tokens by which they join.

use clap::{Args, Subcommand};
use denv_schema::Name;
use denv_schema::api::{JoinRole, TokenRequest, TokenResponse};
use jiff::Timestamp;

use crate::client::Client;
use crate::error::Error;
use crate::get::{ListForm, show};
use crate::output::{Exit, Format, Output};
use crate::resource::Resource;
use crate::time;

/// List hosts, and let them join
#[derive(Debug, Args)]
pub(crate) struct Host {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List hosts, as `denv get hosts` does
    #[command(after_help = "Example:\n  denv host list -o wide")]
    List(ListForm),
    /// Make a one-time token, by which a host in the manifests joins
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(NewToken),
}

#[derive(Debug, Args)]
pub(crate) struct NewToken {
    /// Whose token it is
    name: Name,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const TOKEN_EXAMPLES: &str = "\
Examples:
  On the control plane's side:
    denv host token gpu-1 > gpu-1.token
  On the host, once:
    denvd --server HOST:PORT --token-file gpu-1.token";

pub(crate) async fn run(host: &Host, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    match &host.verb {
        Verb::List(form) => show(Resource::Hosts, &client.hosts().await?, "", *form, output),
        Verb::Token(token) => new_token(token, JoinRole::Host, client, output).await,
    }
}

/// Standard output gets the token alone, so that it can go into a file.
pub(crate) async fn new_token(
    new: &NewToken,
    role: JoinRole,
    client: &Client,
    output: &mut Output,
) -> Result<Exit, Error> {
    let answer = client.create_token(&TokenRequest { role, name: new.name.clone() }).await?;
    match new.output {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => {
            let TokenResponse { token, expires } = answer.read()?;
            output.say(&token)?;
            let (role, program) = match role {
                JoinRole::Host => ("host", "denvd"),
                JoinRole::Gateway => ("gateway", "denv-gateway"),
            };
            let within = time::age(Timestamp::now(), expires);
            output.note(&format!("{role} `{}` can join with it once, within {within}; there:", new.name));
            output.note(&format!("  {program} --server HOST:PORT --token-file FILE   (or --token TOKEN)"));
            output.note("HOST:PORT is where the control plane listens for hosts and gateways.");
        }
    }
    Ok(Exit::Done)
}
