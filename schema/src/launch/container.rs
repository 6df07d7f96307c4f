//! What an engine from an image runs in.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LaunchSpec, LaunchTemplate};
use crate::manifest::{KvTierKind, Weights};

/// A container on the host's own network, with its accelerators and, to read, the member's weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// By digest.
    pub image: String,
    /// Folders of the host that the engine writes to, at the same paths in the container. They are made where they are not
    /// there, and outlive it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
}

/// A terabyte at 100 MB/s.
const FETCH: Duration = Duration::from_secs(3 * 3600);

impl LaunchTemplate {
    pub(super) fn container(&self) -> Option<Container> {
        let image = self.image.clone()?;
        let folders = self.tier(KvTierKind::Nvme).and_then(|tier| tier.path.clone()).into_iter().collect();
        Some(Container { image, folders })
    }
}

impl LaunchSpec {
    /// How long the host may fetch what the engine is started from, on top of [`LaunchSpec::start_timeout`].
    pub fn fetch_timeout(&self) -> Duration {
        let is_elsewhere = |weights: &Weights| !weights.is_on_host();
        let fetches = self.container.is_some() || self.weights.as_ref().is_some_and(is_elsewhere);
        if fetches { FETCH } else { Duration::ZERO }
    }
}
