//! What the two members of a unit are asked for one request, where one reads the prompt and the other writes the answer.

use std::borrow::Cow;

use bytes::Bytes;
use denv_schema::launch::HandOver;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{ChatRequest, Edit, place, quoted, spliced};

/// A request in two halves, one for each pool.
#[derive(Debug)]
pub enum Halves {
    /// Both pools are asked the same at once. The decode pool's answer is the answer.
    AtOnce(Bytes),
    /// The prefill pool is asked first; its answer says what the decode pool is asked.
    InTurn { first: Bytes, then: Then },
}

/// What the prefill pool's answer is read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Vllm,
    TensorrtLlm { room: u64 },
}

/// What becomes of a field of the request. A client has no say in these: they name addresses that engines connect to, and
/// caches that may be another client's.
enum Put {
    /// It is put there, whether it was there or not.
    Always(&'static str, Vec<u8>),
    /// It is put in the place of what is there.
    Instead(&'static str, &'static [u8]),
}

impl ChatRequest {
    /// The halves for engines that know the model as `model`. `room` is a number that no other request has.
    pub fn halves(&self, model: &str, hand_over: &HandOver, room: u64) -> Halves {
        let whole_at_once = [
            Put::Always("stream", b"false".to_vec()),
            Put::Instead("stream_options", b"null"),
            // One prompt is read, for however many answers.
            Put::Instead("n", b"1"),
        ];
        match hand_over {
            HandOver::Sglang { bootstrap_host, bootstrap_port } => {
                let put = [
                    Put::Always("bootstrap_host", quoted(bootstrap_host)),
                    Put::Always("bootstrap_port", bootstrap_port.to_string().into_bytes()),
                    Put::Always("bootstrap_room", room.to_string().into_bytes()),
                ];
                Halves::AtOnce(self.with(model, self.usage_wish(), put))
            }
            HandOver::Vllm {} => {
                let wanted = br#"{"do_remote_decode":true,"do_remote_prefill":false}"#;
                let one_token = [
                    Put::Always("max_tokens", b"1".to_vec()),
                    Put::Instead("max_completion_tokens", b"1"),
                    Put::Instead("min_tokens", b"0"),
                    Put::Always("kv_transfer_params", wanted.to_vec()),
                ];
                let first = self.with(model, None, whole_at_once.into_iter().chain(one_token));
                Halves::InTurn { first, then: Then::Vllm }
            }
            HandOver::TensorrtLlm {} => {
                let wanted = json!({"request_type": "context_only", "disagg_request_id": room});
                let wanted = Put::Always("disaggregated_params", wanted.to_string().into_bytes());
                let first = self.with(model, None, whole_at_once.into_iter().chain([wanted]));
                Halves::InTurn { first, then: Then::TensorrtLlm { room } }
            }
        }
    }

    /// What the decode pool is asked after the prefill pool has given `answer`. An answer that was over with its first token
    /// hands nothing over, and then the decode pool, which can, does all.
    pub fn second_half(&self, model: &str, then: Then, answer: &[u8]) -> serde_json::Result<Bytes> {
        let put = match then {
            Then::Vllm => {
                let handed = serde_json::from_slice::<VllmAnswer<'_>>(answer)?.kv_transfer_params;
                vec![Put::Always("kv_transfer_params", raw(handed))]
            }
            Then::TensorrtLlm { room } => {
                let TensorrtLlmAnswer { choices, prompt_token_ids } = serde_json::from_slice(answer)?;
                let is_over = |choice: &Choice| !matches!(&*choice.finish_reason, "length" | "not_finished");
                match choices.into_iter().next().filter(|choice| !is_over(choice)) {
                    Some(Choice { disaggregated_params: mut handed, .. }) => {
                        handed.insert("request_type".to_owned(), "generation_only".into());
                        handed.insert("disagg_request_id".to_owned(), room.into());
                        let handed = Value::Object(handed).to_string().into_bytes();
                        vec![
                            Put::Always("disaggregated_params", handed),
                            Put::Always("prompt_token_ids", raw(prompt_token_ids)),
                        ]
                    }
                    None => vec![Put::Always("disaggregated_params", raw(None))],
                }
            }
        };
        Ok(self.with(model, self.usage_wish(), put))
    }

