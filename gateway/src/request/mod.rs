//! What the gateway needs to know of a chat completions request, and the few bytes of it that it may replace.
//!
//! It owns the reading of request bodies. It refuses to know what the fields that it does not name mean: they
//! pass through as the client wrote them.

mod hand_over;

use std::borrow::Cow;
use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::kv_index::Prefix;

pub use hand_over::Halves;

/// A request's body with what was read of it, as places in the body.
#[derive(Debug)]
pub struct ChatRequest {
    body: Bytes,
    /// The model's name, its quotes included.
    model: Range<usize>,
    name: String,
    pub stream: bool,
    usage: UsageOption,
    messages: Range<usize>,
    /// What the prompt's tokens depend on beside the model and the messages, or what keeps its cache apart.
    frame: [Range<usize>; 3],
}

/// Whether the client asked for usage at the end of its stream, and if not, where to put the wish.
#[derive(Debug, PartialEq, Eq)]
enum UsageOption {
    Asked,
    /// Nothing the engine would understand: it may say so itself.
    Foreign,
    /// Put `"stream_options":{…},` here.
    Absent(usize),
    /// Put `"include_usage":true` here, and a comma if the object holds other options.
    Unmentioned {
        at: usize,
        alone: bool,
    },
    /// Replace this `false` or `null`.
    Declined(Range<usize>),
    /// Replace this `null`.
    Null(Range<usize>),
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the body is not the JSON object of a chat completions request: {0}")]
    Malformed(#[source] serde_json::Error),
    #[error("you must provide a `model` parameter")]
    NoModel,
    #[error("`{0}` has the wrong type")]
    WrongType(&'static str),
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    model: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    chat_template_kwargs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cache_salt: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    include_usage: Option<&'a RawValue>,
}

/// Unlike `Option`'s own way, `null` is something that is there, and has a place.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl ChatRequest {
    pub fn parse(body: Bytes) -> Result<Self, RequestError> {
        let fields: Fields<'_> = serde_json::from_slice(&body).map_err(RequestError::Malformed)?;
        let model = fields.model.filter(|raw| raw.get() != "null").ok_or(RequestError::NoModel)?;
        let name: Cow<'_, str> = text(model.get()).ok_or(RequestError::WrongType("model"))?;
        let stream = match fields.stream.map(RawValue::get) {
            None | Some("null" | "false") => false,
            Some("true") => true,
            Some(_) => return Err(RequestError::WrongType("stream")),
        };
        let usage = usage_option(&body, fields.stream_options);
        let there = |field: Option<&RawValue>| field.map_or(0..0, |raw| place(&body, raw));
        let frame = [fields.tools, fields.chat_template_kwargs, fields.cache_salt].map(there);
        let messages = there(fields.messages);
        let (name, model) = (name.into_owned(), place(&body, model));
        Ok(ChatRequest { model, name, stream, usage, messages, frame, body })
    }

    pub fn model(&self) -> &str {
        &self.name
    }

    /// A guess at the prompt's tokens for when the engine could not say: four bytes each, as English text has.
    pub fn estimated_input(&self) -> u64 {
        self.messages.len().div_ceil(4) as u64
    }

    /// The prompt, as caches of its keys and values know it: a conversation that goes on begins as it did before. Whoever salts
    /// its cache shares it with nobody.
    pub fn prefix(&self) -> Prefix {
        let frame = self.frame.iter().map(|range| &self.body[range.clone()]);
        Prefix::new([self.name.as_bytes()].into_iter().chain(frame), &self.body[self.messages.clone()])
    }

    /// Whether usage is asked for on the client's behalf, and must not reach it.
    pub fn hides_usage(&self) -> bool {
        self.stream && !matches!(self.usage, UsageOption::Asked | UsageOption::Foreign)
    }

    /// The body for an engine that knows the model as `model`: the client's own bytes but for the model's name,
    /// where the two differ, and the wish for usage, where a stream lacks it.
    pub fn body_for(&self, model: &str) -> Bytes {
        match (self.renamed(model), self.usage_wish()) {
            (None, None) => self.body.clone(),
            (rename, usage) => spliced(&self.body, rename.into_iter().chain(usage).collect()),
        }
    }

    fn renamed(&self, model: &str) -> Option<Edit> {
        (model != self.name).then(|| (self.model.clone(), quoted(model)))
    }

    fn usage_wish(&self) -> Option<Edit> {
        let (range, text) = self.usage.edit().filter(|_| self.stream)?;
        Some((range, text.as_bytes().to_vec()))
    }

    /// The place of the first field.
    fn front(&self) -> usize {
        front(&self.body)
    }
}

/// What is put in the place of some bytes of a body.
type Edit = (Range<usize>, Vec<u8>);

/// The body with the edits, which don't overlap.
fn spliced(body: &[u8], mut edits: Vec<Edit>) -> Bytes {
    edits.sort_by_key(|(range, _)| range.start);
    let added: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut whole = BytesMut::with_capacity(body.len() + added);
    let mut copied = 0;
    for (range, text) in edits {
        whole.put_slice(&body[copied..range.start]);
        whole.put_slice(&text);
        copied = range.end;
    }
    whole.put_slice(&body[copied..]);
    whole.freeze()
}

fn front(body: &[u8]) -> usize {
    body.iter().position(|byte| *byte == b'{').map_or(0, |brace| brace + 1)
}

impl UsageOption {
    fn edit(&self) -> Option<(Range<usize>, &'static str)> {
        match self {
            UsageOption::Asked | UsageOption::Foreign => None,
            UsageOption::Absent(at) => Some((*at..*at, r#""stream_options":{"include_usage":true},"#)),
            UsageOption::Unmentioned { at, alone: true } => Some((*at..*at, r#""include_usage":true"#)),
            UsageOption::Unmentioned { at, alone: false } => Some((*at..*at, r#""include_usage":true,"#)),
            UsageOption::Declined(range) => Some((range.clone(), "true")),
            UsageOption::Null(range) => Some((range.clone(), r#"{"include_usage":true}"#)),
        }
    }
}

fn usage_option(body: &[u8], options: Option<&RawValue>) -> UsageOption {
    let Some(options) = options else {
        // The body is an object that holds at least `model`, so what is put first is followed by something.
        return UsageOption::Absent(front(body));
    };
    if options.get() == "null" {
        return UsageOption::Null(place(body, options));
    }
    // A derived struct is also read from an array, which is none of ours.
    let parsed = if options.get().starts_with('{') { serde_json::from_str(options.get()).ok() } else { None };
    let Some(StreamOptions { include_usage }) = parsed else { return UsageOption::Foreign };
    match include_usage {
        None => UsageOption::Unmentioned {
            at: place(body, options).start + 1,
            alone: options.get()[1..].trim_ascii_start() == "}",
        },
        Some(raw) => match raw.get() {
            "true" => UsageOption::Asked,
            "false" | "null" => UsageOption::Declined(place(body, raw)),
            _ => UsageOption::Foreign,
        },
    }
}

/// Where a value borrowed from `body` stands in it.
fn place(body: &[u8], value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr().addr() - body.as_ptr().addr();
    start..start + value.get().len()
}

fn text(json: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0)
}

fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("a string always serialises to JSON")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(body: &str) -> ChatRequest {
        ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn body_for(body: &str, model: &str) -> String {
        String::from_utf8(parse(body).body_for(model).to_vec()).unwrap()
    }

    #[test]
    fn what_need_not_change_is_the_same_bytes() {
        let body = " {\"messages\" : [ ], \"x\":1e2, \"model\":\"m\" }\n";
        assert_eq!(body_for(body, "m"), body);
        let asked = r#"{"model":"m","stream":true,"stream_options":{"include_usage": true}}"#;
        assert_eq!(body_for(asked, "m"), asked);
        assert!(!parse(asked).hides_usage());
    }

    #[test]
    fn the_name_alone_is_replaced() {
        let body = r#"{"messages":[{"content":"\"model\":\"m\""}], "model" :  "m\u002f1", "k":"m/1"}"#;
        assert_eq!(parse(body).model(), "m/1");
        let wanted = r#"{"messages":[{"content":"\"model\":\"m\""}], "model" :  "a\"b", "k":"m/1"}"#;
        assert_eq!(body_for(body, "a\"b"), wanted);
    }

    #[test]
    fn usage_is_asked_for_once() {
        for (options, wanted) in [
            ("", r#"{"stream_options":{"include_usage":true},"model":"m","stream":true}"#),
            (
                r#","stream_options":null"#,
                r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#","stream_options":{ }"#,
                r#"{"model":"m","stream":true,"stream_options":{"include_usage":true }}"#,
            ),
            (
                r#","stream_options":{"a":1}"#,
                r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"a":1}}"#,
            ),
            (
                r#","stream_options":{"include_usage": false}"#,
                r#"{"model":"m","stream":true,"stream_options":{"include_usage": true}}"#,
            ),
        ] {
            let body = format!(r#"{{"model":"m","stream":true{options}}}"#);
            assert_eq!(body_for(&body, "m"), wanted);
            assert!(parse(&body).hides_usage());
        }
        let foreign = r#"{"model":"m","stream":true,"stream_options":[1]}"#;
        assert_eq!(body_for(foreign, "m"), foreign);
        assert!(!parse(r#"{"model":"m"}"#).hides_usage());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |body: &str| ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
        assert!(matches!(error("{"), RequestError::Malformed(_)));
        assert!(matches!(error("[]"), RequestError::Malformed(_) | RequestError::NoModel));
        assert!(matches!(error(r#"{"model":"a","model":"b"}"#), RequestError::Malformed(_)));
        assert!(matches!(error("{}"), RequestError::NoModel));
        assert!(matches!(error(r#"{"model":7}"#), RequestError::WrongType("model")));
        assert!(matches!(error(r#"{"model":"m","stream":"yes"}"#), RequestError::WrongType("stream")));
    }

    proptest! {
        #[test]
        fn rewritten_bodies_differ_only_in_what_was_rewritten(
            model in ".{1,12}", engine in ".{1,12}", extra in ".{0,20}", stream: bool,
        ) {
            let value = serde_json::json!({"before": extra, "model": model, "stream": stream, "after": [extra]});
            let request = parse(&value.to_string());
            prop_assert_eq!(request.model(), &model);
            let rewritten: serde_json::Value = serde_json::from_slice(&request.body_for(&engine)).unwrap();
            let mut wanted = value;
            wanted["model"] = engine.into();
            if stream {
                wanted["stream_options"] = serde_json::json!({"include_usage": true});
            }
            prop_assert_eq!(rewritten, wanted);
        }
    }
}
