//! The kinds a configuration repository may hold, as Rust types. They are the one source of the JSON Schemas
//! that editors, CI and the validator use.

mod alarm;
mod capacity;
mod commerce;
mod operations;
mod quality;
mod rollout;
mod serving;
mod software;
mod topology;

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

pub use alarm::{AlarmSpec, Measure, Metric, OnInconclusive, Threshold};
pub use capacity::{
    Domain, FleetSpec, HostSpec, HostsRange, HourlyPrice, PricedBy, ProviderKind, ProviderSpec, Purchase,
    WeightCacheSpec, WeightSource,
};
pub use commerce::{CustomerSpec, KeySpec, Limits, ModelPrice, PriceListSpec};
pub use operations::{AccessSpec, AccessToken, Grant, Role, StagePattern, WebhookEvent, WebhookSpec};
pub(crate) use quality::FREE_FORM;
pub use quality::{
    Comparison, ComparisonKind, Expectation, ExpectedCall, FreeForm, MessageRole, ParityCase, ParityMessage,
    ParityReference, ParitySuiteSpec, ParityTool, ReferenceKind,
};
pub use rollout::{
    Approval, Day, Deadlines, Freeze, InvalidTimeOfDay, OnAlarm, Rollout, Strategy, Stripe, TimeOfDay, Window,
};
pub use serving::{
    Api, EndpointModel, EndpointSpec, EnvironmentSpec, Parity, Promotion, PromotionMode, Routing,
    RoutingPolicy, StageFleet, StageSpec, UnitRange,
};
pub(crate) use software::NamesOnly;
pub use software::{
    Adapter, EngineConfig, EngineKind, EngineSpec, Hardware, Model, RecipeSpec, ReleaseSpec, Weights,
};
pub use topology::{
    KvCache, KvShare, KvTier, KvTierKind, Parallelism, PlacementRule, Pool, PoolName, Topology, TopologyMode,
};

use crate::Name;

/// The one version of the manifests' format.
pub const API_VERSION: &str = "denv.dev/v1";

/// What a manifest is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Unique per kind; a Stage's is unique within its Environment.
    pub name: Name,
    /// Your own words to sort manifests by; denv gives them no meaning.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Your own notes; denv gives them no meaning.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A whole manifest. `apiVersion` and `kind` are dispatched on before it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest<Spec> {
    pub api_version: ApiVersion,
    pub kind: Kind,
    pub metadata: Metadata,
    pub spec: Spec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    #[serde(rename = "denv.dev/v1")]
    V1,
}

macro_rules! kinds {
    ($($kind:ident => $spec:ty),* $(,)?) => {
        /// The kinds of manifests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Kind { $($kind),* }

        impl Kind {
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Kind::$kind => stringify!($kind)),* }
            }

            /// The JSON Schema of a whole manifest of this kind, with nothing that refers elsewhere.
            pub fn json_schema(self) -> Schema {
                let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
                let generator = settings.into_generator();
                match self { $(Kind::$kind => generator.into_root_schema_for::<Manifest<$spec>>()),* }
            }
        }

        /// A manifest of any kind.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum AnyManifest { $($kind(Manifest<$spec>)),* }

        impl AnyManifest {
            pub fn from_value(kind: Kind, value: serde_json::Value) -> Result<Self, serde_json::Error> {
                match kind { $(Kind::$kind => serde_json::from_value(value).map(AnyManifest::$kind)),* }
            }

            /// The whole manifest, with every default written out.
            pub(crate) fn to_value(&self) -> serde_json::Value {
                let value = match self { $(AnyManifest::$kind(manifest) => serde_json::to_value(manifest)),* };
                value.expect("a manifest's keys are text")
            }

            pub fn kind(&self) -> Kind {
                match self { $(AnyManifest::$kind(_) => Kind::$kind),* }
            }

            pub fn metadata(&self) -> &Metadata {
                match self { $(AnyManifest::$kind(manifest) => &manifest.metadata),* }
            }
        }
    };
}

kinds! {
    Provider => ProviderSpec,
    Fleet => FleetSpec,
    Host => HostSpec,
    WeightCache => WeightCacheSpec,
    Engine => EngineSpec,
    Recipe => RecipeSpec,
    Release => ReleaseSpec,
    Environment => EnvironmentSpec,
    Stage => StageSpec,
    ParitySuite => ParitySuiteSpec,
    Alarm => AlarmSpec,
    Endpoint => EndpointSpec,
    Customer => CustomerSpec,
    Key => KeySpec,
    PriceList => PriceListSpec,
    Access => AccessSpec,
    Webhook => WebhookSpec,
}

impl Kind {
    /// One of them, in lower case, as commands and addresses write it.
    pub fn singular(self) -> String {
        self.as_str().to_lowercase()
    }

    /// Several of them, in lower case.
    pub fn plural(self) -> String {
        let singular = self.singular();
        if singular.ends_with('s') { format!("{singular}es") } else { format!("{singular}s") }
    }

    /// The kind that a word means, in any case, singular or plural.
    pub fn of_word(word: &str) -> Option<Kind> {
        let lower = word.to_lowercase();
        Kind::ALL.iter().copied().find(|kind| lower == kind.singular() || lower == kind.plural())
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Kind {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Kind::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or(())
    }
}