    /// The body with these fields, and the model's name and the wish for usage as always.
    fn with(&self, model: &str, usage: Option<Edit>, put: impl IntoIterator<Item = Put>) -> Bytes {
        let Fields(fields) = serde_json::from_slice(&self.body).expect("it was read as an object before");
        let mut edits: Vec<_> = self.renamed(model).into_iter().chain(usage).collect();
        // The object holds at least `model`, so what is put first is followed by something.
        let front = self.front();
        for put in put {
            let (name, value) = match &put {
                Put::Always(name, value) => (*name, value.as_slice()),
                Put::Instead(name, value) => (*name, *value),
            };
            // All of that name: of several, engines take the last.
            let there = fields.iter().filter(|(key, _)| key == name);
            let before = edits.len();
            edits.extend(there.map(|(_, at)| (place(&self.body, at), value.to_vec())));
            if edits.len() == before && matches!(put, Put::Always(..)) {
                edits.push((front..front, [b"\"", name.as_bytes(), b"\":", value, b","].concat()));
            }
        }
        spliced(&self.body, edits)
    }
}

fn raw(value: Option<&RawValue>) -> Vec<u8> {
    value.map_or("null", RawValue::get).as_bytes().to_vec()
}

#[derive(serde::Deserialize)]
struct VllmAnswer<'a> {
    #[serde(borrow, default)]
    kv_transfer_params: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct TensorrtLlmAnswer<'a> {
    choices: Vec<Choice>,
    #[serde(borrow, default)]
    prompt_token_ids: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Choice {
    #[serde(default)]
    finish_reason: String,
    #[serde(default)]
    disaggregated_params: Map<String, Value>,
}

/// The fields of an object as they stand there, the same name as often as it does.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                #[derive(serde::Deserialize)]
                struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
                let mut fields = Vec::new();
                while let Some((Key(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object).map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(body: &str) -> ChatRequest {
        ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn json_of(body: &[u8]) -> Value {
        serde_json::from_slice(body).unwrap()
    }

    fn in_turn(request: &ChatRequest, hand_over: &HandOver) -> (Value, Then) {
        match request.halves("e", hand_over, 7) {
            Halves::InTurn { first, then } => (json_of(&first), then),
            Halves::AtOnce(_) => panic!("{hand_over:?} is in turn"),
        }
    }

    #[test]
    fn vllm_reads_for_one_token_and_is_given_what_it_handed_over() {
        let request = parse(
            r#"{"model":"m","messages":[],"stream":true,"stream_options":{"x":1},"max_completion_tokens":900,"min_tokens":3,
                "n":2,"kv_transfer_params":{"remote_host":"10.0.0.9"}}"#,
        );
        let (first, then) = in_turn(&request, &HandOver::Vllm {});
        let wanted = json!({
            "max_tokens": 1, "model": "e", "messages": [], "stream": false, "stream_options": null,
            "max_completion_tokens": 1, "min_tokens": 0, "n": 1,
            "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false},
        });
        assert_eq!(first, wanted);

        let answer =
            br#"{"choices":[],"kv_transfer_params":{"remote_block_ids":[1, 2],"big":18446744073709551616}}"#;
        let second = request.second_half("e", then, answer).unwrap();
        let text = String::from_utf8(second.to_vec()).unwrap();
        assert!(
            text.contains(r#""kv_transfer_params":{"remote_block_ids":[1, 2],"big":18446744073709551616}"#)
        );
        assert!(!text.contains("10.0.0.9"), "a client names no address that an engine connects to: {text}");
        let second = json_of(&second);
        assert_eq!((&second["max_completion_tokens"], &second["n"]), (&json!(900), &json!(2)));
        assert_eq!(second["stream_options"], json!({"include_usage": true, "x": 1}));

        let over = request.second_half("e", then, br#"{"choices":[]}"#).unwrap();
        assert_eq!(
            json_of(&over)["kv_transfer_params"],
            Value::Null,
            "the decode pool reads the prompt itself"
        );
        assert!(request.second_half("e", then, b"<html>").is_err());
    }

    #[test]
    fn sglang_asks_both_the_same_in_one_room() {
        let hand_over = HandOver::Sglang { bootstrap_host: "10.0.0.1".to_owned(), bootstrap_port: 8998 };
        let request =
            parse(r#"{"model":"m","stream":true,"bootstrap_host":"evil","bootstrap\u005fhost":"evil"}"#);
        let Halves::AtOnce(body) = request.halves("m", &hand_over, 7) else { panic!("at once") };
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(!text.contains("evil"), "{text}");
        let wanted = json!({
            "bootstrap_host": "10.0.0.1", "bootstrap_port": 8998, "bootstrap_room": 7, "model": "m", "stream": true,
            "stream_options": {"include_usage": true},
        });
        assert_eq!(json_of(&body), wanted);
    }

    #[test]
    fn tensorrt_llm_reads_the_context_and_is_given_its_tokens() {
        let request = parse(r#"{"model":"m","messages":[],"max_tokens":9}"#);
        let (first, then) = in_turn(&request, &HandOver::TensorrtLlm {});
        let wanted = json!({
            "model": "e", "messages": [], "max_tokens": 9, "stream": false,
            "disaggregated_params": {"request_type": "context_only", "disagg_request_id": 7},
        });
        assert_eq!(first, wanted);

        let handed = json!({"request_type": "context_only", "first_gen_tokens": [5], "ctx_request_id": 3});
        let choice = json!({"finish_reason": "length", "disaggregated_params": handed});
        let answer = json!({"choices": [choice], "prompt_token_ids": [1, 2, 3]}).to_string();
        let second = json_of(&request.second_half("e", then, answer.as_bytes()).unwrap());
        let wanted = json!({
            "model": "e", "messages": [], "max_tokens": 9, "prompt_token_ids": [1, 2, 3],
            "disaggregated_params": {
                "request_type": "generation_only", "first_gen_tokens": [5], "ctx_request_id": 3, "disagg_request_id": 7,
            },
        });
        assert_eq!(second, wanted);

        // It had no more to say: the other does it all, and says the same.
        let answer = json!({"choices": [{"finish_reason": "stop"}]}).to_string();
        let second = json_of(&request.second_half("e", then, answer.as_bytes()).unwrap());
        assert_eq!(second["disaggregated_params"], Value::Null);
    }

    proptest! {
        #[test]
        fn nothing_else_of_the_request_changes(extra in ".{0,20}", stream: bool, max in prop::option::of(1u32..99)) {
            let mut value = json!({"before": extra, "model": "m", "stream": stream, "messages": [extra]});
            if let Some(max) = max {
                value["max_tokens"] = max.into();
            }
            let request = parse(&value.to_string());
            let (mut first, then) = in_turn(&request, &HandOver::Vllm {});
            prop_assert_eq!(first.as_object_mut().unwrap().remove("max_tokens"), Some(json!(1)));
            first.as_object_mut().unwrap().remove("kv_transfer_params");
            let mut wanted = value.clone();
            wanted.as_object_mut().unwrap().remove("max_tokens");
            wanted["model"] = "e".into();
            wanted["stream"] = false.into();
            prop_assert_eq!(first, wanted);

            let second = request.second_half("e", then, br#"{"kv_transfer_params":{"a":1}}"#).unwrap();
            let mut wanted = value;
            wanted["model"] = "e".into();
            wanted["kv_transfer_params"] = json!({"a": 1});
            if stream {
                wanted["stream_options"] = json!({"include_usage": true});
            }
            prop_assert_eq!(json_of(&second), wanted);
        }
    }
}
