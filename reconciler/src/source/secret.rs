//! A secret that settings refer to: in a file, or in the environment. It is read when it is needed, so a renewed one
//! needs no restart, and kept nowhere.

use std::path::PathBuf;

/// `file:PATH` or `env:NAME`; never the secret itself, which would show in process lists and in Git.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretReference {
    File(PathBuf),
    Environment(String),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is given by where it is, `file:PATH` or `env:NAME`, never itself")]
pub struct InvalidReference;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the secret in `{path}`")]
    File { path: PathBuf, source: std::io::Error },
    #[error("there is no secret in the environment's `{name}`")]
    Environment { name: String },
    #[error("the secret in `{place}` is empty")]
    Empty { place: String },
}

/// What the reference leads to. It has no `Debug`, so it can't end in a log.
pub struct Secret(String);

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SecretReference {
    type Err = InvalidReference;
    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(SecretReference::File(path.into())),
            Some(("env", name)) if !name.is_empty() => Ok(SecretReference::Environment(name.to_owned())),
            _ => Err(InvalidReference),
        }
    }
}

impl SecretReference {
    pub fn read(&self) -> Result<Secret, SecretError> {
        let (text, place) = match self {
            SecretReference::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| SecretError::File { path: path.clone(), source })?;
                (text, path.display().to_string())
            }
            SecretReference::Environment(name) => {
                let text = std::env::var(name);
                (text.map_err(|_| SecretError::Environment { name: name.clone() })?, name.clone())
            }
        };
        let text = text.trim_end_matches(['\r', '\n']);
        // Anybody can sign with a secret that is nothing.
        if text.trim().is_empty() {
            return Err(SecretError::Empty { place });
        }
        Ok(Secret(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_where_it_is_said_to_be_and_never_empty() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reference: SecretReference = format!("file:{}", file.path().display()).parse().unwrap();
        std::fs::write(file.path(), "hunter2\n").unwrap();
        assert_eq!(reference.read().map(|secret| secret.0).ok(), Some("hunter2".to_owned()));
        std::fs::write(file.path(), " \n").unwrap();
        assert!(matches!(reference.read(), Err(SecretError::Empty { .. })));
        let reference: SecretReference = "env:DENV_NOT_SET_ANYWHERE".parse().unwrap();
        assert!(matches!(reference.read(), Err(SecretError::Environment { .. })));
        for wrong in ["hunter2", "file:", "env:", "http://x"] {
            let error = wrong.parse::<SecretReference>().unwrap_err().to_string();
            assert!(!error.contains(wrong.trim_end_matches(':')) || wrong.ends_with(':'), "{error}");
        }
    }
}
