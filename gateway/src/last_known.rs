//! What the control plane said last, kept so that a gateway that starts without it serves on.
//!
//! It owns one file. It refuses to know what is done with what it holds.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use denv_schema::wire::{GatewayConfig, UnitRoute};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastKnown {
    pub(crate) config: Option<GatewayConfig>,
    pub(crate) units: Vec<UnitRoute>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LastKnownError {
    #[error("cannot read or write `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("`{path}` is not as this gateway writes it; remove it, and the control plane sends it anew")]
    Format { path: PathBuf, source: serde_json::Error },
}

const FILE: &str = "last-known.json";

impl LastKnown {
    pub(crate) fn load(dir: &Path) -> Result<Self, LastKnownError> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|source| LastKnownError::Format { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LastKnown::default()),
            Err(source) => Err(LastKnownError::Io { path, source }),
        }
    }

    /// Replaces the file in one step: a crash leaves the old one or the new one.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), LastKnownError> {
        let (path, partial) = (dir.join(FILE), dir.join("last-known.json.partial"));
        let bytes = serde_json::to_vec(self).expect("plain data always serialises to JSON");
        let written = File::create(&partial).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        written
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|source| LastKnownError::Io { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_survives() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LastKnown::load(dir.path()).unwrap(), LastKnown::default());
        let known = LastKnown { config: Some(GatewayConfig::default()), units: Vec::new() };
        known.save(dir.path()).unwrap();
        assert_eq!(LastKnown::load(dir.path()).unwrap(), known);
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(matches!(LastKnown::load(dir.path()), Err(LastKnownError::Format { .. })));
    }
}
