//! vLLM's `vllm serve`.
//!
//! Source: vLLM 0.32 docs, "Data Parallel Deployment", "Parallelism and Scaling" (multiprocessing over nodes), "NixlConnector
//! Usage Guide" and "KV Offloading Usage Guide"; and what it was seen to do.

use serde_json::{Value, json};

use super::kv_cache::{disk_without_memory, shared_by_stage};
use super::member::{Member, port};
use super::{
    EngineLimit, HandOver, LaunchSpec, LaunchTemplate, PORT, PORTS_OF_A_MEMBER, PoolTemplate, Spread,
    WEIGHTS, flag,
};
use crate::manifest::{KvShare, KvTierKind, PoolName, ReleaseSpec};

/// Of the leader's ports: where data-parallel ranks on other hosts come to.
const DATA_PARALLEL: u16 = 0;
/// Of the leader's ports: where the hosts of one rank come to.
const MASTER: u16 = 1;
/// Of a member's ports: where other pools ask for its KV cache, one for each of its data-parallel ranks.
const HAND_OVER: u16 = 2;
const MOST_RANKS_ON_A_HOST: u32 = (PORTS_OF_A_MEMBER - HAND_OVER) as u32;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    let argv = &mut pool.argv;
    // vLLM takes its model as a positional argument, straight after `serve`.
    argv.push("serve".to_owned());
    argv.push(if template.weights.is_some() { WEIGHTS.to_owned() } else { template.model.clone() });
    flag(argv, "--served-model-name", &template.model);
    let degrees = pool.needs.parallelism;
    flag(argv, "--tensor-parallel-size", degrees.tensor);
    if degrees.pipeline > 1 {
        flag(argv, "--pipeline-parallel-size", degrees.pipeline);
    }
    if degrees.data > 1 {
        flag(argv, "--data-parallel-size", degrees.data);
    }
    // vLLM spreads experts over all accelerators of tensor and data parallelism, or over none.
    if degrees.expert > 1 {
        argv.push("--enable-expert-parallel".to_owned());
    }
    if let Some(length) = release.config.max_model_len {
        flag(argv, "--max-model-len", length);
    }
    if let Some(requests) = release.config.max_concurrent_requests {
        // Of each data-parallel rank.
        flag(argv, "--max-num-seqs", requests.div_ceil(degrees.data.max(1)));
    }
    if template.share() == KvShare::None {
        argv.push("--no-enable-prefix-caching".to_owned());
    }
    // Without it, usage leaves cached tokens out and metering would count them as fresh input.
    argv.push("--enable-prompt-tokens-details".to_owned());
    // Without it, vLLM kills its engine on SIGTERM and lets open streams hang.
    flag(argv, "--shutdown-timeout", template.stop_timeout.get().as_secs());
}

pub(super) fn at(template: &LaunchTemplate, member: &Member<'_>, spec: &mut LaunchSpec) {
    let (argv, data) = (&mut spec.argv, member.pool.needs.parallelism.data);
    if member.is_leader() {
        flag(argv, "--host", "127.0.0.1");
        flag(argv, "--port", PORT);
        if data > 1 {
            // One API server keeps KV events and the rank header consistent over the ranks.
            flag(argv, "--api-server-count", 1);
        }
    } else {
        argv.push("--headless".to_owned());
    }
    if member.hosts() > 1 {
        if data > 1 {
            flag(argv, "--data-parallel-size-local", local_ranks(member));
            // Written out for the leader it would mean that every host balances its own load.
            if !member.is_leader() {
                flag(argv, "--data-parallel-start-rank", first_rank(member));
            }
            flag(argv, "--data-parallel-address", member.address(member.leader()));
            flag(argv, "--data-parallel-rpc-port", port(member.leader(), DATA_PARALLEL));
        } else {
            flag(argv, "--nnodes", member.hosts());
            flag(argv, "--node-rank", member.rank);
            flag(argv, "--master-addr", member.address(member.leader()));
            flag(argv, "--master-port", port(member.leader(), MASTER));
        }
    }
    if let Some(address) = member.own_ip() {
        spec.env.entry("VLLM_HOST_IP".to_owned()).or_insert_with(|| address.to_owned());
    }
    transfers(template, member, spec);
}

/// Data-parallel ranks on each host; what is left of one rank on a host counts as one.
fn local_ranks(member: &Member<'_>) -> u32 {
    (member.pool.needs.parallelism.data / member.hosts()).max(1)
}

/// The first data-parallel rank on this host.
fn first_rank(member: &Member<'_>) -> u32 {
    if member.pool.needs.parallelism.data > 1 { member.rank * local_ranks(member) } else { 0 }
}

