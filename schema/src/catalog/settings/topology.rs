//! A release's topology: pools that are written and pools that are used, degrees and accelerators, engines and degrees.

use super::Report;
use crate::catalog::Catalog;
use crate::diagnostic::counted;
use crate::manifest::{EngineKind, KvCache, KvShare, KvTierKind, Pool, PoolName, ReleaseSpec, TopologyMode};

pub(super) fn topology(spec: &ReleaseSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let topology = &spec.topology;
    let (mode, wanted) = match topology.mode {
        TopologyMode::Aggregated => ("aggregated", [PoolName::Replica].as_slice()),
        TopologyMode::Disaggregated => ("disaggregated", [PoolName::Prefill, PoolName::Decode].as_slice()),
    };
    let engine = catalog.engines.get(&spec.engine).map(|engine| engine.kind);
    for name in wanted.iter().filter(|name| topology.pools().all(|(other, _)| other != **name)) {
        let message = format!("the mode `{mode}` needs `{name}`");
        report.contradict(
            "/spec/topology/mode",
            message,
            Some("say what it takes, for example `{gpus: 8, …}`"),
        );
    }
    for (name, pool) in topology.pools() {
        let pointer = format!("/spec/topology/{name}");
        if !wanted.contains(&name) {
            let message = format!("the mode `{mode}` has no `{name}`");
            report.contradict(&pointer, message, Some("leave it out, or change `mode`"));
            continue;
        }
        size(&pointer, name, pool, report);
    }
    if let Some(cache) = &spec.kv_cache {
        tiers(cache, engine, report);
    }
}

fn size(pointer: &str, name: PoolName, pool: &Pool, report: &mut Report<'_>) {
    let degrees = pool.parallelism;
    match (pool.gpus, pool.cpu_slots) {
        (Some(gpus), None) => {
            let world = degrees.world_size();
            if world != gpus {
                let gpus = counted(usize::try_from(gpus).unwrap_or(usize::MAX), "GPU");
                let message =
                    format!("tensor × pipeline × data parallelism is {world}, and the {name} has {gpus}");
                report.contradict(pointer, message, Some("make the degrees multiply to the GPUs"));
            }
        }
        (None, Some(_)) => {}
        (Some(_), Some(_)) | (None, None) => {
            let message = format!("a {name} takes either `gpus` or `cpuSlots`");
            report.contradict(pointer, message, Some("write one of them"));
        }
    }
    let spread = degrees.tensor.saturating_mul(degrees.data);
    if degrees.expert > 1 && !spread.is_multiple_of(degrees.expert) {
        let message = format!(
            "experts over {} accelerators do not divide tensor × data parallelism, which is {spread}",
            degrees.expert
        );
        report.contradict(
            &format!("{pointer}/parallelism/expert"),
            message,
            Some("use a divisor, most often all of them"),
        );
    }
}

fn tiers(cache: &KvCache, engine: Option<EngineKind>, report: &mut Report<'_>) {
    if cache.share == KvShare::None && cache.tiers.len() > 1 {
        let message =
            "with `share: none` no prefix is used again, and these tiers would keep them".to_owned();
        report.contradict("/spec/kvCache/share", message, Some("leave all tiers but `gpu` out"));
    }
    let mut before: Option<KvTierKind> = None;
    for (i, tier) in cache.tiers.iter().enumerate() {
        let pointer = format!("/spec/kvCache/tiers/{i}");
        match before {
            None if tier.kind != KvTierKind::Gpu => report.contradict(
                &format!("{pointer}/kind"),
                "the first tier is `gpu`: what an engine uses is there".to_owned(),
                Some("begin with `{kind: gpu}`"),
            ),
            Some(before) if before >= tier.kind => report.contradict(
                &format!("{pointer}/kind"),
                "tiers are `gpu`, then `host-memory`, then `nvme`, each once".to_owned(),
                Some("write the fastest first"),
            ),
            _ => {}
        }
        before = before.max(Some(tier.kind));
        let is_gpu = tier.kind == KvTierKind::Gpu;
        if is_gpu && tier.size.is_some() {
            let message = "the tier `gpu` has what the engine leaves free".to_owned();
            report.contradict(&format!("{pointer}/size"), message, Some("leave `size` out"));
        } else if !is_gpu && tier.size.is_none() && !is_unlimited(tier.kind, engine) {
            report.contradict(
                &pointer,
                "the tier does not say its size".to_owned(),
                Some("write `size`, for example `512Gi`"),
            );
        }
        match (tier.kind, &tier.path) {
            (KvTierKind::Nvme, None) => report.contradict(
                &pointer,
                "the tier `nvme` does not say its folder".to_owned(),
                Some("write `path`, for example `/var/lib/denv/kv`"),
            ),
            (KvTierKind::Gpu | KvTierKind::HostMemory, Some(_)) => {
                let message = "only the tier `nvme` has a folder".to_owned();
                report.contradict(&format!("{pointer}/path"), message, Some("leave `path` out"));
            }
            (KvTierKind::Nvme, Some(_)) | (KvTierKind::Gpu | KvTierKind::HostMemory, None) => {}
        }
    }
}

/// vLLM fills a folder without a limit; its file system is the size.
fn is_unlimited(kind: KvTierKind, engine: Option<EngineKind>) -> bool {
    kind == KvTierKind::Nvme && engine == Some(EngineKind::Vllm)
}
