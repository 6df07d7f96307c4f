//! A world that can be kept: what a preview needs where the control plane is out of reach.

use std::collections::BTreeMap;

use denv_schema::tree::Files;
use denv_schema::{Digest, Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::records::Records;
use crate::world::Observed;

/// Everything that a plan of a control plane was made of, and the manifests in force. It holds no secret: manifests hold
/// references and hashes only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The version of denv that took it. Another may plan otherwise.
    pub version: String,
    pub taken_at: Timestamp,
    /// The commit in force, where there is one.
    pub revision: Option<String>,
    /// The manifests in force, by path. They are UTF-8, or they would not be in force.
    pub manifests: BTreeMap<String, String>,
    /// Releases that have run, which may not read otherwise.
    #[serde(default)]
    pub deployed: BTreeMap<Name, Digest>,
    pub records: Records,
    pub observed: Observed,
}

impl Snapshot {
    /// Of a control plane that has nothing in force and knows nobody.
    pub fn nothing(version: &str, taken_at: Timestamp) -> Self {
        Snapshot {
            version: version.to_owned(),
            taken_at,
            revision: None,
            manifests: BTreeMap::new(),
            deployed: BTreeMap::new(),
            records: Records::default(),
            observed: Observed::default(),
        }
    }

    pub fn files(&self) -> Files {
        let bytes = |(path, text): (&String, &String)| (path.clone(), text.clone().into_bytes());
        self.manifests.iter().map(bytes).collect()
    }
}
