//! From a release to what a host is asked to run. Pure: one renderer an engine kind, in a file each.
//!
//! A [`LaunchTemplate`] is what a release means on any host; its digest is what a rollout compares. A
//! [`LaunchSpec`] is the template at one placement; its digest is what desired and observed are compared by.

mod command;
mod container;
mod hand_over;
mod kv_cache;
mod limits;
mod llama_cpp;
mod member;
mod placeholders;
mod reference;
mod sglang;
mod tensorrt_llm;
mod vllm;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use container::Container;
pub use hand_over::{Field, HandOver};
pub use limits::{EngineLimit, HostNeed};
pub use member::{Claim, MemberPlace, PORTS_OF_A_MEMBER, PoolTemplate, Spread};
pub use placeholders::{PLACEHOLDERS, PORT, WEIGHTS};
pub use reference::Reference;

use crate::manifest::{
    Adapter, EngineKind, EngineSpec, KvCache, NamesOnly, PlacementRule, PoolName, RecipeSpec, ReleaseSpec,
    Weights,
};
use crate::quantity::Period;
use crate::{Digest, UnitId};
use member::Member;

/// What a release means on any host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchTemplate {
    pub engine: EngineKind,
    /// The model's name as the engine knows it.
    pub model: String,
    pub env: BTreeMap<String, String>,
    pub weights: Option<Weights>,
    pub probe: Probe,
    /// Where the engine's metrics are, if it has any.
    pub metrics_path: Option<String>,
    pub start_timeout: Period,
    pub stop_timeout: Period,
    /// One that does all, or one that reads prompts and then one that writes answers.
    pub pools: Vec<PoolTemplate>,
    #[serde(default, skip_serializing_if = "PlacementRule::is_same_domain")]
    pub placement: PlacementRule,
    /// The image that holds the engine, where it is not found on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<KvCache>,
}

impl fmt::Debug for LaunchTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchTemplate")
            .field("engine", &self.engine)
            .field("model", &self.model)
            .field("env", &NamesOnly(&self.env))
            .field("weights", &self.weights)
            .field("probe", &self.probe)
            .field("metrics_path", &self.metrics_path)
            .field("start_timeout", &self.start_timeout)
            .field("stop_timeout", &self.stop_timeout)
            .field("pools", &self.pools)
            .field("placement", &self.placement)
            .field("image", &self.image)
            .field("adapter", &self.adapter)
            .field("kv_cache", &self.kv_cache)
            .finish()
    }
}

/// A template at one placement: everything denvd needs to run one member.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchSpec {
    /// The model's name as the engine knows it.
    pub model: String,
    /// Program and arguments. The program is found in the container's image, or else on the host's engine path; `${port}` and
    /// `${weights}` are filled in by denvd.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub weights: Option<Weights>,
    /// None: it has no server that could be asked, and works as long as its process lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Where the engine's metrics are, if the member has any.
    pub metrics_path: Option<String>,
    pub start_timeout: Period,
    pub stop_timeout: Period,
    /// What of the host is this member's.
    #[serde(default)]
    pub claim: Claim,
    /// Of a prefill pool, where its engine leaves it to those who ask to bring what it has read to the decode pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<HandOver>,
    /// What it runs in. None: it is a plain process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

impl fmt::Debug for LaunchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchSpec")
            .field("model", &self.model)
            .field("argv", &self.argv)
            .field("env", &NamesOnly(&self.env))
            .field("weights", &self.weights)
            .field("probe", &self.probe)
            .field("metrics_path", &self.metrics_path)
            .field("start_timeout", &self.start_timeout)
            .field("stop_timeout", &self.stop_timeout)
            .field("claim", &self.claim)
            .field("hand_over", &self.hand_over)
            .field("container", &self.container)
            .finish()
    }
}

