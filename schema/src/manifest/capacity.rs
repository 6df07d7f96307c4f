use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::quantity::{ByteSize, Currency, Money};
use crate::secret::SecretReference;

/// Where hosts come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// Whose hosts they are.
    pub kind: ProviderKind,
    /// What the control plane signs in with. Without it: the identity that its own machine has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// The account, project or subscription that hosts are launched in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub account: Option<String>,
    /// The namespace that denvd's pods run in, of a provider of the kind `kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// Racks of your own. denv never launches or terminates their hosts.
    Owned,
    /// Nodes of a Kubernetes cluster, on which denvd runs as a pod. The cluster launches and terminates them.
    Kubernetes,
    /// Amazon EC2.
    Aws,
    /// Google Compute Engine.
    Gcp,
    /// Azure virtual machines.
    Azure,
    /// Oracle Cloud Infrastructure.
    Oci,
    /// Lambda.
    Lambda,
    /// CoreWeave.
    Coreweave,
    /// Crusoe.
    Crusoe,
    /// Nebius.
    Nebius,
}

impl ProviderKind {
    /// Whether denv launches and terminates hosts there. Their Hosts are observed; those of others are written.
    pub fn launches_hosts(self) -> bool {
        !matches!(self, ProviderKind::Owned | ProviderKind::Kubernetes)
    }

    /// As manifests write it.
    pub fn as_str(self) -> &'static str {
        match self {
            ProviderKind::Owned => "owned",
            ProviderKind::Kubernetes => "kubernetes",
            ProviderKind::Aws => "aws",
            ProviderKind::Gcp => "gcp",
            ProviderKind::Azure => "azure",
            ProviderKind::Oci => "oci",
            ProviderKind::Lambda => "lambda",
            ProviderKind::Coreweave => "coreweave",
            ProviderKind::Crusoe => "crusoe",
            ProviderKind::Nebius => "nebius",
        }
    }
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
    /// How the hosts are paid for.
    pub purchase: Purchase,
    /// The accelerator model, for example `h200` or `cpu`, matched with a recipe's `hardware`.
    pub accelerator: Name,
    /// Accelerators of each host. Without it: as many as its denvd reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub gpus_per_host: Option<u32>,
    /// The scale-up domain: hosts whose accelerators are joined by the fast fabric.
    #[serde(default, skip_serializing_if = "Domain::is_one_host")]
    pub domain: Domain,
    /// How many hosts the fleet has.
    pub hosts: HostsRange,
    /// What a host or an accelerator costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<HourlyPrice>,
    /// What hosts are launched as, in the provider's words: the instance type or shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub instance_type: Option<String>,
    /// The machine image that hosts are launched from, in the provider's words. It holds denvd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// The WeightCache that hosts fetch weights from. Without it: from where the release says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_cache: Option<Name>,
}

impl FleetSpec {
    /// The accelerators of one scale-up domain, where the fleet says how many a host has.
    pub fn gpus_per_domain(&self) -> Option<u32> {
        Some(self.gpus_per_host?.saturating_mul(self.domain.hosts))
    }
}

/// A scale-up domain: an 8-GPU server is one host, a 72-GPU rack may be 18 hosts of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Domain {
    /// How many hosts one domain is made of.
    #[schemars(range(min = 1, max = 1024))]
    pub hosts: u32,
}

impl Default for Domain {
    fn default() -> Self {
        Domain { hosts: 1 }
    }
}

impl Domain {
    fn is_one_host(&self) -> bool {
        self.hosts == 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Purchase {
    /// They are yours.
    Owned,
    /// Paid for whether they are used or not, for a term.
    Reserved,
    /// Paid for while they run.
    OnDemand,
    /// Cheaper, and taken away at short notice.
    Spot,
}

/// How many hosts a fleet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostsRange {
    /// At least this many. Of an `owned` provider, so many Host manifests must name the fleet.
    pub min: u32,
    /// At most this many.
    pub max: u32,
}

/// What capacity costs by the hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HourlyPrice {
    /// What an hour costs.
    pub amount: Money,
    /// The currency of `amount`.
    #[serde(default)]
    pub currency: Currency,
    /// An hour of what.
    pub per: PricedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PricedBy {
    /// Of one accelerator.
    GpuHour,
    /// Of one host.
    HostHour,
}

/// A host that is written down: an owned one, or a node of a Kubernetes cluster. It joins with a one-time token from
/// `denv host token NAME`. Hosts that denv launches are observed, not written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostSpec {
    /// The Fleet the host belongs to.
    pub fleet: Name,
    /// The scale-up domain the host belongs to, for example its rack. Without it: the host by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Name>,
    /// What fails together, for example a zone, row or power feed: a stage's units are spread over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<Name>,
    /// On a host without accelerators: how many units' worth of CPU slots it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub cpu_slots: Option<u32>,
    /// Take no new units; those that run stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub cordoned: bool,
}

/// A cache of weights near hosts: it fetches each once, verifies it, and serves it to the hosts of its region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WeightCacheSpec {
    /// Where the cache stands: the `region` of the fleets that use it.
    pub region: String,
    /// Where hosts reach it: `https://` and a host, perhaps with a port and a path.
    #[schemars(
        regex(pattern = r"^https?://[^\s/@]+(/[^\s@]*)?$"),
        extend("patternErrorMessage" = "an address is `https://` (or `http://`) and a host, without spaces and without a user or password")
    )]
    pub url: String,
    /// How much it keeps; what was used longest ago leaves first.
    pub size: ByteSize,
    /// What it signs in with, by the beginning of the weights' source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<WeightSource>,
}

/// A place that weights are fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WeightSource {
    /// How the sources begin that this is for, for example `s3://models/`.
    #[schemars(
        regex(pattern = r"^(s3|https|hf):\S*$"),
        extend("patternErrorMessage" = "it begins with `s3:`, `https:` or `hf:`, and has no spaces")
    )]
    pub prefix: String,
    /// What the cache signs in with there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
}
