use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Digest, Name};

/// Who uses endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomerSpec {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The endpoints this customer's keys may use. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Name>,
}

/// An API key, as the hash of it. `denv key create` makes the key and this manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeySpec {
    /// The Customer whose usage this key's requests are.
    pub customer: Name,
    /// The SHA-256 of the whole key. Keys are 256 random bits, so a slow hash would add nothing.
    pub hash: Digest,
}
