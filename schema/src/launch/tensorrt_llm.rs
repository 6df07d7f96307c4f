//! TensorRT-LLM's `trtllm-serve`.
//!
//! Source: TensorRT-LLM 1.2 docs, "Disaggregated Serving" and the reference of `trtllm-serve`.

use super::kv_cache::{SHARE, shared_by_stage};
use super::member::Member;
use super::placeholders::POOL;
use super::{EngineLimit, HandOver, LaunchSpec, LaunchTemplate, MODE, PORT, PoolTemplate, WEIGHTS, flag};
use crate::manifest::{KvShare, KvTierKind, ReleaseSpec};

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    // `/metrics` is JSON there.
    template.metrics_path = Some("/prometheus/metrics".to_owned());
    let argv = &mut pool.argv;
    // The model is a positional argument.
    argv.push(if template.weights.is_some() { WEIGHTS.to_owned() } else { template.model.clone() });
    let degrees = pool.needs.parallelism;
    flag(argv, "--tp_size", degrees.tensor);
    if degrees.pipeline > 1 {
        flag(argv, "--pp_size", degrees.pipeline);
    }
    if degrees.expert > 1 {
        flag(argv, "--ep_size", degrees.expert);
    }
    if let Some(length) = release.config.max_model_len {
        flag(argv, "--max_seq_len", length);
    }
    if let Some(requests) = release.config.max_concurrent_requests {
        flag(argv, "--max_batch_size", requests);
    }
}

pub(super) fn at(member: &Member<'_>, spec: &mut LaunchSpec) {
    flag(&mut spec.argv, "--host", "127.0.0.1");
    flag(&mut spec.argv, "--port", PORT);
    if member.leads_prefill() {
        spec.hand_over = Some(HandOver::TensorrtLlm {});
    }
}

/// Much is told it by a file of options only, which is on the hosts and which the recipe's flags name.
pub(super) fn limits(template: &LaunchTemplate) -> Vec<EngineLimit> {
    let mut limits = Vec::new();
    for pool in template.pools.iter().filter(|pool| pool.needs.parallelism.data > 1) {
        let field = format!("/spec/topology/{}/parallelism/data", pool.name);
        let reason = "TensorRT-LLM has no data parallelism in one server";
        limits.push(EngineLimit::new(field, reason, "use tensor parallelism, or more units"));
    }
    if template.is_disaggregated() && !template.pools.iter().all(names_a_file_for_each_pool) {
        limits.push(EngineLimit::new(
            MODE,
            "TensorRT-LLM is told how to hand over a KV cache by a file of options only, another one for each pool",
            "put files with `cache_transceiver_config` on the hosts and name them in the recipe's flags, as \
             `--extra_llm_api_options /etc/denv/trtllm-${pool}.yaml`",
        ));
    }
    for kind in [KvTierKind::HostMemory, KvTierKind::Nvme] {
        if let Some(field) = template.tier_field(kind) {
            limits.push(EngineLimit::new(
                field,
                "TensorRT-LLM is told of KV tiers by a file of options only",
                "leave it out; what the file that `--extra_llm_api_options` names says of `kv_cache_config` holds",
            ));
        }
    }
    if template.share() == KvShare::None {
        limits.push(EngineLimit::new(
            SHARE,
            "TensorRT-LLM is told not to use a KV cache again by a file of options only",
            "write `unit`, with `enable_block_reuse: false` in the file that `--extra_llm_api_options` names",
        ));
    }
    limits.extend(shared_by_stage(template));
    limits
}

fn names_a_file_for_each_pool(pool: &PoolTemplate) -> bool {
    let arguments: Vec<&String> = pool.argv.iter().chain(&pool.flags).collect();
    ["--extra_llm_api_options", "--config"].iter().any(|option| {
        arguments.iter().enumerate().any(|(i, argument)| match argument.strip_prefix(option) {
            Some("") => arguments.get(i + 1).is_some_and(|file| file.contains(POOL)),
            Some(rest) => rest.starts_with('=') && rest.contains(POOL),
            None => false,
        })
    })
}
