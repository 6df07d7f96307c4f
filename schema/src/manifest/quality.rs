use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Name;
use crate::quantity::{Period, Share};
use crate::secret::SecretReference;

/// Golden prompts, and how a release's answers to them are judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParitySuiteSpec {
    /// Whose answers are the right ones, for cases that do not say what they `expect`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ParityReference>,
    /// How an answer is compared, for cases that do not say so themselves.
    #[serde(default)]
    pub comparison: Comparison,
    /// How many of the cases must pass.
    #[serde(default = "all")]
    pub passing: Share,
    /// How long one case may take.
    #[serde(default = "default_case_timeout")]
    pub timeout: Period,
    /// The prompts.
    #[schemars(length(min = 1, max = 10000))]
    pub cases: Vec<ParityCase>,
}

fn all() -> Share {
    Share::percent(100)
}

fn default_case_timeout() -> Period {
    Period::from_secs(60)
}

/// Whose answers are the right ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParityReference {
    /// What answers.
    pub kind: ReferenceKind,
    /// The Endpoint, of the kind `endpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Name>,
    /// The address of an OpenAI API, of the kind `api`: `https://` and a host, and where the API begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = r"^https://[^\s/@]+(/[^\s@]*)?$"),
        extend("patternErrorMessage" = "an address is `https://` and a host, without spaces and without a user or password")
    )]
    pub url: Option<String>,
    /// The API key there, of the kind `api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SecretReference>,
    /// The model to ask for there, of the kinds `endpoint` and `api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub model: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceKind {
    /// The release that the stage ran before.
    PreviousRelease,
    /// An Endpoint of this configuration.
    Endpoint,
    /// An API elsewhere, for example the model maker's own.
    Api,
}

/// How an answer is compared with the right one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Comparison {
    /// What counts as the same.
    pub kind: ComparisonKind,
    /// How many of the tokens must agree, of the kind `token-agreement`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Share>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonKind {
    /// Every character.
    Exact,
    /// The words: upper case, white space and punctuation at the ends do not matter.
    #[default]
    Normalized,
    /// The same JSON value, however it is written.
    JsonEqual,
    /// At least a share of the tokens, in their places.
    TokenAgreement,
}

/// One prompt, and the right answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParityCase {
    /// The case's name in reports; each is in the suite once.
    pub name: Name,
    /// The conversation, the last message the user's. It is sent with temperature 0.
    #[schemars(length(min = 1, max = 1000))]
    pub messages: Vec<ParityMessage>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ParityTool>,
    /// The most tokens that the answer may have.
    #[serde(default = "default_max_tokens")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: u32,
    /// The right answer. Without it: the reference's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expectation>,
    /// How it is compared. Without it: as the suite says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

fn default_max_tokens() -> u32 {
    256
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParityMessage {
    /// Who says it.
    pub role: MessageRole,
    /// What is said.
    pub content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MessageRole {
    System,
    User,
    Assistant,
}

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParityTool {
    /// The function's name.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its parameters, as a JSON Schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<FreeForm>,
}

/// The right answer: one of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// This text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// This JSON value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<FreeForm>,
    /// These calls of tools, in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub tool_calls: Option<Vec<ExpectedCall>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpectedCall {
    /// The function's name.
    pub name: String,
    /// Its arguments, all of them. Without it: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<FreeForm>,
}

/// A JSON value whose form is the writer's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeForm(pub serde_json::Map<String, serde_json::Value>);

/// Fields with values of this type, which hold what no schema of denv's says.
pub(crate) const FREE_FORM: [&str; 3] = ["parameters", "json", "arguments"];

impl JsonSchema for FreeForm {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "FreeForm".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}
