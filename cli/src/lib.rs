//! `denv`, the command line. It owns what people type and what they read.
//!
//! | floor | modules |
//! | --- | --- |
//! | top | `arguments`, `error` |
//! | | one file a verb: `validate`, `diff`, `plan`, `apply` (with delete), `promote`, `snapshot`, `comment`, `get`, `describe`, `why`, `rollout`, `scale`, `host`, `gateway`, `source`, `access`, `key`, `weights`, `usage`, `events`, `schema`, `explain`, `completion`, `version` |
//! | | `client`: the control plane's HTTP API; `inputs`, `origin`: where manifests come from; `comparison`: how differences look; `resource`, `views`, `manifests`: how lists and their rows look |
//! | bottom | `findings`; `output`, `table`, `text`, `time`, `random` |
//!
//! It refuses to know how anything is decided: what a manifest means is `denv-schema`'s, what happens next the
//! control plane's. It never speaks to a host, a gateway or a store.

mod access;
mod apply;
mod arguments;
mod client;
mod comment;
mod comparison;
mod completion;
mod describe;
mod diff;
mod error;
mod events;
mod explain;
mod findings;
mod gateway;
mod get;
mod host;
mod inputs;
mod key;
mod manifests;
mod origin;
mod output;
mod parity;
mod plan;
mod promote;
mod random;
mod resource;
mod rollout;
mod scale;
mod schema;
mod snapshot;
mod source;
mod table;
mod text;
mod time;
mod usage;
mod validate;
mod version;
mod views;
mod weights;
mod why;

pub use arguments::Arguments;
pub use output::{Exit, Output};

use arguments::Verb;
use client::{Client, Connection};
use error::Error;

/// Does what was typed; what went wrong has been said when this returns.
pub async fn run(arguments: Arguments, output: &mut Output) -> Exit {
    match dispatch(arguments, output).await {
        Ok(exit) => exit,
        // Whoever read the output has seen enough.
        Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            output.trouble(&error, error.hint());
            error.exit()
        }
    }
}

async fn dispatch(arguments: Arguments, output: &mut Output) -> Result<Exit, Error> {
    let Arguments { verb, connection } = arguments;
    let connect = |output: &mut Output| connect(&connection, output);
    match verb {
        Verb::Validate(validate) => validate::run(&validate, output),
        Verb::Diff(diff) => diff::run(&diff, &connection, output).await,
        Verb::Comment(comment) => comment::run(&comment, output).await,
        Verb::Plan(plan) => plan::run(&plan, &connection, output).await,
        Verb::Apply(arguments) => apply::apply(&arguments, &connection, output).await,
        Verb::Delete(arguments) => apply::delete(&arguments, &connection, output).await,
        Verb::Parity(parity) => parity::run(&parity, &connect(output)?, output).await,
        Verb::Promote(promote) => promote::run(&promote, &connection, output).await,
        Verb::Snapshot(snapshot) => snapshot::run(&snapshot, &connect(output)?, output).await,
        Verb::Get(get) => get::run(&get, &connect(output)?, output).await,
        Verb::Describe(describe) => describe::run(&describe, &connect(output)?, output).await,
        Verb::Rollout(rollout) => rollout::run(&rollout, &connect(output)?, output).await,
        Verb::Why(arguments) => why::run(&arguments, &connect(output)?, output).await,
        Verb::Scale(arguments) => scale::run(&arguments, &connect(output)?, output).await,
        Verb::Host(host) => host::run(&host, &connect(output)?, output).await,
        Verb::Gateway(gateway) => gateway::run(&gateway, &connect(output)?, output).await,
        Verb::Source(source) => source::run(&source, &connect(output)?, output).await,
        Verb::Access(access) => access::run(&access, output),
        Verb::Key(key) => key::run(&key, output),
        Verb::Weights(weights) => weights::run(&weights, output),
        Verb::Usage(usage) => usage::run(&usage, &connect(output)?, output).await,
        Verb::Events(events) => events::run(&events, &connect(output)?, output).await,
        Verb::Schema(schema) => schema::run(&schema, output),
        Verb::Explain(explain) => explain::run(&explain, output),
        Verb::Completion(completion) => completion::run(&completion, output),
        Verb::Version => version::run(output),
    }
}

/// A client, with a word of warning where its token may be read on the way.
fn connect(connection: &Connection, output: &mut Output) -> Result<Client, Error> {
    let client = Client::new(connection)?;
    if client.shows_its_token() {
        output.warn("the token is sent without encryption; use an https:// address");
    }
    Ok(client)
}