/// How denvd sees that the engine can serve: an HTTP GET that answers 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    pub path: String,
    pub interval: Period,
    /// Longer than this without an answer is a failed check.
    pub timeout: Period,
    /// Failed checks in a row that make a healthy member unhealthy.
    pub failures: u32,
}

impl LaunchTemplate {
    /// What `release` means, by its recipe and engine. The catalog has checked that they belong together.
    pub fn render(release: &ReleaseSpec, recipe: &RecipeSpec, engine: &EngineSpec) -> Self {
        let mut template = LaunchTemplate {
            engine: engine.kind,
            model: release.model.name.clone(),
            env: recipe.env.clone(),
            weights: release.model.weights.clone(),
            probe: Probe {
                path: "/health".to_owned(),
                interval: Period::from_secs(1),
                timeout: Period::from_secs(5),
                failures: 3,
            },
            metrics_path: Some("/metrics".to_owned()),
            start_timeout: recipe.start_timeout,
            stop_timeout: recipe.stop_timeout,
            pools: Vec::new(),
            placement: release.topology.placement,
            image: engine.image.clone(),
            adapter: recipe.adapter,
            kv_cache: release.kv_cache.clone(),
        };
        for (name, needs) in release.topology.pools() {
            let argv = engine.command.clone();
            let flags = recipe.flags.iter().chain(&release.config.flags).cloned().collect();
            let mut pool = PoolTemplate { name, needs: needs.clone(), argv, flags };
            match engine.kind {
                EngineKind::LlamaCpp => llama_cpp::render(&mut template, &mut pool, release),
                EngineKind::Vllm => vllm::render(&mut template, &mut pool, release),
                EngineKind::Sglang => sglang::render(&mut template, &mut pool, release),
                EngineKind::TensorrtLlm => tensorrt_llm::render(&mut template, &mut pool, release),
                EngineKind::Command => {}
            }
            template.pools.push(pool);
        }
        template
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }

    /// Whether its pools hand over the KV cache.
    pub(crate) fn is_disaggregated(&self) -> bool {
        self.pools.iter().any(|pool| pool.name != PoolName::Replica)
    }

    /// What each member of `unit` runs, at its place: the members of each pool in the order of their ranks.
    pub fn at(&self, unit: &UnitId, places: &[MemberPlace]) -> Vec<LaunchSpec> {
        (0..places.len()).map(|index| self.member(&Member::of(self, unit, places, index))).collect()
    }

    fn member(&self, member: &Member<'_>) -> LaunchSpec {
        let gpus = &member.place.gpus;
        let mut env = self.env.clone();
        if !gpus.is_empty() {
            let list = gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), list);
        }
        let serves = member.is_leader();
        let mut spec = LaunchSpec {
            model: self.model.clone(),
            argv: member.pool.argv.clone(),
            env,
            weights: self.weights.clone(),
            probe: serves.then(|| self.probe.clone()),
            metrics_path: self.metrics_path.clone().filter(|_| serves),
            start_timeout: self.start_timeout,
            stop_timeout: self.stop_timeout,
            claim: member.place.claim(),
            hand_over: None,
            container: self.container(),
        };
        match self.engine {
            EngineKind::LlamaCpp => llama_cpp::at(&mut spec),
            EngineKind::Vllm => vllm::at(self, member, &mut spec),
            EngineKind::Sglang => sglang::at(self, member, &mut spec),
            EngineKind::TensorrtLlm => tensorrt_llm::at(member, &mut spec),
            EngineKind::Command => {}
        }
        spec.argv.extend_from_slice(&member.pool.flags);
        placeholders::fill(self, member, &mut spec);
        spec
    }
}

impl LaunchSpec {
    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }
}

/// The pointer of a release's field that engines differ in.
const MODE: &str = "/spec/topology/mode";

/// Adds `--flag value`.
fn flag(argv: &mut Vec<String>, flag: &str, value: impl ToString) {
    argv.push(flag.to_owned());
    argv.push(value.to_string());
}

#[cfg(test)]
mod tests;
