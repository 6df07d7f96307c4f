use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Amount, Period};
use crate::{Name, StageId};

/// A service with ordered stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvironmentSpec {
    /// The stages in the order in which a release passes through them.
    #[schemars(length(min = 1))]
    pub stages: Vec<Name>,
}

/// What runs: one release on some fleets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StageSpec {
    /// The Environment that lists the stage.
    pub environment: Name,
    /// The Release that should run.
    pub release: Name,
    /// The Fleets it runs on.
    #[schemars(length(min = 1))]
    pub fleets: Vec<StageFleet>,
    /// Jurisdictions that traffic may be served in; every fleet's `residency` must be one of them. Empty: anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub residency: Vec<Name>,
    /// How gateways spread requests over units.
    #[serde(default)]
    pub routing: Routing,
    /// How the stage moves from one release to another.
    #[serde(default)]
    pub rollout: Rollout,
    /// How long a host may be silent before its units are replaced. Engines there run on meanwhile.
    #[serde(default = "default_lost_after")]
    pub lost_after: Period,
}

fn default_lost_after() -> Period {
    Period::from_secs(300)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StageFleet {
    /// The Fleet.
    pub name: Name,
    /// How many serving units run there.
    pub units: UnitRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitRange {
    /// This many.
    #[schemars(range(max = 10000))]
    pub min: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Routing {
    /// Requests that one unit is given at once, by each gateway.
    #[schemars(range(min = 1))]
    pub max_inflight_per_unit: u32,
}

impl Default for Routing {
    fn default() -> Self {
        Routing { max_inflight_per_unit: 256 }
    }
}

/// How a stage moves from one release to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rollout {
    /// In which order the old unit goes and the new one comes.
    pub strategy: Strategy,
    /// How many units run the new release at the end of each batch, ascending; the last must be all of them.
    #[schemars(length(min = 1))]
    pub batches: Vec<Amount>,
    /// How many units may be out of service because of the rollout.
    pub max_unavailable: Amount,
    /// How long each batch, and the whole, must stay healthy before the rollout goes on.
    pub bake: Period,
    /// How long requests in flight may finish on a unit that left rotation.
    pub drain_timeout: Period,
    /// What to do when a new unit does not become or stay healthy.
    pub on_alarm: OnAlarm,
}

impl Default for Rollout {
    fn default() -> Self {
        Rollout {
            strategy: Strategy::Surge,
            batches: vec![Amount::Count(1), Amount::Percent(25), Amount::Percent(100)],
            max_unavailable: Amount::Count(0),
            bake: Period::from_secs(300),
            drain_timeout: Period::from_secs(300),
            on_alarm: OnAlarm::Rollback,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Start and check the new unit before the old one drains. Needs room for it.
    Surge,
    /// Drain and stop the old unit, then start the new one in its place. Needs `maxUnavailable` of at least 1.
    Replace,
}

/// What happens when an alarm fires, or a new unit does not become or stay healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnAlarm {
    /// Back to the release before, and hold there.
    Rollback,
    /// Go no further until a person decides.
    Pause,
}

/// What gateways serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSpec {
    /// The models it offers. Each name is offered by one Endpoint only.
    #[schemars(length(min = 1))]
    pub models: Vec<EndpointModel>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointModel {
    /// The name that requests ask for.
    pub name: String,
    /// The Stage that answers.
    pub stage: StageId,
}
