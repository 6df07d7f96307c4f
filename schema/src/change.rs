//! What a person asks the control plane to commit, and what it says of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::StageId;
use crate::diff::{Diff, ManifestKey};

/// `POST /v1/sources/{name}/changes`: manifests as they should be. One commit is made of it, in the asker's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ChangeRequest {
    /// Whole manifests, as YAML by file name; the names are only for errors.
    pub manifests: BTreeMap<String, String>,
    /// Manifests to take out.
    pub delete: Vec<ManifestKey>,
    /// Single fields to set.
    pub set: Vec<FieldSetting>,
    /// The commit's message; without it one is made of what changes.
    pub message: Option<String>,
    /// Do it only if the branch stands at this commit.
    pub if_base: Option<String>,
    /// Push to this branch, for a pull request, and not to the one that is watched.
    pub branch: Option<String>,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

/// One field of one manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldSetting {
    pub manifest: ManifestKey,
    /// A JSON pointer: `/spec/release`.
    pub field: String,
    pub value: Value,
}

/// What was done, or would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeView {
    pub source: String,
    pub branch: String,
    /// The commit it is based on.
    pub base: String,
    /// The commit that was made; none in a dry run, and where nothing changes.
    pub commit: Option<String>,
    pub message: String,
    pub diff: Diff,
    /// The files that change.
    pub files: Vec<String>,
    /// Manifests in whose document comments were lost.
    pub rewritten: Vec<ManifestKey>,
    /// Stages whose units move because of it.
    pub stages: Vec<StageId>,
}
