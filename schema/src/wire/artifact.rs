//! What a host is to have before an engine is started from it, so that a change stops nothing while a download is still
//! to come. Asked for as a whole list that replaces the last: nothing of it is queued, journalled or numbered.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::Weights;
use crate::quantity::Bytes;

/// Something that an engine is started from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Artifact {
    Weights(Weights),
    /// By digest.
    Image(String),
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Artifact::Weights(weights) => write!(f, "weights `{}`", weights.place()),
            Artifact::Image(image) => write!(f, "image `{image}`"),
        }
    }
}

/// How far a host is with something that it was asked to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactReport {
    pub artifact: Artifact,
    pub state: ArtifactState,
    /// While it is fetched: how much of it. It is reported now and then, not with each byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<FetchedBytes>,
}

/// How much of something has been fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FetchedBytes {
    pub bytes: u64,
    pub of: u64,
}

impl FetchedBytes {
    pub fn percent(self) -> u8 {
        let percent = (u128::from(self.bytes) * 100).checked_div(u128::from(self.of));
        percent.and_then(|percent| u8::try_from(percent).ok()).unwrap_or(100).min(100)
    }
}

/// `35 % of 140.2 GiB`.
impl fmt::Display for FetchedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} % of {}", self.percent(), Bytes(self.of))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArtifactState {
    /// It is fetched or verified.
    Preparing,
    /// It is there, and is what was meant.
    Ready,
    /// It is not, for this reason. The host tries again by itself.
    Failed {
        reason: String,
        /// It may pass by itself and is neither the release's nor the host's doing: where it is fetched from is away.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passing: bool,
    },
}
