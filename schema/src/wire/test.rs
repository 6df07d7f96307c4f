//! A parity suite's prompts on their way to an engine, and its answers on their way back. A test changes nothing, so
//! it may run twice; no journal keeps it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Generation;
use crate::launch::Field;
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
    /// Fields that the request has beside these, or in their place.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub beside: Map<String, Value>,
    /// Whether the whole of what is answered is wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

impl From<&ParityCase> for Prompt {
    fn from(case: &ParityCase) -> Self {
        let ParityCase { name, messages, tools, max_tokens, .. } = case;
        Prompt {
            case: name.clone(),
            messages: messages.clone(),
            tools: tools.clone(),
            max_tokens: *max_tokens,
            beside: Map::new(),
            whole: false,
        }
    }
}

impl Prompt {
    /// The same, with fields as one half of a request to two pools has them.
    #[must_use]
    pub fn with(&self, fields: Vec<Field>) -> Self {
        let there = self.request("");
        let fields = fields.into_iter().filter(|field| !field.only_there || there.get(field.name).is_some());
        let beside = fields.map(|field| (field.name.to_owned(), field.value)).collect();
        Prompt { beside, ..self.clone() }
    }

    /// The body of the chat completions request that asks it.
    pub fn request(&self, model: &str) -> Value {
        let mut body = json!({
            "model": model, "messages": self.messages, "max_tokens": self.max_tokens, "temperature": 0, "stream": false,
        });
        if !self.tools.is_empty() {
            let tools = self.tools.iter().map(|tool| json!({ "type": "function", "function": tool }));
            body["tools"] = tools.collect();
        }
        for (name, value) in &self.beside {
            body[name] = value.clone();
        }
        body
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TestResult {
    pub id: TestId,
    pub answers: BTreeMap<Name, CaseAnswer>,
    /// The whole of what was answered to prompts that ask for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bodies: BTreeMap<Name, String>,
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

const LONGEST_MESSAGE: usize = 500;

impl Said {
    /// What a chat completions server answered.
    pub fn read(status: u16, body: &[u8]) -> Self {
        if status != 200 {
            return Said::Error { status, message: message(body) };
        }
        let unreadable = |reason: &str| Said::Unreadable { reason: reason.to_owned() };
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return unreadable("it is no JSON") };
        let choice = &body["choices"][0];
        let Some(message) = choice["message"].as_object() else { return unreadable("it holds no message") };
        let text = message.get("content").and_then(Value::as_str).unwrap_or_default().to_owned();
        if text.len() > LONGEST_ANSWER {
            return Said::Unreadable { reason: format!("it is longer than {LONGEST_ANSWER} bytes") };
        }
        let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        let tool_calls = calls.map(|call| {
            let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
            // Some engines write arguments as JSON itself, not as a text of it.
            let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
            ToolCall { name: name.as_str().unwrap_or_default().to_owned(), arguments }
        });
        Said::Answer(Answer {
            text,
            tool_calls: tool_calls.collect(),
            finish_reason: choice["finish_reason"].as_str().map(str::to_owned),
        })
    }
}

/// What an error says, in whichever form.
fn message(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let said = json.as_ref().and_then(|json| {
        [&json["error"]["message"], &json["message"], &json["error"], &json["detail"]]
            .into_iter()
            .find_map(Value::as_str)
    });
    let text = said.map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned);
    text.trim().chars().take(LONGEST_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_asks_in_openais_words() {
        let prompt: Prompt = serde_json::from_value(json!({
            "case": "weather", "messages": [{"role": "user", "content": "Weather?"}], "maxTokens": 9,
            "tools": [{"name": "weather", "parameters": {"type": "object"}}]
        }))
        .unwrap();
        insta::assert_snapshot!(prompt.request("m"), @r#"{"model":"m","messages":[{"role":"user","content":"Weather?"}],"max_tokens":9,"temperature":0,"stream":false,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]}"#);
    }

    #[test]
    fn answers_are_read_as_engines_write_them() {
        let llama = r#"{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":"raum"}}]}"#;
        let Said::Answer(answer) = Said::read(200, llama.as_bytes()) else { panic!("an answer") };
        assert_eq!((answer.text.as_str(), answer.finish_reason.as_deref()), ("raum", Some("length")));
        let vllm = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Paris\"}"}}]},"finish_reason":"tool_calls"}]}"#;
        let Said::Answer(answer) = Said::read(200, vllm.as_bytes()) else { panic!("an answer") };
        assert_eq!(answer.tool_calls[0].arguments, r#"{"city": "Paris"}"#);
        let error = r#"{"error":{"message":"too many tokens","code":400}}"#;
        assert_eq!(
            Said::read(400, error.as_bytes()),
            Said::Error { status: 400, message: "too many tokens".to_owned() }
        );
        for bad in ["", "[]", "{}", r#"{"choices":[]}"#] {
            assert!(matches!(Said::read(200, bad.as_bytes()), Said::Unreadable { .. }), "{bad}");
        }
        let long = json!({"choices": [{"message": {"content": "x".repeat(LONGEST_ANSWER + 1)}}]}).to_string();
        assert!(matches!(Said::read(200, long.as_bytes()), Said::Unreadable { .. }));
    }
}
