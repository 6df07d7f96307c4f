//! llama.cpp's `llama-server`. Its context is shared by all slots, so a model length is multiplied by them.

use super::{LaunchTemplate, PORT, PoolTemplate, WEIGHTS, flag};
use crate::manifest::ReleaseSpec;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    let argv = &mut pool.argv;
    flag(argv, "--host", "127.0.0.1");
    flag(argv, "--port", PORT);
    if template.weights.is_some() {
        flag(argv, "--model", WEIGHTS);
    }
    flag(argv, "--alias", &template.model);
    let slots = release.config.max_concurrent_requests.unwrap_or(1);
    if let Some(length) = release.config.max_model_len {
        flag(argv, "--ctx-size", length.saturating_mul(slots));
    }
    flag(argv, "--parallel", slots);
    argv.push("--metrics".to_owned());
}
