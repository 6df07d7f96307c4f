//! What a release says of its KV cache, as renderers need it, and what most engines can't do of it.

use super::{EngineLimit, LaunchTemplate};
use crate::UnitId;
use crate::manifest::{KvShare, KvTier, KvTierKind};
use crate::quantity::ByteSize;

impl LaunchTemplate {
    pub(super) fn share(&self) -> KvShare {
        self.kv_cache.as_ref().map(|cache| cache.share).unwrap_or_default()
    }

    pub(super) fn tier(&self, kind: KvTierKind) -> Option<&KvTier> {
        self.kv_cache.as_ref()?.tiers.iter().find(|tier| tier.kind == kind)
    }

    /// In bytes.
    pub(super) fn tier_size(&self, kind: KvTierKind) -> Option<u64> {
        self.tier(kind)?.size.map(ByteSize::bytes)
    }

    /// A folder of the unit's own in a tier's folder: what is there is used by whoever finds it, and units do not share.
    pub(super) fn tier_folder(&self, unit: &UnitId) -> Option<String> {
        let path = self.tier(KvTierKind::Nvme)?.path.as_deref()?;
        Some(format!("{}/{unit}", path.trim_end_matches('/')))
    }

    /// The pointer of a tier in the release.
    pub(super) fn tier_field(&self, kind: KvTierKind) -> Option<String> {
        let at = self.kv_cache.as_ref()?.tiers.iter().position(|tier| tier.kind == kind)?;
        Some(format!("/spec/kvCache/tiers/{at}"))
    }
}

pub(super) const SHARE: &str = "/spec/kvCache/share";

/// Engines share what they computed with other units only through a store beside them.
pub(super) fn shared_by_stage(template: &LaunchTemplate) -> Option<EngineLimit> {
    (template.share() == KvShare::Stage).then(|| {
        EngineLimit::new(
            SHARE,
            "sharing a KV cache among all units of a stage needs a store that all of them reach, such as LMCache or \
             Mooncake, and denv runs none",
            "write `share: unit`",
        )
    })
}

/// A disk tier is filled from, and read into, one in the host's memory.
pub(super) fn disk_without_memory(template: &LaunchTemplate, engine: &str) -> Option<EngineLimit> {
    let field = template.tier_field(KvTierKind::Nvme)?;
    template.tier(KvTierKind::HostMemory).is_none().then(|| {
        EngineLimit::new(
            field,
            format!("{engine} keeps a tier on disk only behind one in the host's memory"),
            "put `{kind: host-memory, size: …}` before it",
        )
    })
}
