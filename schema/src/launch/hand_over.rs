//! How an engine's prefill pool gives what it has read to a decode pool, where it leaves it to the one who asks to bring
//! the two together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What the two pools of a unit must be told of each other, in a request's body.
///
/// Source: vLLM 0.32, `docs/features/nixl_connector_usage.md` and its toy proxy; SGLang 0.5, "PD Disaggregation"; TensorRT-LLM
/// 1.2, `tensorrt_llm/serve/openai_disagg_service.py`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HandOver {
    /// The prefill pool is asked first, for one token, and answers with `kv_transfer_params`, which the decode pool is
    /// given. The cache is kept for 30 s.
    Vllm {},
    /// Both are asked at once, and find each other in a room that the request names.
    Sglang {
        /// Where the prefill pool tells who has a prompt's cache.
        bootstrap_host: String,
        bootstrap_port: u16,
    },
    /// The prefill pool is asked first, for the context only, and answers with `disaggregated_params` and the prompt's
    /// tokens, which the decode pool is given.
    TensorrtLlm {},
}

/// A field that one half of a request has otherwise than the request itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: &'static str,
    pub value: Value,
    /// Only where the request has it.
    pub only_there: bool,
}

fn always(name: &'static str, value: impl Into<Value>) -> Field {
    Field { name, value: value.into(), only_there: false }
}

fn instead(name: &'static str, value: impl Into<Value>) -> Field {
    Field { name, value: value.into(), only_there: true }
}

impl HandOver {
    /// Whether the prefill pool is asked first; else both are asked the same at once.
    pub fn is_in_turn(&self) -> bool {
        match self {
            HandOver::Vllm {} | HandOver::TensorrtLlm {} => true,
            HandOver::Sglang { .. } => false,
        }
    }

    /// What the prefill pool is asked. `room` is a number that no other request has. No client has a say in these: they
    /// name addresses that engines connect to, and caches that may be another's.
    pub fn first(&self, room: u64) -> Vec<Field> {
        // One prompt is read, in one piece, for however many answers.
        let read = [always("stream", false), instead("stream_options", Value::Null), instead("n", 1)];
        let more = match self {
            HandOver::Sglang { bootstrap_host, bootstrap_port } => {
                return vec![
                    always("bootstrap_host", bootstrap_host.as_str()),
                    always("bootstrap_port", *bootstrap_port),
                    always("bootstrap_room", room),
                ];
            }
            HandOver::Vllm {} => vec![
                always("max_tokens", 1),
                instead("max_completion_tokens", 1),
                instead("min_tokens", 0),
                always("kv_transfer_params", json!({"do_remote_decode": true, "do_remote_prefill": false})),
            ],
            HandOver::TensorrtLlm {} => {
                let wanted = json!({"request_type": "context_only", "disagg_request_id": room});
                vec![always("disaggregated_params", wanted)]
            }
        };
        read.into_iter().chain(more).collect()
    }

    /// What the decode pool is asked after the prefill pool has given `answer`. An answer that was over with its first token
    /// hands nothing over, and then the decode pool, which can, does all.
    pub fn second(&self, room: u64, answer: &[u8]) -> serde_json::Result<Vec<Field>> {
        Ok(match self {
            HandOver::Sglang { .. } => self.first(room),
            HandOver::Vllm {} => {
                let answer: VllmAnswer = serde_json::from_slice(answer)?;
                vec![always("kv_transfer_params", answer.kv_transfer_params)]
            }
            HandOver::TensorrtLlm {} => {
                let TensorrtLlmAnswer { choices, prompt_token_ids } = serde_json::from_slice(answer)?;
                let goes_on = |choice: &Choice| matches!(&*choice.finish_reason, "length" | "not_finished");
                let Some(choice) = choices.into_iter().next().filter(goes_on) else {
                    return Ok(vec![always("disaggregated_params", Value::Null)]);
                };
                let mut handed = choice.disaggregated_params;
                handed.insert("request_type".to_owned(), "generation_only".into());
                handed.insert("disagg_request_id".to_owned(), room.into());
                vec![always("disaggregated_params", handed), always("prompt_token_ids", prompt_token_ids)]
            }
        })
    }
}

#[derive(Deserialize)]
struct VllmAnswer {
    #[serde(default)]
    kv_transfer_params: Value,
}

#[derive(Deserialize)]
struct TensorrtLlmAnswer {
    choices: Vec<Choice>,
    #[serde(default)]
    prompt_token_ids: Value,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    finish_reason: String,
    #[serde(default)]
    disaggregated_params: Map<String, Value>,
}
