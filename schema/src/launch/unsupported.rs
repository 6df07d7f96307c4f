//! What a release may ask for and can't be started with. It is said before anything moves, never started as something else.

use std::fmt;

use super::{LaunchTemplate, command, llama_cpp, sglang, tensorrt_llm, vllm};
use crate::manifest::EngineKind;

/// Why a release can't be started as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// An engine in a container image.
    Image,
    /// Weights that are not on the host.
    Weights,
    /// Its engine can't do it. Validation refuses this; a release that is in force from before may have it.
    Engine(EngineLimit),
}

/// What an engine can't do of what a release asks, or can't be told by flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineLimit {
    /// The release's field that asks for it, as a JSON pointer.
    pub field: String,
    pub reason: String,
    /// What to write instead.
    pub remedy: &'static str,
}

impl EngineLimit {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>, remedy: &'static str) -> Self {
        EngineLimit { field: field.into(), reason: reason.into(), remedy }
    }
}

impl LaunchTemplate {
    /// Whether, and why not, denv can start this.
    pub fn unsupported(&self) -> Option<Unsupported> {
        if self.image.is_some() {
            return Some(Unsupported::Image);
        }
        if self.weights.as_ref().is_some_and(|weights| !weights.is_on_host()) {
            return Some(Unsupported::Weights);
        }
        self.limits().into_iter().next().map(Unsupported::Engine)
    }

    /// Everything in which the release asks too much of its engine.
    pub fn limits(&self) -> Vec<EngineLimit> {
        match self.engine {
            EngineKind::LlamaCpp => llama_cpp::limits(self),
            EngineKind::Vllm => vllm::limits(self),
            EngineKind::Sglang => sglang::limits(self),
            EngineKind::TensorrtLlm => tensorrt_llm::limits(self),
            EngineKind::Command => command::limits(self),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Image => f.write_str(
                "denv does not start engines from images yet; install the engine on the hosts and leave out `image`",
            ),
            Unsupported::Weights => {
                f.write_str("denv does not fetch weights yet; put them on the hosts and name them as `file:`")
            }
            Unsupported::Engine(limit) => write!(f, "{}; {}", limit.reason, limit.remedy),
        }
    }
}
