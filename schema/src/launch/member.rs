//! The members of a unit: its pools, and where each member of them is.

use serde::{Deserialize, Serialize};

use super::LaunchTemplate;
use crate::Name;
use crate::manifest::{EngineKind, Pool, PoolName};

/// How many ports a member has for what members say to each other, beside the engine's own.
pub const PORTS_OF_A_MEMBER: u16 = 16;

/// What one pool of a unit runs, on however many hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolTemplate {
    pub name: PoolName,
    /// What all its members take together.
    pub needs: Pool,
    /// What each of them runs, but for what their places add.
    pub argv: Vec<String>,
}

/// Where a member is, as the others of its unit know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    pub pool: PoolName,
    pub host: Name,
    /// Where the host is reached by other members: a name or an address, without a port.
    pub address: String,
    /// Indices of its accelerators.
    pub gpus: Vec<u32>,
    /// The first of its [`PORTS_OF_A_MEMBER`] ports.
    pub first_port: u16,
}

/// Over how many hosts a pool may be spread, with as many accelerators on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The fewest first.
    pub hosts: Vec<u32>,
    /// Why there are not more ways.
    pub limit: Option<&'static str>,
}

impl LaunchTemplate {
    /// How `pool` may be spread over hosts. On each there are as many accelerators, and whole ranks of data parallelism
    /// where the engine can't split one.
    pub fn spread(&self, pool: &PoolTemplate) -> Spread {
        let gpus = pool.needs.gpus.unwrap_or(1);
        let degrees = pool.needs.parallelism;
        let (unit, limit) = match self.engine {
            EngineKind::LlamaCpp => (gpus, Some("llama.cpp runs on one host")),
            EngineKind::TensorrtLlm => (gpus, Some("TensorRT-LLM runs on one host without an MPI launcher")),
            EngineKind::Vllm => {
                let rank = degrees.tensor.saturating_mul(degrees.pipeline);
                (rank, Some("a rank of vLLM's data parallelism runs on one host"))
            }
            EngineKind::Sglang | EngineKind::Command => (1, None),
        };
        let hosts =
            (1..=gpus).filter(|hosts| gpus.is_multiple_of(*hosts) && (gpus / hosts).is_multiple_of(unit));
        Spread { hosts: hosts.collect(), limit }
    }

    /// The accelerators of a whole unit. None: it runs on CPU slots.
    pub fn gpus(&self) -> Option<u32> {
        self.pools.iter().filter_map(|pool| pool.needs.gpus).reduce(u32::saturating_add)
    }
}
