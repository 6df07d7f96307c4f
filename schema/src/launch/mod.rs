//! From a release to what a host is asked to run. Pure: one renderer an engine kind, in a file each.
//!
//! A [`LaunchTemplate`] is what a release means on any host; its digest is what a rollout compares. A
//! [`LaunchSpec`] is the template at one placement; its digest is what desired and observed are compared by.

mod command;
mod llama_cpp;
mod reference;
mod sglang;
mod tensorrt_llm;
mod unsupported;
mod vllm;

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use reference::Reference;
pub use unsupported::Unsupported;

use crate::Digest;
use crate::manifest::{
    Adapter, EngineKind, EngineSpec, KvCache, NamesOnly, PlacementRule, Pool, RecipeSpec, ReleaseSpec,
    Topology, TopologyMode, Weights,
};
use crate::quantity::Period;

/// What denvd fills in where an argument or variable holds it, since only the host knows: the port it gave the
/// engine, the verified weights file.
pub const PORT: &str = "${port}";
pub const WEIGHTS: &str = "${weights}";
/// Filled in when a `command` engine is rendered: the model's name.
pub const MODEL: &str = "${model}";

/// What a release means on any host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchTemplate {
    pub engine: EngineKind,
    /// The model's name as the engine knows it.
    pub model: String,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub weights: Option<Weights>,
    pub probe: Probe,
    /// Where the engine's metrics are, if it has any.
    pub metrics_path: Option<String>,
    pub start_timeout: Period,
    pub stop_timeout: Period,
    /// What a whole unit takes.
    pub needs: Pool,
    /// The image that holds the engine, where it is not found on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<KvCache>,
    /// The pools of a unit, where they are not one replica within one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

impl fmt::Debug for LaunchTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchTemplate")
            .field("engine", &self.engine)
            .field("model", &self.model)
            .field("argv", &self.argv)
            .field("env", &NamesOnly(&self.env))
            .field("weights", &self.weights)
            .field("probe", &self.probe)
            .field("metrics_path", &self.metrics_path)
            .field("start_timeout", &self.start_timeout)
            .field("stop_timeout", &self.stop_timeout)
            .field("needs", &self.needs)
            .field("image", &self.image)
            .field("adapter", &self.adapter)
            .field("kv_cache", &self.kv_cache)
            .field("topology", &self.topology)
            .finish()
    }
}

/// A template at one placement: everything denvd needs to run one member.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchSpec {
    /// The model's name as the engine knows it.
    pub model: String,
    /// Program and arguments. The program is found on the host's engine path; `${port}` and `${weights}` are
    /// filled in by denvd.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub weights: Option<Weights>,
    pub probe: Probe,
    pub metrics_path: Option<String>,
    pub start_timeout: Period,
    pub stop_timeout: Period,
    /// Indices of the accelerators that are this member's.
    pub gpus: Vec<u32>,
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
            .field("gpus", &self.gpus)
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
        let flags = recipe.flags.iter().chain(&release.config.flags).cloned();
        let mut template = LaunchTemplate {
            engine: engine.kind,
            model: release.model.name.clone(),
            argv: engine.command.clone(),
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
            needs: release.topology.needs(),
            image: engine.image.clone(),
            adapter: recipe.adapter,
            kv_cache: release.kv_cache.clone(),
            topology: Some(&release.topology).filter(|topology| !is_plain(topology)).cloned(),
        };
        match engine.kind {
            EngineKind::LlamaCpp => llama_cpp::render(&mut template, release),
            EngineKind::Vllm => vllm::render(&mut template, release),
            EngineKind::Sglang => sglang::render(&mut template, release),
            EngineKind::TensorrtLlm => tensorrt_llm::render(&mut template, release),
            EngineKind::Command => command::render(&mut template, release),
        }
        template.argv.extend(flags);
        template
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }

    /// The template on the accelerators with these indices (none on a host of CPU slots).
    pub fn at(&self, gpus: &[u32]) -> LaunchSpec {
        let mut env = self.env.clone();
        if !gpus.is_empty() {
            let list = gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            env.insert("CUDA_VISIBLE_DEVICES".to_owned(), list);
        }
        LaunchSpec {
            model: self.model.clone(),
            argv: self.argv.clone(),
            env,
            weights: self.weights.clone(),
            probe: self.probe.clone(),
            metrics_path: self.metrics_path.clone(),
            start_timeout: self.start_timeout,
            stop_timeout: self.stop_timeout,
            gpus: gpus.to_vec(),
        }
    }
}

impl LaunchSpec {
    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }
}

/// One replica within one domain: its pool says all there is to say.
fn is_plain(topology: &Topology) -> bool {
    topology.mode == TopologyMode::Aggregated && topology.placement == PlacementRule::SameDomain
}

/// Adds `--flag value`.
fn flag(argv: &mut Vec<String>, flag: &str, value: impl ToString) {
    argv.push(flag.to_owned());
    argv.push(value.to_string());
}

#[cfg(test)]
mod tests;
