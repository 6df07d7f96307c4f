//! Secrets stand in manifests as references only. What is found is named by its variable or flag, never by its value.

use super::{Entry, report};
use crate::diagnostic::{Code, Diagnostics};
use crate::launch::Reference;
use crate::manifest::AnyManifest;

/// How names of secrets end. `MAX_TOKENS` and the like count tokens of text.
const VARIABLES: [&str; 7] = ["SECRET", "PASSWORD", "PASSWD", "TOKEN", "APIKEY", "API_KEY", "ACCESS_KEY"];
/// Of flags, `--bos-token` and the like are about text.
const FLAGS: [&str; 8] =
    ["SECRET", "PASSWORD", "PASSWD", "HF_TOKEN", "AUTH_TOKEN", "APIKEY", "API_KEY", "ACCESS_KEY"];

pub(super) fn secrets(entry: &Entry<'_>, found: &mut Diagnostics) {
    match entry.manifest {
        AnyManifest::Recipe(manifest) => {
            for (name, value) in &manifest.spec.env {
                variable(entry, name, value, found);
            }
            flags(entry, "/spec/flags", &manifest.spec.flags, found);
        }
        AnyManifest::Engine(manifest) => flags(entry, "/spec/command", &manifest.spec.command, found),
        AnyManifest::Release(manifest) => {
            flags(entry, "/spec/config/flags", &manifest.spec.config.flags, found);
        }
        AnyManifest::Provider(_)
        | AnyManifest::Fleet(_)
        | AnyManifest::Host(_)
        | AnyManifest::WeightCache(_)
        | AnyManifest::Environment(_)
        | AnyManifest::Stage(_)
        | AnyManifest::ParitySuite(_)
        | AnyManifest::Alarm(_)
        | AnyManifest::Endpoint(_)
        | AnyManifest::Customer(_)
        | AnyManifest::Key(_)
        | AnyManifest::PriceList(_)
        | AnyManifest::Access(_)
        | AnyManifest::Webhook(_) => {}
    }
}

/// A variable whose name says that it is a secret must be a reference, and a reference one that can be followed.
fn variable(entry: &Entry<'_>, name: &str, value: &str, found: &mut Diagnostics) {
    let pointer = format!("/spec/env/{}", name.replace('~', "~0").replace('/', "~1"));
    let mut say = |code, message, hint: &str| {
        report(found, entry, &pointer, code, message, Some(hint.to_owned()));
    };
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !begins || !characters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let message = format!("`{name}` is not a name of a variable");
        say(Code::BadValue, message, "use letters, digits and `_`, not beginning with a digit");
    } else if name.starts_with("DENV_") {
        let message = format!("`{name}` would take the place of a variable that denvd sets");
        say(Code::BadValue, message, "use a name that does not begin with `DENV_`");
    }
    match Reference::parse(value) {
        Some(Ok(_)) => {}
        Some(Err(rule)) => {
            say(
                Code::BadValue,
                format!("the reference that `{name}` takes its value from is not valid"),
                rule,
            );
        }
        None if is_secret(name, &VARIABLES) => {
            let message = format!("`{name}` looks like a secret and is written out");
            say(
                Code::InlineSecret,
                message,
                "write where the host finds it: `env:NAME` (of denvd) or `file:/path`",
            );
        }
        None => {}
    }
}

/// A flag whose name says that it is a secret, with a value: process lists show it too.
fn flags(entry: &Entry<'_>, pointer: &str, arguments: &[String], found: &mut Diagnostics) {
    for (i, argument) in arguments.iter().enumerate() {
        let Some(flag) = argument.strip_prefix("--") else { continue };
        let (name, is_given) = match flag.split_once('=') {
            Some((name, value)) => (name, !value.is_empty()),
            None => (flag, arguments.get(i + 1).is_some_and(|next| !next.starts_with('-'))),
        };
        if is_given && is_secret(name, &FLAGS) {
            let message = format!("`--{name}` looks like a secret and is written out");
            let hint = "engines take it from a variable too: set that in the recipe's `env`, to `env:NAME` (of \
                        denvd) or `file:/path`";
            report(
                found,
                entry,
                &format!("{pointer}/{i}"),
                Code::InlineSecret,
                message,
                Some(hint.to_owned()),
            );
        }
    }
}

fn is_secret(name: &str, words: &[&str]) -> bool {
    let name = name.to_uppercase().replace('-', "_");
    words.iter().any(|word| name.ends_with(word))
}
