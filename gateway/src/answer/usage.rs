use std::fmt;

use denv_schema::wire::TokenCounts;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The usage that an answer carries.
pub fn usage_of(json: &[u8]) -> Option<TokenCounts> {
    counts(serde_json::from_slice::<Answer>(json).ok()?.usage?)
}

/// More tokens than any request has: an engine that counts more has not counted. It also keeps every sum in range.
const MOST_TOKENS: u64 = 1 << 32;

/// A chunk's usage, and whether the chunk is there for nothing else.
pub(super) fn usage_of_chunk(json: &[u8]) -> Option<(TokenCounts, bool)> {
    let chunk = serde_json::from_slice::<Answer>(json).ok()?;
    let usage_only = chunk.choices.is_some_and(|choices| choices.0);
    Some((counts(chunk.usage?)?, usage_only))
}

fn counts(usage: Usage) -> Option<TokenCounts> {
    if usage.prompt_tokens.0.max(usage.completion_tokens.0) > MOST_TOKENS {
        return None;
    }
    let cached_input = usage.prompt_tokens_details.map_or(0, |details| details.cached_tokens.0);
    let reasoning = usage.completion_tokens_details.map_or(0, |details| details.reasoning_tokens.0);
    Some(TokenCounts {
        // An engine that counts more cached than there were is believed about the total.
        input: usage.prompt_tokens.0.saturating_sub(cached_input),
        cached_input: cached_input.min(usage.prompt_tokens.0),
        output: usage.completion_tokens.0,
        reasoning: reasoning.min(usage.completion_tokens.0),
    })
}

#[derive(serde::Deserialize)]
struct Answer {
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    choices: Option<IsEmpty>,
}

#[derive(serde::Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Usage {
    prompt_tokens: Count,
    completion_tokens: Count,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
}

/// A number of tokens, whatever an engine wrote for it: what is no number is none. One odd field does not cost the
/// others.
#[derive(Clone, Copy, Default)]
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lenient;
        impl<'de> Visitor<'de> for Lenient {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of tokens")
            }
            fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
                Ok(Count(count))
            }
            fn visit_i64<E>(self, count: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(count).unwrap_or(0)))
            }
            fn visit_f64<E>(self, count: f64) -> Result<Count, E> {
                // The cast saturates, and makes 0 of what is negative or not a number.
                Ok(Count(count as u64))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
                Ok(Count(0))
            }
            fn visit_str<E>(self, _: &str) -> Result<Count, E> {
                Ok(Count(0))
            }
            fn visit_unit<E>(self) -> Result<Count, E> {
                Ok(Count(0))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Count(0))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Count(0))
            }
        }
        deserializer.deserialize_any(Lenient)
    }
}

/// Whether a list is empty, without keeping what is in it.
struct IsEmpty(bool);

impl<'de> Deserialize<'de> for IsEmpty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = IsEmpty;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<IsEmpty, A::Error> {
                let mut empty = true;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    empty = false;
                }
                Ok(IsEmpty(empty))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(usage: &str) -> Option<TokenCounts> {
        usage_of(format!(r#"{{"choices":[{{"index":0}}],"usage":{usage},"id":"x"}}"#).as_bytes())
    }

    #[test]
    fn usage_of_real_engines() {
        let llama = r#"{"completion_tokens":6,"prompt_tokens":62,"total_tokens":68,
            "prompt_tokens_details":{"cached_tokens":61}}"#;
        let wanted = TokenCounts { input: 1, cached_input: 61, output: 6, reasoning: 0 };
        assert_eq!(counts_of(llama), Some(wanted));
        let vllm = r#"{"prompt_tokens":25,"total_tokens":31,"completion_tokens":6,
            "prompt_tokens_details":null,"completion_tokens_details":null}"#;
        let wanted = TokenCounts { input: 25, cached_input: 0, output: 6, reasoning: 0 };
        assert_eq!(counts_of(vllm), Some(wanted));
        let reasoning = r#"{"prompt_tokens":2,"completion_tokens":9,
            "completion_tokens_details":{"reasoning_tokens":7}}"#;
        let wanted = TokenCounts { input: 2, cached_input: 0, output: 9, reasoning: 7 };
        assert_eq!(counts_of(reasoning), Some(wanted));
    }

    #[test]
    fn odd_usage_is_read_as_far_as_it_goes() {
        let odd =
            r#"{"prompt_tokens":-3,"completion_tokens":7.0,"prompt_tokens_details":{"cached_tokens":"x"}}"#;
        let wanted = TokenCounts { input: 0, cached_input: 0, output: 7, reasoning: 0 };
        assert_eq!(counts_of(odd), Some(wanted));
        assert_eq!(counts_of(r#"{"prompt_tokens":3,"completion_tokens":1e30}"#), None);
        let more_cached = r#"{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}"#;
        let wanted = TokenCounts { input: 0, cached_input: 3, output: 0, reasoning: 0 };
        assert_eq!(counts_of(more_cached), Some(wanted));
        assert_eq!(counts_of("null"), None);
        assert_eq!(usage_of(b"{}"), None);
        assert_eq!(usage_of(b"not json"), None);
    }
}
