use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::topology::{KvCache, Topology};
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
    /// The container image that holds the engine, by digest: hosts run it with podman, and `command` is a program in it.
    /// Without it, `command` is found on the host's engine path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = r"^[a-z0-9][a-z0-9./:_-]*@sha256:[0-9a-f]{64}$"),
        extend("patternErrorMessage" = "an image is written by digest, since a tag may mean another tomorrow: `registry/name@sha256:…`")
    )]
    pub image: Option<String>,
    /// The program and its first arguments. All kinds but `command` add what the release means as flags. A placeholder like
    /// `${port}` is filled in for each member.
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
    /// SGLang's `python -m sglang.launch_server`.
    Sglang,
    /// TensorRT-LLM's `trtllm-serve`.
    TensorrtLlm,
    /// Any program that answers `GET /health` with 200 and serves the OpenAI API on its port. In a pool of several members
    /// it is the first that does; the others live.
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
    /// What turns requests of the APIs into the engine's, and its answers back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    /// Flags added to the engine's command as they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// Environment variables of the engine. A value that begins with `env:` or `file:` is a reference, resolved by
    /// denvd when it starts the engine: `env:NAME` is denvd's own variable of that name (not one of its own
    /// settings, `DENV_…`), `file:/path` is what that file on the host holds, without the line break at its end. A
    /// secret is always a reference.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How long a member may take from its start command to its first passed health check. Fetching weights from elsewhere comes
    /// on top.
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
            .field("adapter", &self.adapter)
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

/// What turns requests of the APIs into the engine's, and its answers back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Adapter {
    /// The engine's own OpenAI API, as it is.
    Openai,
    /// DeepSeek's published conversion of requests and answers.
    DeepseekRecipe,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hardware {
    /// Must be the fleet's `accelerator`.
    pub accelerator: Name,
}

/// Weights, engine, recipe, topology, KV cache and config: immutable once deployed.
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
    /// Where the KV cache is kept, and who shares it. Without it: in the accelerators' memory, each unit its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_cache: Option<KvCache>,
    /// Settings of the engine.
    #[serde(default)]
    pub config: EngineConfig,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// The model's name as the engine knows it: the recipe's `model`.
    pub name: String,
    /// The weights: a file, or a folder of them. Without it, the engine finds them by the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Weights {
    /// `file:` and a path: relative to the host's weights folder, or absolute on the host. Or where hosts fetch the weights
    /// from: `https://host/path` (a file), `s3://bucket/path` (a file, or all below), or `hf:owner/name`, perhaps with
    /// `@revision` (a model of Hugging Face).
    #[schemars(
        regex(pattern = r"^(file:/?[^/\s]\S*|s3://[a-z0-9][a-z0-9.-]+/[^\s?#]+|https?://[^\s/@]+/[^\s@]+|hf:[A-Za-z0-9._-]+/[A-Za-z0-9._-]+(@[A-Za-z0-9._-]+)?)$"),
        extend("patternErrorMessage" = "a source is `file:` and a path, without spaces: `file:model.gguf` or `file:/srv/model.gguf`; or it is like `s3://bucket/path`, `https://host/path` or `hf:owner/name`, without a user or password")
    )]
    pub source: String,
    /// The file's SHA-256, or of a folder, that of its listing: what `denv weights digest PATH` prints. It is verified before an
    /// engine sees anything.
    pub digest: Digest,
}

/// Of the source no more than [`Weights::place`].
impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights").field("source", &self.place()).field("digest", &self.digest).finish()
    }
}

impl Weights {
    /// Whether the weights are on the host already, rather than fetched from elsewhere.
    pub fn is_on_host(&self) -> bool {
        self.source.starts_with("file:")
    }

    /// The source as messages show it: what follows a `?` may be a signature, which lets others in.
    pub fn place(&self) -> &str {
        self.source.split('?').next().unwrap_or_default()
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
