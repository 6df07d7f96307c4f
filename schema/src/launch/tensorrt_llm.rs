//! TensorRT-LLM's `trtllm-serve`.

use super::{LaunchTemplate, PORT, PoolTemplate, WEIGHTS, flag};
use crate::manifest::ReleaseSpec;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    // `/metrics` is JSON there.
    template.metrics_path = Some("/prometheus/metrics".to_owned());
    let argv = &mut pool.argv;
    // The model is a positional argument.
    argv.push(if template.weights.is_some() { WEIGHTS.to_owned() } else { template.model.clone() });
    flag(argv, "--host", "127.0.0.1");
    flag(argv, "--port", PORT);
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
