//! What may stand as `${…}` in commands, flags and variables, and what it becomes for a member.

use super::member::{Member, endpoint};
use super::{LaunchSpec, LaunchTemplate};
use crate::manifest::{KvShare, KvTierKind};

/// What denvd fills in, since only the host knows: the port it gave the engine, the verified weights.
pub const PORT: &str = "${port}";
pub const WEIGHTS: &str = "${weights}";
/// The model's name as the engine knows it.
pub(super) const MODEL: &str = "${model}";

/// What a member's place and its release fill in.
pub(super) const POOL: &str = "${pool}";
pub(super) const RANK: &str = "${rank}";
const WORLD_SIZE: &str = "${world_size}";
const ADDRESS: &str = "${address}";
const FIRST_PORT: &str = "${first_port}";
const LEADER_ADDRESS: &str = "${leader_address}";
const LEADER_PORT: &str = "${leader_port}";
const MEMBERS: &str = "${members}";
pub(super) const KV_HOST_MEMORY: &str = "${kv_host_memory}";
pub(super) const KV_NVME: &str = "${kv_nvme}";
pub(super) const KV_NVME_PATH: &str = "${kv_nvme_path}";
pub(super) const KV_SHARE: &str = "${kv_share}";

/// All that may stand there. What each means is said in `docs/manifests.md`.
pub const PLACEHOLDERS: [&str; 15] = [
    PORT,
    WEIGHTS,
    MODEL,
    POOL,
    RANK,
    WORLD_SIZE,
    ADDRESS,
    FIRST_PORT,
    LEADER_ADDRESS,
    LEADER_PORT,
    MEMBERS,
    KV_HOST_MEMORY,
    KV_NVME,
    KV_NVME_PATH,
    KV_SHARE,
];

/// Fills in all but what denvd does.
pub(super) fn fill(template: &LaunchTemplate, member: &Member<'_>, spec: &mut LaunchSpec) {
    let values = values(template, member);
    for text in spec.argv.iter_mut().chain(spec.env.values_mut()).filter(|text| text.contains("${")) {
        *text = filled(text, &values);
    }
}

/// In one pass, so that nothing in a value is taken for a placeholder.
fn filled(text: &str, values: &[(&str, String)]) -> String {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find("${") {
        filled.push_str(&rest[..start]);
        rest = &rest[start..];
        let (taken, value) = match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => (name.len(), value.as_str()),
            None => (2, "${"),
        };
        filled.push_str(value);
        rest = &rest[taken..];
    }
    filled + rest
}

fn values(template: &LaunchTemplate, member: &Member<'_>) -> Vec<(&'static str, String)> {
    let (place, leader) = (member.place, member.leader());
    let bytes = |kind| template.tier_size(kind).unwrap_or(0).to_string();
    let path = template.tier(KvTierKind::Nvme).and_then(|tier| tier.path.clone());
    let share = match template.share() {
        KvShare::Unit => "unit",
        KvShare::Stage => "stage",
        KvShare::None => "none",
    };
    vec![
        (MODEL, template.model.clone()),
        (POOL, member.pool.name.to_string()),
        (RANK, member.rank.to_string()),
        (WORLD_SIZE, member.hosts().to_string()),
        (ADDRESS, member.address(place).to_owned()),
        (FIRST_PORT, place.first_port.to_string()),
        (LEADER_ADDRESS, member.address(leader).to_owned()),
        (LEADER_PORT, leader.first_port.to_string()),
        (MEMBERS, members(member)),
        (KV_HOST_MEMORY, bytes(KvTierKind::HostMemory)),
        (KV_NVME, bytes(KvTierKind::Nvme)),
        (KV_NVME_PATH, path.unwrap_or_default()),
        (KV_SHARE, share.to_owned()),
    ]
}

/// `prefill/0=10.0.0.1:30000,decode/0=10.0.0.2:30000`: every member of the unit, with the first of its ports.
fn members(member: &Member<'_>) -> String {
    let mut ranks = std::collections::BTreeMap::new();
    let shown = member.all.iter().map(|place| {
        let next = ranks.entry(place.pool).or_insert(0_u32);
        let rank = std::mem::replace(next, *next + 1);
        format!("{}/{rank}={}", place.pool, endpoint(member.address(place), place.first_port))
    });
    shown.collect::<Vec<_>>().join(",")
}
