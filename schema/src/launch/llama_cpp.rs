//! llama.cpp's `llama-server`. Its context is shared by all slots, so a model length is multiplied by them.
//!
//! Source: llama.cpp, tools/server/README.md.

use super::kv_cache::shared_by_stage;
use super::{EngineLimit, LaunchSpec, LaunchTemplate, MODE, PORT, PoolTemplate, WEIGHTS, flag};
use crate::manifest::{KvShare, KvTierKind, ReleaseSpec};

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    let argv = &mut pool.argv;
    if template.weights.is_some() {
        flag(argv, "--model", WEIGHTS);
    }
    flag(argv, "--alias", &template.model);
    let slots = release.config.max_concurrent_requests.unwrap_or(1);
    if let Some(length) = release.config.max_model_len {
        flag(argv, "--ctx-size", length.saturating_mul(slots));
    }
    flag(argv, "--parallel", slots);
    if pool.needs.parallelism.tensor > 1 {
        // Without it, whole layers are put on each accelerator.
        flag(argv, "--split-mode", "row");
    }
    if template.share() == KvShare::None {
        argv.push("--no-cache-prompt".to_owned());
    }
    if template.kv_cache.is_some() {
        // It would keep prompts in the host's memory unasked.
        let bytes = template.tier_size(KvTierKind::HostMemory).unwrap_or(0);
        flag(argv, "--cache-ram", bytes >> 20);
    }
    argv.push("--metrics".to_owned());
}

pub(super) fn at(spec: &mut LaunchSpec) {
    flag(&mut spec.argv, "--host", "127.0.0.1");
    flag(&mut spec.argv, "--port", PORT);
}

pub(super) fn limits(template: &LaunchTemplate) -> Vec<EngineLimit> {
    let mut limits = Vec::new();
    if template.is_disaggregated() {
        let reason = "llama.cpp does not hand a KV cache from one server to another";
        limits.push(EngineLimit::new(MODE, reason, "write `mode: aggregated`, or use another engine"));
    }
    for pool in &template.pools {
        let degrees = pool.needs.parallelism;
        let pointer = format!("/spec/topology/{}/parallelism", pool.name);
        if degrees.data > 1 || degrees.expert > 1 {
            let reason = "llama.cpp has neither data nor expert parallelism";
            limits.push(EngineLimit::new(pointer, reason, "use more units"));
        } else if degrees.tensor > 1 && degrees.pipeline > 1 {
            let reason = "llama.cpp splits a model by layers or by rows, not both";
            limits.push(EngineLimit::new(
                pointer,
                reason,
                "use one of `pipeline` (layers) and `tensor` (rows)",
            ));
        }
    }
    if let Some(field) = template.tier_field(KvTierKind::Nvme) {
        limits.push(EngineLimit::new(field, "llama.cpp keeps no prompts on disk by itself", "leave it out"));
    }
    limits.extend(shared_by_stage(template));
    limits
}
