use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rollout::Rollout;
use crate::quantity::Period;
use crate::{Name, StageId};

/// A service with ordered stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnvironmentSpec {
    /// The stages in the order in which a release passes through them.
    #[schemars(length(min = 1))]
    pub stages: Vec<Name>,
    /// How releases pass from one stage to the next. A step that is not written is `manual`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promotion: Vec<Promotion>,
}

/// How a release passes from one stage to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Promotion {
    /// The stage in which the release has succeeded.
    pub from: Name,
    /// The stage after it in `stages`.
    pub to: Name,
    /// Who promotes.
    pub mode: PromotionMode,
    /// How long the release must have been good in `from` first, where the mode is `automatic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bake: Option<Period>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PromotionMode {
    /// A person, by a commit or `denv promote`.
    Manual,
    /// denv, by a commit, once the deployment has succeeded and `bake` is over.
    Automatic,
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
    /// Whether a release answers as it should, before and after it takes traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parity: Option<Parity>,
    /// The Alarms that watch a rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<Name>,
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
    /// Fleets of a lower number get their units first and lose them last: base fleets 0, burst fleets after.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 1000), extend("default" = 0))]
    pub priority: u32,
    /// The fleet's share of requests beside the other fleets' weights, under the routing policy `weighted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1000))]
    pub weight: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitRange {
    /// At least this many.
    #[schemars(range(max = 10000))]
    pub min: u32,
    /// At most this many. Without it: `min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000))]
    pub max: Option<u32>,
}

impl UnitRange {
    /// The most units there may be.
    pub fn most(self) -> u32 {
        self.max.unwrap_or(self.min)
    }
}

/// When a parity suite is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Parity {
    /// The ParitySuite.
    pub suite: Name,
    /// On the first new unit, before it takes traffic: what fails stops the rollout there.
    #[serde(default = "yes")]
    pub before: bool,
    /// On the whole, after the last batch.
    #[serde(default)]
    pub after: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Routing {
    /// Which fleet a request goes to. In it, units that hold the beginning of the prompt already are preferred.
    pub policy: RoutingPolicy,
    /// Requests that one unit is given at once, by each gateway.
    #[schemars(range(min = 1))]
    pub max_inflight_per_unit: u32,
}

impl Default for Routing {
    fn default() -> Self {
        Routing { policy: RoutingPolicy::Priority, max_inflight_per_unit: 256 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingPolicy {
    /// The fleet with the lowest `priority` that has room.
    Priority,
    /// Fleets in proportion to their `weight`.
    Weighted,
    /// The fleet whose tokens cost least, by the fleets' `price`.
    LeastCost,
    /// The fleet that answers soonest.
    Latency,
}

/// What gateways serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointSpec {
    /// The models it offers. Each name is offered by one Endpoint only.
    #[schemars(length(min = 1))]
    pub models: Vec<EndpointModel>,
    /// The APIs it speaks. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apis: Vec<Api>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// OpenAI's `/v1/chat/completions`.
    ChatCompletions,
    /// OpenAI's `/v1/responses`.
    Responses,
    /// Anthropic's `/v1/messages`.
    Messages,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointModel {
    /// The name that requests ask for.
    pub name: String,
    /// The Stage that answers.
    pub stage: StageId,
}
