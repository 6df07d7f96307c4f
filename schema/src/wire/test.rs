//! A parity suite's prompts on their way to an engine, and its answers on their way back. A test changes nothing, so
//! it may run twice; no journal keeps it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Generation, Term};
use crate::manifest::{ParityCase, ParityMessage, ParityTool};
use crate::quantity::Period;
use crate::{MemberId, Name};

/// Names one asking: the same prompts asked again have another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TestId(pub String);

impl std::fmt::Display for TestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Asks a host to put prompts to one of its engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestRequest {
    pub id: TestId,
    pub term: Term,
    pub member: MemberId,
    /// Another generation of the member is not asked.
    pub generation: Generation,
    /// The model's name as the engine knows it.
    pub model: String,
    /// How long one prompt may take.
    pub timeout: Period,
    pub prompts: Vec<Prompt>,
}

/// The most prompts that one request asks, so that neither it nor its result grows beyond a message.
pub const MOST_PROMPTS: usize = 64;
/// The longest text that an answer gives back, in bytes. A longer one is no answer.
pub const LONGEST_ANSWER: usize = 256 << 10;

/// What is asked of a model, with temperature 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    pub case: Name,
    pub messages: Vec<ParityMessage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ParityTool>,
    pub max_tokens: u32,
}

impl From<&ParityCase> for Prompt {
    fn from(case: &ParityCase) -> Self {
        let ParityCase { name, messages, tools, max_tokens, .. } = case;
        Prompt {
            case: name.clone(),
            messages: messages.clone(),
            tools: tools.clone(),
            max_tokens: *max_tokens,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestResult {
    pub id: TestId,
    pub answers: BTreeMap<Name, CaseAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaseAnswer {
    pub took_ms: u64,
    pub said: Said,
}

/// What came back on a prompt. Whose fault it is that no answer came is told apart here, where it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    Answer(Answer),
    /// The engine refused the prompt or failed on it.
    Error {
        status: u16,
        message: String,
    },
    /// The engine answered with something that is no answer.
    Unreadable {
        reason: String,
    },
    /// The engine lives and took longer than it may.
    TimedOut,
    /// The engine could not be reached, or ended meanwhile: this tells nothing of its answers.
    Away {
        reason: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    pub text: String,
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended, in the engine's word.
    pub finish_reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}
