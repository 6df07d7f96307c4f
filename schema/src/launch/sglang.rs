//! SGLang's `python -m sglang.launch_server`.

use super::{LaunchTemplate, PORT, PoolTemplate, WEIGHTS, flag};
use crate::manifest::ReleaseSpec;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    // `/health` makes the engine generate a token; this only asks whether it can.
    "/ready".clone_into(&mut template.probe.path);
    let argv = &mut pool.argv;
    let model = if template.weights.is_some() { WEIGHTS } else { template.model.as_str() };
    flag(argv, "--model-path", model);
    flag(argv, "--host", "127.0.0.1");
    flag(argv, "--port", PORT);
    flag(argv, "--served-model-name", &template.model);
    let degrees = pool.needs.parallelism;
    if degrees.expert > 1 && degrees.data > 1 {
        // A mixture of experts with attention side by side: SGLang counts the experts' accelerators as tensor
        // parallelism, and the attention's ranks within them.
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
    argv.push("--enable-metrics".to_owned());
    // Without it, usage leaves cached tokens out and metering would count them as fresh input.
    argv.push("--enable-cache-report".to_owned());
}
