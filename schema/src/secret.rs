//! Secrets in manifests: where a value is, never the value.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Where the control plane finds a secret: `env:NAME` of its own environment, `file:/path` on its disk, or
/// `secret:namespace/name/key` in the Kubernetes cluster that it runs in.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SecretReference {
    Variable(String),
    File(String),
    Kubernetes { namespace: String, name: String, key: String },
}

/// It does not say what was written, which may be a secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a secret is written as where it is: `env:NAME`, `file:/path` or `secret:namespace/name/key`")]
pub struct InvalidSecretReference;

impl FromStr for SecretReference {
    type Err = InvalidSecretReference;
    fn from_str(text: &str) -> Result<Self, InvalidSecretReference> {
        let is_word = |part: &str, also: &[u8]| {
            !part.is_empty()
                && part.len() <= 253
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || also.contains(&b))
        };
        if let Some(name) = text.strip_prefix("env:") {
            let begins = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
            return if begins && is_word(name, b"_") {
                Ok(SecretReference::Variable(name.to_owned()))
            } else {
                Err(InvalidSecretReference)
            };
        }
        if let Some(path) = text.strip_prefix("file:") {
            let is_path = path.len() > 1 && path.starts_with('/') && !path.starts_with("//");
            return if is_path && !path.contains(|c: char| c.is_whitespace() || c.is_control()) {
                Ok(SecretReference::File(path.to_owned()))
            } else {
                Err(InvalidSecretReference)
            };
        }
        let parts: Vec<&str> = text.strip_prefix("secret:").unwrap_or_default().split('/').collect();
        match parts.as_slice() {
            [namespace, name, key]
                if is_word(namespace, b"-") && is_word(name, b"-.") && is_word(key, b"-._") =>
            {
                Ok(SecretReference::Kubernetes {
                    namespace: (*namespace).to_owned(),
                    name: (*name).to_owned(),
                    key: (*key).to_owned(),
                })
            }
            _ => Err(InvalidSecretReference),
        }
    }
}

impl TryFrom<String> for SecretReference {
    type Error = InvalidSecretReference;
    fn try_from(text: String) -> Result<Self, InvalidSecretReference> {
        text.parse()
    }
}

impl From<SecretReference> for String {
    fn from(reference: SecretReference) -> String {
        reference.to_string()
    }
}

impl fmt::Display for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretReference::Variable(name) => write!(f, "env:{name}"),
            SecretReference::File(path) => write!(f, "file:{path}"),
            SecretReference::Kubernetes { namespace, name, key } => {
                write!(f, "secret:{namespace}/{name}/{key}")
            }
        }
    }
}

impl fmt::Debug for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How keys begin that people paste, and how long what begins so must be to be one.
const KEYS: [(&str, usize); 7] = [
    ("sk-denv-", 20),
    ("sk-", 24),
    ("hf_", 24),
    ("ghp_", 24),
    ("github_pat_", 24),
    ("glpat-", 20),
    ("AKIA", 20),
];

/// No key is shorter, and no private key.
const SHORTEST_KEY: usize = 20;

/// Whether a text holds what is surely a secret, wherever it stands.
pub(crate) fn holds_key(text: &str) -> bool {
    // Nearly all texts are too short for any, and every text of every manifest is asked about.
    if text.len() < SHORTEST_KEY {
        return false;
    }
    if text.contains("-----BEGIN ") && text.contains("PRIVATE KEY-----") {
        return true;
    }
    if KEYS.iter().all(|(begin, _)| !text.contains(begin)) {
        return false;
    }
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    // Names in words are no keys, however they begin.
    let is_random =
        |word: &str| word.bytes().any(|b| b.is_ascii_digit()) && word.bytes().any(|b| b.is_ascii_uppercase());
    let begins =
        |word: &str| KEYS.iter().any(|(begin, length)| word.starts_with(begin) && word.len() >= *length);
    words.into_iter().any(|word| begins(word) && is_random(word))
}

/// The format that a schema gives such a field; a value that breaks it may be the secret itself.
pub(crate) const FORMAT: &str = "secret-reference";

impl JsonSchema for SecretReference {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "SecretReference".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "pattern": r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^/\s]\S*|secret:[A-Za-z0-9-]+/[A-Za-z0-9.-]+/[A-Za-z0-9._-]+)$",
            "patternErrorMessage": "a secret is written as where it is: `env:NAME`, `file:/path` or `secret:namespace/name/key`"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_shorter_than_the_shortest() {
        assert!(KEYS.iter().all(|(begin, length)| *length >= SHORTEST_KEY && begin.len() < *length));
    }

    #[test]
    fn keys_are_told_from_names() {
        for key in [
            "sk-denv-PLANTED0secret0value",
            "Bearer hf_abcDEF0123456789abcdef0123",
            "AKIAIOSFODNN7EXAMPLE",
            "-----BEGIN RSA PRIVATE KEY-----\nMII",
        ] {
            assert!(holds_key(key), "{key}");
        }
        for name in ["sk-telecom-enterprise-production-eu", "sk-denv-", "hf_", "env:SK_KEY", "sha256:0123"] {
            assert!(!holds_key(name), "{name}");
        }
    }

    #[test]
    fn references_are_read_and_values_are_refused_unsaid() {
        for good in ["env:AWS_KEY", "file:/etc/denv/key", "secret:denv/aws/credentials.json"] {
            assert_eq!(good.parse::<SecretReference>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "hunter2",
            "env:",
            "env:A-B",
            "env:1A",
            "file:key",
            "file:/",
            "file://h/k",
            "secret:a/b",
            "secret:a/b/c/d",
        ] {
            let error = bad.parse::<SecretReference>().unwrap_err().to_string();
            assert!(bad.is_empty() || !error.contains("hunter2"), "{bad}");
        }
    }
}
