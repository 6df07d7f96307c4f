//! The members of a unit: its pools, and where each member of them is.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LaunchTemplate, command, sglang, vllm};
use crate::manifest::{EngineKind, Pool, PoolName};
use crate::{Name, UnitId};

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
    /// The recipe's and the release's own flags. They stand last: engines take the last word.
    pub flags: Vec<String>,
}

/// Where a member is, as the others of its unit know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    pub pool: PoolName,
    pub host: Name,
    /// Where the host is reached by other members: a name or an address, without a port. The host listens on it.
    pub address: String,
    /// Indices of its accelerators.
    pub gpus: Vec<u32>,
    /// CPU slots it takes on a host without accelerators.
    pub cpu_slots: u32,
    /// The first of its [`PORTS_OF_A_MEMBER`] ports.
    pub first_port: u16,
}

/// What a member has of its host. Hosts tell it back, so that records that are lost can be made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Claim {
    pub pool: PoolName,
    /// Indices of its accelerators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<u32>,
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_slots: u32,
    pub first_port: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl MemberPlace {
    pub fn claim(&self) -> Claim {
        let MemberPlace { pool, gpus, cpu_slots, first_port, .. } = self;
        Claim { pool: *pool, gpus: gpus.clone(), cpu_slots: *cpu_slots, first_port: *first_port }
    }
}

/// Over how many hosts a pool may be spread, with as many accelerators on each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The fewest first.
    pub hosts: Vec<u32>,
    /// Why there are not more ways.
    pub limit: Option<&'static str>,
}

impl Spread {
    pub(super) fn one_host(limit: &'static str) -> Self {
        Spread { hosts: vec![1], limit: Some(limit) }
    }

    /// Over every number of hosts that leaves each as many of `gpus`, and that the engine can do.
    pub(super) fn over(gpus: u32, limit: Option<&'static str>, can: impl Fn(u32) -> bool) -> Self {
        let hosts = (1..=gpus).filter(|hosts| gpus.is_multiple_of(*hosts) && can(*hosts)).collect();
        Spread { hosts, limit }
    }
}

impl LaunchTemplate {
    /// How `pool` may be spread over hosts. CPU slots are of one host.
    pub fn spread(&self, pool: &PoolTemplate) -> Spread {
        let Some(gpus) = pool.needs.gpus else { return Spread::one_host("CPU slots are of one host") };
        match self.engine {
            EngineKind::Vllm => vllm::spread(pool, gpus),
            EngineKind::Sglang => sglang::spread(pool, gpus),
            EngineKind::Command => command::spread(self, pool, gpus),
            EngineKind::LlamaCpp => Spread::one_host("llama.cpp runs on one host"),
            EngineKind::TensorrtLlm => {
                Spread::one_host("TensorRT-LLM over several hosts needs an MPI launcher, which denv is not")
            }
        }
    }

    /// The accelerators of a whole unit. None: it runs on CPU slots.
    pub fn gpus(&self) -> Option<u32> {
        self.pools.iter().filter_map(|pool| pool.needs.gpus).reduce(u32::saturating_add)
    }
}

/// A member among the others of its unit, as renderers see it.
pub(super) struct Member<'a> {
    pub unit: &'a UnitId,
    pub pool: &'a PoolTemplate,
    pub place: &'a MemberPlace,
    /// Its place in its pool, from 0.
    pub rank: u32,
    /// All members of its pool, by rank.
    pub peers: Vec<&'a MemberPlace>,
    /// All members of the unit.
    pub all: &'a [MemberPlace],
}

impl<'a> Member<'a> {
    /// The member at `places[index]`.
    pub(super) fn of(
        template: &'a LaunchTemplate,
        unit: &'a UnitId,
        places: &'a [MemberPlace],
        index: usize,
    ) -> Self {
        let place = &places[index];
        let pool = template.pools.iter().find(|pool| pool.name == place.pool);
        let is_peer = |other: &&MemberPlace| other.pool == place.pool;
        let rank = places[..index].iter().filter(is_peer).count();
        Member {
            unit,
            pool: pool.expect("units are placed by the pools of their template"),
            place,
            rank: u32::try_from(rank).expect("a unit has no more members than accelerators"),
            peers: places.iter().filter(is_peer).collect(),
            all: places,
        }
    }

    /// Over how many hosts its pool is spread.
    pub(super) fn hosts(&self) -> u32 {
        u32::try_from(self.peers.len()).expect("a unit has no more members than accelerators")
    }

    /// The first of its pool, to which the others come.
    pub(super) fn leader(&self) -> &'a MemberPlace {
        self.peers[0]
    }

    pub(super) fn is_leader(&self) -> bool {
        self.rank == 0
    }

    pub(super) fn is_prefill(&self) -> bool {
        self.pool.name == PoolName::Prefill
    }

    /// Whether its unit has pools that hand over the KV cache.
    pub(super) fn hands_over(&self) -> bool {
        self.pool.name != PoolName::Replica
    }

    /// Whether it is the member that prompts are given to for its unit's decode pool.
    pub(super) fn leads_prefill(&self) -> bool {
        self.is_prefill() && self.is_leader()
    }

    /// Where other members of the unit reach one. What stays on a host is not offered to its network.
    pub(super) fn address(&self, place: &'a MemberPlace) -> &'a str {
        if self.is_on_one_host() { "127.0.0.1" } else { &place.address }
    }

    pub(super) fn is_on_one_host(&self) -> bool {
        self.all.iter().all(|other| other.host == self.place.host)
    }

    /// Its own address as a number, where others on other hosts are told it and it is written so.
    pub(super) fn own_ip(&self) -> Option<&'a str> {
        let address = self.place.address.as_str();
        (!self.is_on_one_host() && address.parse::<IpAddr>().is_ok()).then_some(address)
    }

    /// A port of the block of its pool's leader, as `address:port`.
    pub(super) fn leader_endpoint(&self, offset: u16) -> String {
        endpoint(self.address(self.leader()), port(self.leader(), offset))
    }
}

/// A port of a member's block.
pub(super) fn port(place: &MemberPlace, offset: u16) -> u16 {
    place.first_port.saturating_add(offset)
}

/// `address:port`, where an IPv6 address is in brackets.
pub(super) fn endpoint(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}
