//! `denv access`: tokens for people are made here, offline. A manifest holds a token's hash; nobody but its owner holds
//! the token.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use denv_schema::manifest::{
    AccessSpec, AccessToken, ApiVersion, Grant, Kind, Manifest, Metadata, Role, StagePattern,
};
use denv_schema::{Digest, Name};

use crate::error::Error;
use crate::key::KeyError;
use crate::output::{Exit, Output, yaml};
use crate::random;

/// Let people and machines use the API
#[derive(Debug, Args)]
pub(crate) struct Access {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(Create),
}

/// Make a token: its manifest goes to standard output, the token to standard error, this once
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct Create {
    /// The name of the Access manifest
    name: Name,

    /// The address of whose it is, the author's in commits
    #[arg(long, value_name = "ADDRESS")]
    email: String,

    /// The name for people, the author's in commits
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,

    /// What may be done: viewer, operator, publisher or admin
    #[arg(long, value_parser = role)]
    role: Role,

    /// Where: chat/prod, chat/*, or * for everything; may be given several times
    #[arg(long = "stage", value_name = "STAGES", required = true)]
    stages: Vec<StagePattern>,

    /// Write the token to this new file, which only you can read, instead of showing it
    #[arg(long, value_name = "FILE")]
    new_token_file: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  Let Ada change one stage:
    denv access create ada --email ada@example.com --role publisher --stage chat/prod > access/ada.yaml
  Let CI see everything, for previews:
    denv access create ci --email ci@example.com --role viewer --stage '*' --new-token-file ci.token

The token works once the manifest is committed and accepted. denv keeps only its hash.";

fn role(text: &str) -> Result<Role, String> {
    [Role::Viewer, Role::Operator, Role::Publisher, Role::Admin]
        .into_iter()
        .find(|role| role.to_string() == text)
        .ok_or_else(|| "the roles are viewer, operator, publisher and admin".to_owned())
}

pub(crate) fn run(arguments: &Access, output: &mut Output) -> Result<Exit, Error> {
    let Verb::Create(create) = &arguments.verb;
    let token = random::text("denv-").map_err(KeyError::Random)?;
    if let Some(path) = &create.new_token_file {
        let written = random::write_new(path, &token);
        written.map_err(|source| KeyError::Write { path: path.clone(), source })?;
        output.note(&format!("the token is in `{}`", path.display()));
    }
    output.say(&yaml(&create.manifest(&token))?)?;
    if create.new_token_file.is_none() {
        output.note(&format!("\nThe token, shown only this once:\n\n  {token}\n"));
        output.hint("commit the manifest, and give the token to its owner, for ~/.config/denv/token");
    }
    Ok(Exit::Done)
}

impl Create {
    fn manifest(&self, token: &str) -> Manifest<AccessSpec> {
        let hash = Digest::of_bytes(token.as_bytes());
        Manifest {
            api_version: ApiVersion::V1,
            kind: Kind::Access,
            metadata: Metadata {
                name: self.name.clone(),
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
            },
            spec: AccessSpec {
                display_name: self.display_name.clone(),
                email: self.email.clone(),
                tokens: vec![AccessToken { hash, expires: None, note: None }],
                grants: vec![Grant { role: self.role, stages: self.stages.clone() }],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use denv_schema::Catalog;
    use denv_schema::tree::Files;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        create: Create,
    }

    #[test]
    fn the_manifest_is_valid_and_is_good_for_its_token() {
        let words = ["x", "ada", "--email", "ada@example.com", "--role", "publisher", "--stage", "*"];
        let manifest = Line::parse_from(words).create.manifest("denv-secret");
        let files = Files::from([("ada.yaml".to_owned(), yaml(&manifest).unwrap().into_bytes())]);
        let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
        let access = &catalog.access["ada"];
        assert!(access.has_token(&Digest::of_bytes(b"denv-secret"), jiff::Timestamp::now()));
        assert!(access.allows(Role::Publisher, None));
        assert!(Line::try_parse_from(["x", "a", "--email", "e", "--role", "king", "--stage", "*"]).is_err());
    }
}
