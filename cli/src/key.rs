//! `denv key`: keys are made here, offline. A manifest holds a key's hash; nobody but its owner holds the key.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use denv_schema::manifest::{ApiVersion, KeySpec, Kind, Limits, Manifest, Metadata};
use denv_schema::{Digest, Name};
use serde_json::json;

use crate::error::Error;
use crate::output::{Exit, Output, yaml};
use crate::random;

/// Make API keys for customers
#[derive(Debug, Args)]
pub(crate) struct Key {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(Create),
}

/// Make a key: its manifest goes to standard output, the key to standard error, this once
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct Create {
    /// The name of the Key manifest
    name: Name,

    /// The Customer whose key it is
    #[arg(long, value_name = "CUSTOMER")]
    customer: Name,

    /// Write the key to this new file, which only you can read, instead of showing it
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// What is printed
    #[arg(short, long, value_enum, default_value_t = Form::Manifest)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The manifest, as YAML
    Manifest,
    /// {"key": …, "manifest": …}
    Json,
}

const EXAMPLES: &str = "\
Examples:
  Add a key to the configuration, and keep the key itself for its owner:
    denv key create acme-backend --customer acme --key-file acme.key > manifests/keys/acme-backend.yaml
  For a script:
    denv key create acme-backend --customer acme -o json

The key works once the manifest is committed and accepted. denv keeps only its hash: a key that is
lost is made anew.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error("the system gives no random numbers")]
    Random(#[source] rand::rand_core::OsError),
    #[error("cannot write the key to `{path}`")]
    Write { path: PathBuf, source: io::Error },
}

impl KeyError {
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            KeyError::Write { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("a key is never written over; name a new file".to_owned())
            }
            _ => None,
        }
    }
}

pub(crate) fn run(arguments: &Key, output: &mut Output) -> Result<Exit, Error> {
    let Verb::Create(create) = &arguments.verb;
    let key = random::text(PREFIX).map_err(KeyError::Random)?;
    let manifest = manifest(create.name.clone(), create.customer.clone(), &key);
    if let Some(path) = &create.key_file {
        random::write_new(path, &key).map_err(|source| KeyError::Write { path: path.clone(), source })?;
        output.note(&format!("the key is in `{}`", path.display()));
    }
    match create.output {
        Form::Json if create.key_file.is_some() => output.json(&json!({"manifest": manifest}))?,
        Form::Json => output.json(&json!({"key": key, "manifest": manifest}))?,
        Form::Manifest => {
            output.say(&yaml(&manifest)?)?;
            if create.key_file.is_none() {
                output.note(&format!("\nThe key, shown only this once:\n\n  {key}\n"));
                output.hint("commit the manifest, and give the key to its owner");
            }
        }
    }
    Ok(Exit::Done)
}

const PREFIX: &str = "sk-denv-";

fn manifest(name: Name, customer: Name, key: &str) -> Manifest<KeySpec> {
    Manifest {
        api_version: ApiVersion::V1,
        kind: Kind::Key,
        metadata: Metadata { name, labels: BTreeMap::new(), annotations: BTreeMap::new() },
        spec: KeySpec {
            customer,
            hash: Digest::of_bytes(key.as_bytes()),
            expires: None,
            limits: Limits::default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use denv_schema::Catalog;
    use denv_schema::tree::Files;

    use super::*;

    #[test]
    fn the_manifest_is_valid_whatever_its_name_looks_like() {
        for name in ["acme-backend", "123", "1.0", "true", "null", "1e3"] {
            let manifest = manifest(name.parse().unwrap(), "007".parse().unwrap(), "sk-denv-x");
            let customer = "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {name: \"007\"}\nspec: {}\n";
            let files = Files::from([
                ("key.yaml".to_owned(), yaml(&manifest).unwrap().into_bytes()),
                ("customer.yaml".to_owned(), customer.as_bytes().to_vec()),
            ]);
            let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
            assert_eq!(catalog.keys[name].hash, Digest::of_bytes(b"sk-denv-x"));
        }
        insta::assert_snapshot!(yaml(&manifest("a".parse().unwrap(), "b".parse().unwrap(), "x")).unwrap(), @"
        apiVersion: denv.dev/v1
        kind: Key
        metadata:
          name: a
        spec:
          customer: b
          hash: sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881
        ");
    }
}
