//! What the two members of a unit are asked for one request, where one reads the prompt and the other writes the answer.

use std::borrow::Cow;

use bytes::Bytes;
use denv_schema::launch::{Field, HandOver};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{ChatRequest, Edit, place, spliced};

/// A request in two halves, one for each pool.
#[derive(Debug)]
pub enum Halves {
    /// Both pools are asked the same at once. The decode pool's answer is the answer.
    AtOnce(Bytes),
    /// The prefill pool is asked first; its answer says what the decode pool is asked.
    InTurn(Bytes),
}

impl ChatRequest {
    /// The halves for engines that know the model as `model`. `room` is a number that no other request has.
    pub fn halves(&self, model: &str, hand_over: &HandOver, room: u64) -> Halves {
        let fields = hand_over.first(room);
        if hand_over.is_in_turn() {
            Halves::InTurn(self.with(model, None, fields))
        } else {
            Halves::AtOnce(self.with(model, self.usage_wish(), fields))
        }
    }

    /// What the decode pool is asked after the prefill pool has given `answer`.
    pub fn second_half(
        &self,
        model: &str,
        hand_over: &HandOver,
        room: u64,
        answer: &[u8],
    ) -> serde_json::Result<Bytes> {
        Ok(self.with(model, self.usage_wish(), hand_over.second(room, answer)?))
    }

    /// The body with these fields, and the model's name and the wish for usage as always.
    fn with(&self, model: &str, usage: Option<Edit>, put: Vec<Field>) -> Bytes {
        let Fields(fields) = serde_json::from_slice(&self.body).expect("it was read as an object before");
        let mut edits: Vec<_> = self.renamed(model).into_iter().chain(usage).collect();
        // The object holds at least `model`, so what is put first is followed by something.
        let front = self.front();
        for Field { name, value, only_there } in put {
            let value = value.to_string().into_bytes();
            // All of that name: of several, engines take the last.
            let there = fields.iter().filter(|(key, _)| key == name);
            let before = edits.len();
            edits.extend(there.map(|(_, at)| (place(&self.body, at), value.clone())));
            if edits.len() == before && !only_there {
                edits.push((front..front, [b"\"", name.as_bytes(), b"\":", &value, b","].concat()));
            }
        }
        spliced(&self.body, edits)
    }
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
    use serde_json::{Value, json};

    use super::*;

    const ROOM: u64 = 7;

    fn parse(body: &str) -> ChatRequest {
        ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn json_of(body: &[u8]) -> Value {
        serde_json::from_slice(body).unwrap()
    }

    fn first(request: &ChatRequest, hand_over: &HandOver) -> Value {
        match request.halves("e", hand_over, ROOM) {
            Halves::InTurn(first) => json_of(&first),
            Halves::AtOnce(_) => panic!("{hand_over:?} is in turn"),
        }
    }

    #[test]
    fn vllm_reads_for_one_token_and_is_given_what_it_handed_over() {
        let request = parse(
            r#"{"model":"m","messages":[],"stream":true,"stream_options":{"x":1},"max_completion_tokens":900,"min_tokens":3,
                "n":2,"kv_transfer_params":{"remote_host":"10.0.0.9"}}"#,
        );
        let vllm = HandOver::Vllm {};
        let wanted = json!({
            "max_tokens": 1, "model": "e", "messages": [], "stream": false, "stream_options": null,
            "max_completion_tokens": 1, "min_tokens": 0, "n": 1,
            "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false},
        });
        assert_eq!(first(&request, &vllm), wanted);

        let answer =
            br#"{"choices":[],"kv_transfer_params":{"remote_block_ids":[1,2],"big":18446744073709551615}}"#;
        let second = request.second_half("e", &vllm, ROOM, answer).unwrap();
        let text = String::from_utf8(second.to_vec()).unwrap();
        assert!(
            text.contains(r#""kv_transfer_params":{"remote_block_ids":[1,2],"big":18446744073709551615}"#)
        );
        assert!(!text.contains("10.0.0.9"), "a client names no address that an engine connects to: {text}");
        let second = json_of(&second);
        assert_eq!((&second["max_completion_tokens"], &second["n"]), (&json!(900), &json!(2)));
        assert_eq!(second["stream_options"], json!({"include_usage": true, "x": 1}));

        let over = request.second_half("e", &vllm, ROOM, br#"{"choices":[]}"#).unwrap();
        assert_eq!(
            json_of(&over)["kv_transfer_params"],
            Value::Null,
            "the decode pool reads the prompt itself"
        );
        assert!(request.second_half("e", &vllm, ROOM, b"<html>").is_err());
    }

    #[test]
    fn sglang_asks_both_the_same_in_one_room() {
        let hand_over = HandOver::Sglang { bootstrap_host: "10.0.0.1".to_owned(), bootstrap_port: 8998 };
        let request =
            parse(r#"{"model":"m","stream":true,"bootstrap_host":"evil","bootstrap\u005fhost":"evil"}"#);
        let Halves::AtOnce(body) = request.halves("m", &hand_over, ROOM) else { panic!("at once") };
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
        let trt = HandOver::TensorrtLlm {};
        let wanted = json!({
            "model": "e", "messages": [], "max_tokens": 9, "stream": false,
            "disaggregated_params": {"request_type": "context_only", "disagg_request_id": 7},
        });
        assert_eq!(first(&request, &trt), wanted);

        let handed = json!({"request_type": "context_only", "first_gen_tokens": [5], "ctx_request_id": 3});
        let choice = json!({"finish_reason": "length", "disaggregated_params": handed});
        let answer = json!({"choices": [choice], "prompt_token_ids": [1, 2, 3]}).to_string();
        let second = json_of(&request.second_half("e", &trt, ROOM, answer.as_bytes()).unwrap());
        let wanted = json!({
            "model": "e", "messages": [], "max_tokens": 9, "prompt_token_ids": [1, 2, 3],
            "disaggregated_params": {
                "request_type": "generation_only", "first_gen_tokens": [5], "ctx_request_id": 3, "disagg_request_id": 7,
            },
        });
        assert_eq!(second, wanted);

        // It had no more to say: the other does it all, and says the same.
        let answer = json!({"choices": [{"finish_reason": "stop"}]}).to_string();
        let second = json_of(&request.second_half("e", &trt, ROOM, answer.as_bytes()).unwrap());
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
            let vllm = HandOver::Vllm {};
            let mut first = first(&request, &vllm);
            prop_assert_eq!(first.as_object_mut().unwrap().remove("max_tokens"), Some(json!(1)));
            first.as_object_mut().unwrap().remove("kv_transfer_params");
            let mut wanted = value.clone();
            wanted.as_object_mut().unwrap().remove("max_tokens");
            wanted["model"] = "e".into();
            wanted["stream"] = false.into();
            prop_assert_eq!(first, wanted);

            let second = request.second_half("e", &vllm, ROOM, br#"{"kv_transfer_params":{"a":1}}"#).unwrap();
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
