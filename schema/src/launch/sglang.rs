//! SGLang's `python -m sglang.launch_server`.
//!
//! Source: SGLang 0.5 docs, "Server Arguments", "PD Disaggregation" and "HiCache Best Practices"; which ports follow from
//! `--dist-init-addr`, its `PortArgs`.

use super::kv_cache::{disk_without_memory, shared_by_stage};
use super::member::{Member, port};
use super::{EngineLimit, HandOver, LaunchSpec, LaunchTemplate, PORT, PoolTemplate, Spread, WEIGHTS, flag};
use crate::manifest::{KvShare, KvTierKind, Parallelism, PoolName, ReleaseSpec};

/// Of the leader's ports: where its ranks find each other. With attention side by side they use the 13 ports behind it too.
const RENDEZVOUS: u16 = 0;
/// Of the leader's ports: where decode members ask who has a prompt's KV cache.
const BOOTSTRAP: u16 = 15;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    // `/health` makes the engine generate a token; this only asks whether it can.
    "/ready".clone_into(&mut template.probe.path);
    let argv = &mut pool.argv;
    let model = if template.weights.is_some() { WEIGHTS } else { template.model.as_str() };
    flag(argv, "--model-path", model);
    flag(argv, "--served-model-name", &template.model);
    let degrees = pool.needs.parallelism;
    if has_attention_side_by_side(degrees) {
        // SGLang counts the experts' accelerators as tensor parallelism, and the attention's ranks within them.
        flag(argv, "--tp-size", degrees.tensor.saturating_mul(degrees.data));
        flag(argv, "--dp-size", degrees.data);
        argv.push("--enable-dp-attention".to_owned());
    } else {
        flag(argv, "--tp-size", degrees.tensor);
        if degrees.data > 1 {
            flag(argv, "--dp-size", degrees.data);
        }
    }
    if degrees.pipeline > 1 {
        flag(argv, "--pp-size", degrees.pipeline);
    }
    if degrees.expert > 1 {
        flag(argv, "--ep-size", degrees.expert);
    }
    if let Some(length) = release.config.max_model_len {
        flag(argv, "--context-length", length);
    }
    if let Some(requests) = release.config.max_concurrent_requests {
        flag(argv, "--max-running-requests", requests);
    }
    if template.share() == KvShare::None {
        argv.push("--disable-radix-cache".to_owned());
    }
    argv.push("--enable-metrics".to_owned());
    // Without it, usage leaves cached tokens out and metering would count them as fresh input.
    argv.push("--enable-cache-report".to_owned());
}

pub(super) fn at(template: &LaunchTemplate, member: &Member<'_>, spec: &mut LaunchSpec) {
    let argv = &mut spec.argv;
    // The bootstrap server listens where the engine does, and decode members on other hosts must reach it.
    let is_asked_from_afar = member.is_prefill() && !member.is_on_one_host();
    flag(argv, "--host", if is_asked_from_afar { "0.0.0.0" } else { "127.0.0.1" });
    flag(argv, "--port", PORT);
    if member.hosts() > 1 {
        flag(argv, "--nnodes", member.hosts());
        flag(argv, "--node-rank", member.rank);
        flag(argv, "--dist-init-addr", member.leader_endpoint(RENDEZVOUS));
    } else if has_attention_side_by_side(member.pool.needs.parallelism) || member.is_prefill() {
        // Without it, SGLang takes ports that follow from the engine's own, which others may have.
        flag(argv, "--dist-init-addr", format!("127.0.0.1:{}", port(member.place, RENDEZVOUS)));
    }
    if member.hands_over() {
        flag(argv, "--disaggregation-mode", member.pool.name);
        flag(argv, "--disaggregation-transfer-backend", "nixl");
    }
    if member.is_prefill() {
        flag(argv, "--disaggregation-bootstrap-port", port(member.leader(), BOOTSTRAP));
    }
    if member.leads_prefill() {
        spec.hand_over = Some(HandOver::Sglang {
            bootstrap_host: member.address(member.place).to_owned(),
            bootstrap_port: port(member.place, BOOTSTRAP),
        });
    }
    if let Some(address) = member.own_ip() {
        spec.env.entry("SGLANG_HOST_IP".to_owned()).or_insert_with(|| address.to_owned());
    }
    tiers(template, member, spec);
}

/// Sizes are of each rank. Decode members use no prefix again: the prefill pool has the tiers.
fn tiers(template: &LaunchTemplate, member: &Member<'_>, spec: &mut LaunchSpec) {
    let Some(memory) = template.tier_size(KvTierKind::HostMemory) else { return };
    if member.pool.name == PoolName::Decode {
        return;
    }
    let ranks = u64::try_from(member.place.gpus.len()).unwrap_or(u64::MAX).max(1);
    spec.argv.push("--enable-hierarchical-cache".to_owned());
    // In gigabytes of 10⁹ bytes; 0 would mean a share of the accelerator's.
    flag(&mut spec.argv, "--hicache-size", (memory / ranks / 1_000_000_000).max(1));
    if let (Some(folder), Some(size)) =
        (template.tier_folder(member.unit), template.tier_size(KvTierKind::Nvme))
    {
        flag(&mut spec.argv, "--hicache-storage-backend", "file");
        let mut set = |name: &str, value: String| drop(spec.env.insert(name.to_owned(), value));
        set("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", folder);
        set("SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE", (size / ranks).to_string());
    }
}

pub(super) fn spread(pool: &PoolTemplate, gpus: u32) -> Spread {
    let degrees = pool.needs.parallelism;
    if degrees.data > 1 && !has_attention_side_by_side(degrees) {
        return Spread::one_host(
            "SGLang spreads data parallelism over hosts only where experts are spread too (`expert`)",
        );
    }
    let (pipeline, tensor) = (degrees.pipeline, degrees.tensor.saturating_mul(degrees.data));
    let limit = (pipeline > 1)
        .then_some("SGLang puts whole stages of a pipeline on a host, or as many hosts on each stage");
    Spread::over(gpus, limit, |hosts| {
        pipeline.is_multiple_of(hosts)
            || (hosts.is_multiple_of(pipeline) && tensor.is_multiple_of(hosts / pipeline))
    })
}

pub(super) fn limits(template: &LaunchTemplate) -> Vec<EngineLimit> {
    disk_without_memory(template, "SGLang").into_iter().chain(shared_by_stage(template)).collect()
}

/// A mixture of experts whose attention stands side by side.
fn has_attention_side_by_side(degrees: Parallelism) -> bool {
    degrees.expert > 1 && degrees.data > 1
}
