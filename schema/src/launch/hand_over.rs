//! How an engine's prefill pool gives what it has read to a decode pool, where it leaves it to the one who asks to bring
//! the two together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
