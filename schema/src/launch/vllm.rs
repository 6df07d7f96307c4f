//! vLLM's `vllm serve`.

use super::{LaunchTemplate, PORT, PoolTemplate, WEIGHTS, flag};
use crate::manifest::ReleaseSpec;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    let argv = &mut pool.argv;
    // vLLM takes its model as a positional argument, straight after `serve`.
    argv.push("serve".to_owned());
    argv.push(if template.weights.is_some() { WEIGHTS.to_owned() } else { template.model.clone() });
    flag(argv, "--host", "127.0.0.1");
    flag(argv, "--port", PORT);
    flag(argv, "--served-model-name", &template.model);
    let degrees = pool.needs.parallelism;
    flag(argv, "--tensor-parallel-size", degrees.tensor);
    if degrees.pipeline > 1 {
        flag(argv, "--pipeline-parallel-size", degrees.pipeline);
    }
    if degrees.data > 1 {
        flag(argv, "--data-parallel-size", degrees.data);
        // One API server keeps KV events and the rank header consistent over the ranks.
        flag(argv, "--api-server-count", 1);
    }
    // vLLM spreads experts over all accelerators of tensor and data parallelism, or over none.
    if degrees.expert > 1 {
        argv.push("--enable-expert-parallel".to_owned());
    }
    if let Some(length) = release.config.max_model_len {
        flag(argv, "--max-model-len", length);
    }
    if let Some(requests) = release.config.max_concurrent_requests {
        flag(argv, "--max-num-seqs", requests);
    }
    // Without it, usage leaves cached tokens out and metering would count them as fresh input.
    argv.push("--enable-prompt-tokens-details".to_owned());
    // Without it, vLLM kills its engine on SIGTERM and lets open streams hang.
    flag(argv, "--shutdown-timeout", template.stop_timeout.get().as_secs());
}
