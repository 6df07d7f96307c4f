//! The operator's own serving command: nothing is added to it but what it asks for.

use super::kv_cache::SHARE;
use super::placeholders::{KV_HOST_MEMORY, KV_NVME_PATH, KV_SHARE, POOL, RANK};
use super::{EngineLimit, LaunchTemplate, MODE, PoolTemplate, Spread};
use crate::manifest::{KvShare, KvTierKind};

/// Members that are not told their rank would all take themselves for the same one.
pub(super) fn spread(template: &LaunchTemplate, pool: &PoolTemplate, gpus: u32) -> Spread {
    if asks_for(template, pool, RANK) {
        Spread::over(gpus, None, |_| true)
    } else {
        Spread::one_host("the command does not ask for `${rank}`, so it runs on one host")
    }
}

/// What the command would not hear of.
pub(super) fn limits(template: &LaunchTemplate) -> Vec<EngineLimit> {
    let asks = |placeholder: &str| template.pools.iter().all(|pool| asks_for(template, pool, placeholder));
    let mut limits = Vec::new();
    let mut demand = |field: Option<String>, placeholder: &str, what: &str, remedy| {
        if let Some(field) = field.filter(|_| !asks(placeholder)) {
            let reason = format!("the command does not ask for `{placeholder}`, so it is not told {what}");
            limits.push(EngineLimit::new(field, reason, remedy));
        }
    };
    const PASS: &str = "pass it as a flag, or as a variable in the recipe's `env`";
    let field = |is: bool, field: &str| is.then(|| field.to_owned());
    let tier = |kind| template.tier_field(kind);
    demand(field(template.is_disaggregated(), MODE), POOL, "whether it is of `prefill` or `decode`", PASS);
    demand(tier(KvTierKind::HostMemory), KV_HOST_MEMORY, "of this tier", PASS);
    demand(tier(KvTierKind::Nvme), KV_NVME_PATH, "of this tier", PASS);
    demand(field(template.share() != KvShare::Unit, SHARE), KV_SHARE, "who shares the cache", PASS);
    limits
}

fn asks_for(template: &LaunchTemplate, pool: &PoolTemplate, placeholder: &str) -> bool {
    pool.argv.iter().chain(&pool.flags).chain(template.env.values()).any(|text| text.contains(placeholder))
}
