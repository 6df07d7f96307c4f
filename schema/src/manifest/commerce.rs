use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Currency, Money};
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
    /// Jurisdictions that this customer's requests may be served in. Empty: anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub residency: Vec<Name>,
    /// What all keys of this customer may use together.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The PriceList this customer pays by. Without it: usage is counted and costs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_list: Option<Name>,
    /// The most that may be spent in a calendar month (UTC), in the price list's currency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monthly_budget: Option<Money>,
}

/// What may be used at most. Without a limit: whatever there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Requests begun in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tokens_per_minute: Option<u32>,
    /// Requests in flight at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub concurrent_requests: Option<u32>,
}

impl Limits {
    /// Whether there is no limit.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

/// An API key, as the hash of it. `denv key create` makes the key and this manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeySpec {
    /// The Customer whose usage this key's requests are.
    pub customer: Name,
    /// The SHA-256 of the whole key. Keys are 256 random bits, so a slow hash would add nothing.
    pub hash: Digest,
    /// From when on the key is refused, for example `2027-01-01T00:00:00Z`. Without it: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("patternErrorMessage" = "a time is written `2027-01-01T00:00:00Z`"))]
    pub expires: Option<Timestamp>,
    /// What this key may use, within its customer's limits.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
}

/// What tokens cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PriceListSpec {
    /// The currency of all prices of the list.
    pub currency: Currency,
    /// What each model costs.
    #[schemars(length(min = 1))]
    pub models: Vec<ModelPrice>,
}

impl PriceListSpec {
    /// What a model costs, by the name that endpoints offer it under.
    pub fn price_of(&self, model: &str) -> Option<&ModelPrice> {
        self.models.iter().find(|price| price.model == model)
    }
}

/// What a million tokens of a model cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelPrice {
    /// The model, by the name that an Endpoint offers.
    #[schemars(length(min = 1))]
    pub model: String,
    /// A million tokens of prompts that had to be computed.
    pub input: Money,
    /// A million tokens of prompts that were found in the KV cache. Without it: as `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<Money>,
    /// A million tokens of answers.
    pub output: Money,
    /// A million tokens of reasoning. Without it: as `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Money>,
}
