use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Period;
use crate::{Digest, Name};

/// An inference engine at a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineSpec {
    /// Which engine: it decides how a release becomes flags.
    pub kind: EngineKind,
    /// For people: which version `command` starts.
    pub version: String,
    /// The program and its first arguments, found on the host's engine path. The kinds `llama-cpp` and `vllm` add
    /// the release's flags; for `command` it is the whole command, with `${port}`, `${weights}` and `${model}`
    /// filled in.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// llama.cpp's `llama-server`.
    LlamaCpp,
    /// vLLM's `vllm serve`.
    Vllm,
    /// Any program that answers `GET /health` with 200 and serves the OpenAI API on its port.
    Command,
}

/// A tested combination of model, engine, hardware and flags.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecipeSpec {
    /// The model this combination was tested with.
    pub model: String,
    /// The Engine this combination was tested with.
    pub engine: Name,
    /// The hardware this combination was tested on.
    pub hardware: Hardware,
    /// Flags added to the engine's command as they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Environment variables of the engine. A value that begins with `env:` or `file:` is a reference, resolved by
    /// denvd when it starts the engine: `env:NAME` is denvd's own variable of that name (not one of its own
    /// settings, `DENV_…`), `file:/path` is what that file on the host holds, without the line break at its end. A
    /// secret is always a reference.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How long a member may take from its start command to its first passed health check.
    #[serde(default = "default_start_timeout")]
    pub start_timeout: Period,
    /// How long the engine has to end after SIGTERM before SIGKILL.
    #[serde(default = "default_stop_timeout")]
    pub stop_timeout: Period,
}

impl fmt::Debug for RecipeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecipeSpec")
            .field("model", &self.model)
            .field("engine", &self.engine)
            .field("hardware", &self.hardware)
            .field("flags", &self.flags)
            .field("env", &NamesOnly(&self.env))
            .field("start_timeout", &self.start_timeout)
            .field("stop_timeout", &self.stop_timeout)
            .finish()
    }
}

/// Variables as `Debug` shows them: a value may be a secret that nobody recognised.
pub(crate) struct NamesOnly<'a>(pub(crate) &'a BTreeMap<String, String>);

impl fmt::Debug for NamesOnly<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn default_start_timeout() -> Period {
    Period::from_secs(600)
}

fn default_stop_timeout() -> Period {
    Period::from_secs(30)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hardware {
    /// Must be the fleet's `accelerator`.
    pub accelerator: Name,
}

/// Weights, engine, recipe, topology and config: immutable once deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseSpec {
    /// The model it serves.
    pub model: Model,
    /// The Engine that serves it: the recipe's.
    pub engine: Name,
    /// The Recipe it follows.
    pub recipe: Name,
    /// How accelerators are used.
    pub topology: Topology,
    /// Settings of the engine.
    #[serde(default)]
    pub config: EngineConfig,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// The model's name as the engine knows it: the recipe's `model`.
    pub name: String,
    /// The file that holds the weights. Without it, the engine finds them by the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Weights {
    /// `file:` and a path: relative to the host's weights folder, or absolute on the host.
    #[schemars(
        regex(pattern = r"^file:(/?[^/\s]\S*)$"),
        extend("patternErrorMessage" = "a source is `file:` and a path, without spaces: `file:model.gguf` or `file:/srv/model.gguf`")
    )]
    pub source: String,
    /// The file's SHA-256; it is verified before an engine sees the file.
    pub digest: Digest,
}

/// How a release's accelerators are used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// Whether prefill and decode share accelerators.
    pub mode: TopologyMode,
    /// What one serving unit takes: either `gpus` or, on hosts without them, `cpuSlots`.
    pub replica: Pool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyMode {
    /// Each replica does prefill and decode on the same accelerators.
    Aggregated,
}

/// What one replica takes: either `gpus` or, on hosts without them, `cpuSlots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// Accelerators of one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub gpus: Option<u32>,
    /// CPU slots of one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub cpu_slots: Option<u32>,
    /// How the model is spread over the accelerators; the degrees multiply to `gpus`.
    #[serde(default)]
    pub parallelism: Parallelism,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parallelism {
    /// Each layer is split this many ways.
    #[schemars(range(min = 1))]
    pub tensor: u32,
    /// The layers stand in this many groups, one after the other.
    #[schemars(range(min = 1))]
    pub pipeline: u32,
    /// The model stands side by side this many times.
    #[schemars(range(min = 1))]
    pub data: u32,
}

impl Default for Parallelism {
    fn default() -> Self {
        Parallelism { tensor: 1, pipeline: 1, data: 1 }
    }
}

impl Parallelism {
    /// How many accelerators these degrees use together.
    pub fn world_size(self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.data)
    }
}

/// Settings that every engine kind knows, turned into the engine's own flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Tokens of prompt and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_model_len: Option<u32>,
    /// Requests that one replica works on at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_concurrent_requests: Option<u32>,
    /// Flags added last, as they stand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
}