/// Where the KV cache goes to and comes from.
fn transfers(template: &LaunchTemplate, member: &Member<'_>, spec: &mut LaunchSpec) {
    let memory = template.tier_size(KvTierKind::HostMemory).map(|size| share_of_a_rank(size, member));
    let folder = template.tier_folder(member.unit);
    let config = match (member.hands_over(), memory, folder) {
        (false, None, _) => return,
        (false, Some(bytes), None) => {
            flag(&mut spec.argv, "--kv-offloading-size", gibibytes(bytes));
            flag(&mut spec.argv, "--kv-offloading-backend", "native");
            return;
        }
        (false, Some(bytes), folder) => offloading(bytes, folder),
        (true, None, _) => hand_over(member),
        (true, Some(bytes), folder) => {
            let connectors = json!({"connectors": [hand_over(member), offloading(bytes, folder)]});
            json!({"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": connectors})
        }
    };
    if member.hands_over() {
        let mut set = |name: &str, value: String| drop(spec.env.insert(name.to_owned(), value));
        set("VLLM_NIXL_SIDE_CHANNEL_HOST", member.address(member.place).to_owned());
        // vLLM adds to it the rank among all data-parallel ranks, also of those on other hosts.
        let base = u32::from(port(member.place, HAND_OVER)).saturating_sub(first_rank(member));
        set("VLLM_NIXL_SIDE_CHANNEL_PORT", base.to_string());
    }
    if member.leads_prefill() {
        spec.hand_over = Some(HandOver::Vllm {});
    }
    flag(&mut spec.argv, "--kv-transfer-config", with_engine_id(config, member));
}

fn hand_over(member: &Member<'_>) -> Value {
    let role = if member.is_prefill() { "kv_producer" } else { "kv_consumer" };
    let mut config = json!({"kv_connector": "NixlConnector", "kv_role": role});
    if member.pool.needs.gpus.is_none() {
        config["kv_buffer_device"] = "cpu".into();
    }
    config
}

fn offloading(bytes: u64, folder: Option<String>) -> Value {
    let extra = match folder {
        None => json!({"cpu_bytes_to_use": bytes}),
        Some(folder) => json!({
            "spec_name": "TieringOffloadingSpec",
            "cpu_bytes_to_use": bytes,
            "secondary_tiers": [{"type": "fs", "root_dir": folder}],
        }),
    };
    json!({"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra})
}

/// vLLM makes a new id at each start, so that nobody takes an engine that was restarted for the one before. Only where
/// one rank is on several hosts must they agree on it.
fn with_engine_id(mut config: Value, member: &Member<'_>) -> Value {
    if member.hands_over() && member.hosts() > 1 && member.pool.needs.parallelism.data == 1 {
        config["engine_id"] = format!("{}.{}", member.unit, member.pool.name).into();
    }
    config
}

/// The manifest says what each host gives, and vLLM is told what each data-parallel rank has on all its hosts.
fn share_of_a_rank(size: u64, member: &Member<'_>) -> u64 {
    size.saturating_mul(u64::from(member.hosts())) / u64::from(member.pool.needs.parallelism.data.max(1))
}

fn gibibytes(bytes: u64) -> String {
    const GIBIBYTE: u64 = 1 << 30;
    if bytes.is_multiple_of(GIBIBYTE) {
        return (bytes / GIBIBYTE).to_string();
    }
    // Of a thousandth, rounded down.
    let thousandths = u128::from(bytes) * 1000 / u128::from(GIBIBYTE);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

pub(super) fn spread(pool: &PoolTemplate, gpus: u32) -> Spread {
    let data = pool.needs.parallelism.data;
    if data == 1 {
        return Spread::over(gpus, None, |_| true);
    }
    let is_handed_over = pool.name != PoolName::Replica;
    Spread::over(
        gpus,
        Some("vLLM puts whole ranks of data parallelism on a host, as many on each"),
        |hosts| data.is_multiple_of(hosts) && (!is_handed_over || data / hosts <= MOST_RANKS_ON_A_HOST),
    )
}

pub(super) fn limits(template: &LaunchTemplate) -> Vec<EngineLimit> {
    let mut limits = Vec::new();
    for pool in &template.pools {
        let degrees = pool.needs.parallelism;
        let spread = degrees.tensor.saturating_mul(degrees.data);
        if degrees.expert > 1 && degrees.expert != spread {
            let field = format!("/spec/topology/{}/parallelism/expert", pool.name);
            let reason = format!(
                "vLLM spreads experts over all of tensor × data parallelism, which is {spread}, or does not"
            );
            limits.push(EngineLimit::new(field, reason, "write that, or leave `expert` out"));
        }
    }
    let memory = template.tier_field(KvTierKind::HostMemory);
    if let Some(field) = memory.filter(|_| template.gpus().is_none()) {
        let reason = "vLLM keeps KV tiers only beside accelerators";
        limits.push(EngineLimit::new(field, reason, "leave it out"));
    }
    let disk = template.tier_field(KvTierKind::Nvme);
    if let Some(field) = disk.filter(|_| template.tier_size(KvTierKind::Nvme).is_some()) {
        limits.push(EngineLimit::new(
            format!("{field}/size"),
            "vLLM fills the folder without a limit",
            "leave `size` out, and give `path` a file system of that size",
        ));
    }
    limits.extend(disk_without_memory(template, "vLLM"));
    limits.extend(shared_by_stage(template));
    limits
}
