//! What a release asks of its engine or hosts that not all can do. It is said before anything moves, never started as something else.

use std::fmt;

use super::{LaunchTemplate, command, llama_cpp, sglang, tensorrt_llm, vllm};
use crate::manifest::EngineKind;
use crate::wire::{Ability, Artifact};

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

/// An ability that a host must have to run a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNeed {
    pub ability: Ability,
    /// What to do where no host has it.
    pub remedy: &'static str,
}

const IMAGES: HostNeed = HostNeed {
    ability: Ability::Images,
    remedy: "no host there starts engines from images; install podman on the hosts and restart denvd, or install the engine there and leave out `image`",
};
const FETCH_WEIGHTS: HostNeed = HostNeed {
    ability: Ability::FetchWeights,
    remedy: "no host there fetches weights; upgrade denvd on the hosts, or put them there and name them as `file:`",
};

impl LaunchTemplate {
    /// What a host must be able to do to run this.
    pub fn asks(&self) -> impl Iterator<Item = HostNeed> {
        let fetches = self.weights.as_ref().is_some_and(|weights| !weights.is_on_host());
        self.image.iter().map(|_| IMAGES).chain(fetches.then_some(FETCH_WEIGHTS))
    }

    /// What hosts are to have before an engine is started from it.
    pub fn artifacts(&self) -> impl Iterator<Item = Artifact> {
        let image = self.image.clone().map(Artifact::Image);
        image.into_iter().chain(self.weights.clone().map(Artifact::Weights))
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

impl fmt::Display for EngineLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}
