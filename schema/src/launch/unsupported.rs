//! What a release may ask for and denv can't start. It is said before anything moves, never started as something else.

use std::fmt;

use super::LaunchTemplate;
use crate::manifest::{KvShare, KvTierKind, PoolName};

/// Why a release can't be started as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Prefill and decode in pools of their own.
    Disaggregated,
    /// An engine in a container image.
    Image,
    /// Weights that are not on the host.
    Weights,
    /// KV tiers beyond the accelerators' memory.
    KvTiers,
    /// A KV cache that the stage's units share, or that no request uses again.
    KvShare,
}

impl LaunchTemplate {
    /// Whether, and why not, denv can start this.
    pub fn unsupported(&self) -> Option<Unsupported> {
        if self.pools.iter().any(|pool| pool.name != PoolName::Replica) {
            return Some(Unsupported::Disaggregated);
        }
        if self.image.is_some() {
            return Some(Unsupported::Image);
        }
        if self.weights.as_ref().is_some_and(|weights| !weights.is_on_host()) {
            return Some(Unsupported::Weights);
        }
        let cache = self.kv_cache.as_ref()?;
        if cache.tiers.iter().any(|tier| tier.kind != KvTierKind::Gpu) {
            return Some(Unsupported::KvTiers);
        }
        (cache.share != KvShare::Unit).then_some(Unsupported::KvShare)
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsupported::Disaggregated => "denv does not start units of a prefill and a decode pool yet",
            Unsupported::Image => {
                "denv does not start engines from images yet; install the engine on the hosts and leave out `image`"
            }
            Unsupported::Weights => {
                "denv does not fetch weights yet; put them on the hosts and name them as `file:`"
            }
            Unsupported::KvTiers => "denv does not set up KV tiers beside `gpu` yet; leave them out",
            Unsupported::KvShare => "denv does not set up another `kvCache.share` than `unit` yet; leave it out",
        })
    }
}
