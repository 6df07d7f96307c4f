use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::ByteSize;

/// How a release's accelerators are used: by one `replica` that does all, or by a `prefill` and a `decode` pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// Whether prefill and decode share accelerators.
    pub mode: TopologyMode,
    /// Whether a unit must be within one scale-up domain.
    #[serde(default, skip_serializing_if = "PlacementRule::is_same_domain")]
    #[schemars(extend("default" = "same-domain"))]
    pub placement: PlacementRule,
    /// What one serving unit takes, where the mode is `aggregated`: either `gpus` or, on hosts without them, `cpuSlots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<Pool>,
    /// What reads prompts, where the mode is `disaggregated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<Pool>,
    /// What writes answers, where the mode is `disaggregated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<Pool>,
}

impl Topology {
    /// The pools of one unit.
    pub fn pools(&self) -> impl Iterator<Item = (PoolName, &Pool)> {
        PoolName::ALL.into_iter().filter_map(|name| {
            let pool = match name {
                PoolName::Replica => &self.replica,
                PoolName::Prefill => &self.prefill,
                PoolName::Decode => &self.decode,
            };
            Some((name, pool.as_ref()?))
        })
    }

    /// The accelerators of one unit, in all its pools. None: it runs on CPU slots.
    pub fn gpus(&self) -> Option<u32> {
        self.pools().filter_map(|(_, pool)| pool.gpus).reduce(u32::saturating_add)
    }
}

/// A part of a unit, by the field that says what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolName {
    /// Does all.
    #[default]
    Replica,
    /// Reads prompts.
    Prefill,
    /// Writes answers.
    Decode,
}

impl PoolName {
    pub const ALL: [PoolName; 3] = [PoolName::Replica, PoolName::Prefill, PoolName::Decode];

    pub fn as_str(self) -> &'static str {
        match self {
            PoolName::Replica => "replica",
            PoolName::Prefill => "prefill",
            PoolName::Decode => "decode",
        }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyMode {
    /// Each replica does prefill and decode on the same accelerators.
    Aggregated,
    /// Prefill and decode run on pools of their own, which hand over the KV cache.
    Disaggregated,
}

/// Whether a unit must be within one scale-up domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementRule {
    /// All of a unit in one scale-up domain, or nowhere.
    #[default]
    SameDomain,
    /// Across domains where one has no room: some traffic inside the unit then uses the network.
    Any,
}

impl PlacementRule {
    pub(crate) fn is_same_domain(&self) -> bool {
        *self == PlacementRule::SameDomain
    }
}

/// What a part of a unit takes: either `gpus` or, on hosts without them, `cpuSlots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// Accelerators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub gpus: Option<u32>,
    /// CPU slots of one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub cpu_slots: Option<u32>,
    /// How the model is spread over the accelerators: tensor × pipeline × data is `gpus`.
    #[serde(default)]
    pub parallelism: Parallelism,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parallelism {
    /// Each layer is split this many ways.
    #[schemars(range(min = 1, max = 1024))]
    pub tensor: u32,
    /// The layers stand in this many groups, one after the other.
    #[schemars(range(min = 1, max = 1024))]
    pub pipeline: u32,
    /// The model, or of a mixture of experts its attention, stands side by side this many times.
    #[schemars(range(min = 1, max = 1024))]
    pub data: u32,
    /// The experts of a mixture are spread over this many of the same accelerators. It divides tensor × data.
    #[serde(skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 1024), extend("default" = 1))]
    pub expert: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_one(degree: &u32) -> bool {
    *degree == 1
}

impl Default for Parallelism {
    fn default() -> Self {
        Parallelism { tensor: 1, pipeline: 1, data: 1, expert: 1 }
    }
}

impl Parallelism {
    /// How many accelerators these degrees use together. Experts use those of the others.
    pub fn world_size(self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.data)
    }
}

/// Where computed prompts are kept, so that they need not be computed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KvCache {
    /// Where it is kept, the fastest first. What leaves one goes to the next.
    #[schemars(length(min = 1))]
    pub tiers: Vec<KvTier>,
    /// Who may use what one replica has computed.
    #[serde(default)]
    pub share: KvShare,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KvTier {
    /// What holds it.
    pub kind: KvTierKind,
    /// How much of it each member of a unit takes on its host. Of `gpu`: what the engine leaves free, so it is not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// The folder on each host, of `nvme`. Each unit has one of its own in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = r"^/[^\s]+$"),
        extend("patternErrorMessage" = "a folder on the host is written from `/` on, without spaces")
    )]
    pub path: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KvTierKind {
    /// What the engine is using now.
    Gpu,
    /// Prefixes used lately, in the host's memory.
    HostMemory,
    /// More and older prefixes, on a disk of the host.
    Nvme,
}

/// Who may use what one replica has computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KvShare {
    /// The unit that computed it.
    #[default]
    Unit,
    /// All units of the stage.
    Stage,
    /// Nobody: a prefix is computed by each request anew.
    None,
}
