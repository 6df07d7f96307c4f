use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// Where hosts come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// `owned`: racks of your own. denv never launches or terminates their hosts.
    pub kind: ProviderKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    Owned,
}

/// Interchangeable hosts of one provider, region, hardware and purchase kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetSpec {
    /// The Provider the hosts come from.
    pub provider: Name,
    /// Where the hosts stand, in the provider's words.
    pub region: String,
    /// The jurisdiction the hosts stand in, matched with a stage's `residency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residency: Option<Name>,
    /// How the hosts are paid for. `owned`: they are yours.
    pub purchase: Purchase,
    /// The accelerator model, for example `h200` or `cpu`, matched with a recipe's `hardware`.
    pub accelerator: Name,
    /// How many hosts the fleet has.
    pub hosts: HostsRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Purchase {
    Owned,
}

/// How many hosts a fleet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostsRange {
    /// At least this many Host manifests must name the fleet.
    pub min: u32,
    /// At most this many may.
    pub max: u32,
}

/// An owned host. Hosts of other providers are observed, not written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSpec {
    /// The Fleet the host belongs to.
    pub fleet: Name,
    /// On a host without accelerators: how many units' worth of CPU slots it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub cpu_slots: Option<u32>,
    /// Take no new units; those that run stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
}
