use denv_schema::manifest::{Comparison, ComparisonKind, ExpectedCall};
use denv_schema::wire::{Answer, ToolCall};
use serde_json::Value;

use super::report::Difference;
use super::text_difference::{MOST_DIFFERENCES, cut, differences, tokens};

const LONGEST_VALUE: usize = 400;

/// What a comparison is called in reports.
pub(super) fn words(comparison: &Comparison) -> String {
    match (comparison.kind, comparison.at_least) {
        (ComparisonKind::Exact, _) => "every character".to_owned(),
        (ComparisonKind::Normalized, _) => "the words".to_owned(),
        (ComparisonKind::JsonEqual, _) => "as JSON".to_owned(),
        (ComparisonKind::TokenAgreement, Some(share)) => format!("at least {share} of the tokens"),
        (ComparisonKind::TokenAgreement, None) => "every token".to_owned(),
    }
}

/// Where an answer's text is not as it should be. Without any, it is.
pub(super) fn texts(comparison: &Comparison, expected: &str, answered: &str) -> Vec<Difference> {
    match comparison.kind {
        ComparisonKind::Exact if expected == answered => Vec::new(),
        ComparisonKind::Exact => differences(expected, answered),
        ComparisonKind::Normalized if normalized(expected) == normalized(answered) => Vec::new(),
        ComparisonKind::Normalized => differences(expected.trim(), answered.trim()),
        ComparisonKind::JsonEqual => match serde_json::from_str(expected.trim()) {
            Ok(expected) => json_text(&expected, answered),
            // What a reference answers may be no JSON; then two answers are the same if they read the same.
            Err(_) if expected.trim() == answered.trim() => Vec::new(),
            Err(_) => vec![Difference {
                at: "the whole: what is expected is no JSON".to_owned(),
                expected: cut(expected, LONGEST_VALUE),
                answered: cut(answered, LONGEST_VALUE),
            }],
        },
        ComparisonKind::TokenAgreement => {
            let least = comparison.at_least.map_or(1.0, |share| share.ratio());
            if agreement(expected, answered) >= least { Vec::new() } else { differences(expected, answered) }
        }
    }
}

/// The share of tokens that are the same in the same place, of the longer text's.
pub(super) fn agreement(expected: &str, answered: &str) -> f64 {
    let (left, right) = (tokens(expected), tokens(answered));
    let longer = left.len().max(right.len());
    if longer == 0 {
        return 1.0;
    }
    let same = left.iter().zip(&right).filter(|(one, other)| one == other).count();
    same as f64 / longer as f64
}

/// Signs that people and models put around an answer. A sign of a number is none of them.
const AROUND: [char; 16] = ['.', ',', ';', ':', '!', '?', '"', '\'', '`', '*', '_', '“', '”', '„', '…', '。'];

fn normalized(text: &str) -> Vec<String> {
    let inner = text.trim_matches(|sign: char| sign.is_whitespace() || AROUND.contains(&sign));
    inner.split_whitespace().map(str::to_lowercase).collect()
}

/// Where a text is not this JSON value.
pub(super) fn json_text(expected: &Value, answered: &str) -> Vec<Difference> {
    match serde_json::from_str(answered.trim()) {
        Ok(answered) => {
            let mut found = Vec::new();
            json(expected, &answered, &mut String::new(), &mut found);
            found
        }
        Err(error) => vec![Difference {
            at: format!("the whole: the answer is no JSON ({error})"),
            expected: cut(&expected.to_string(), LONGEST_VALUE),
            answered: cut(answered, LONGEST_VALUE),
        }],
    }
}

fn json(expected: &Value, answered: &Value, pointer: &mut String, found: &mut Vec<Difference>) {
    if found.len() >= MOST_DIFFERENCES || same(expected, answered) {
        return;
    }
    let written =
        |value: Option<&Value>| value.map_or_else(String::new, |it| cut(&it.to_string(), LONGEST_VALUE));
    let mut inside = |key: &str, one: Option<&Value>, other: Option<&Value>| {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match (one, other) {
            (Some(one), Some(other)) => json(one, other, pointer, found),
            (one, other) => {
                found.push(Difference {
                    at: pointer.clone(),
                    expected: written(one),
                    answered: written(other),
                });
            }
        }
        pointer.truncate(length);
    };
    match (expected, answered) {
        (Value::Object(one), Value::Object(other)) => {
            for (key, value) in one {
                inside(key, Some(value), other.get(key));
            }
            for (key, value) in other.iter().filter(|(key, _)| !one.contains_key(*key)) {
                inside(key, None, Some(value));
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for i in 0..one.len().max(other.len()) {
                inside(&i.to_string(), one.get(i), other.get(i));
            }
        }
        _ => {
            let at = if pointer.is_empty() { "the whole".to_owned() } else { pointer.clone() };
            found.push(Difference {
                at,
                expected: written(Some(expected)),
                answered: written(Some(answered)),
            });
        }
    }
}

/// The same value: `1` and `1.0` are, and the order of keys is nothing.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

/// Where the calls that were made are not the expected ones, in their order.
pub(super) fn calls(expected: &[ExpectedCall], answered: &[ToolCall]) -> Vec<Difference> {
    let mut found = Vec::new();
    for i in 0..expected.len().max(answered.len()) {
        let at = format!("call {}", i + 1);
        let wanted = expected.get(i).map(|call| {
            let arguments = call.arguments.as_ref().map(|it| Value::Object(it.0.clone()));
            (call.name.as_str(), arguments)
        });
        let made = answered.get(i);
        match (wanted, made) {
            (Some((name, arguments)), Some(made)) if name == made.name => {
                let Some(arguments) = arguments else { continue };
                for difference in
                    json_text(&arguments, if made.arguments.is_empty() { "{}" } else { &made.arguments })
                {
                    found.push(Difference { at: format!("{at}, {name}: {}", difference.at), ..difference });
                }
            }
            (wanted, made) => found.push(Difference {
                at,
                expected: wanted.map_or_else(String::new, |(name, arguments)| {
                    format!("{name}({})", arguments.map_or_else(|| "…".to_owned(), |it| it.to_string()))
                }),
                answered: made.map_or_else(String::new, call_words),
            }),
        }
    }
    found
}

/// The calls of a reference's answer, as they must be made. Arguments that are no JSON object are compared by name only.
pub(super) fn as_expected(calls: &[ToolCall]) -> Vec<ExpectedCall> {
    calls
        .iter()
        .map(|call| {
            let arguments =
                serde_json::from_str(if call.arguments.is_empty() { "{}" } else { &call.arguments });
            ExpectedCall {
                name: call.name.clone(),
                arguments: arguments.ok().map(denv_schema::manifest::FreeForm),
            }
        })
        .collect()
}

fn call_words(call: &ToolCall) -> String {
    format!("{}({})", call.name, cut(&call.arguments, LONGEST_VALUE))
}

/// An answer as a report shows it.
pub(super) fn answer_words(answer: &Answer) -> String {
    let calls = answer.tool_calls.iter().map(call_words);
    let text = (!answer.text.is_empty() || answer.tool_calls.is_empty()).then(|| answer.text.clone());
    text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comparison(text: &str) -> Comparison {
        serde_json::from_str(text).unwrap()
    }

    fn agrees(kind: &str, expected: &str, answered: &str) -> bool {
        texts(&comparison(&format!(r#"{{"kind": "{kind}"}}"#)), expected, answered).is_empty()
    }

    #[test]
    fn each_kind_forgives_what_it_says() {
        assert!(agrees("exact", "Paris", "Paris") && !agrees("exact", "Paris", "Paris."));
        assert!(agrees("normalized", "Paris", " **paris**.\n") && agrees("normalized", "a  b", "A b!"));
        assert!(!agrees("normalized", "5", "-5") && !agrees("normalized", "no", "not"));
        assert!(agrees("json-equal", r#"{"a": 1, "b": [2]}"#, r#"{"b":[2.0],"a":1}"#));
        assert!(!agrees("json-equal", r#"{"a": 1}"#, r#"{"a": "1"}"#));
        let most = comparison(r#"{"kind": "token-agreement", "atLeast": "75%"}"#);
        assert!(texts(&most, "one two three four", "one two three five").is_empty());
        assert!(!texts(&most, "one two three four", "one too three five").is_empty());
        assert!(!texts(&most, "one two three four", "zero one two three four").is_empty());
    }

    #[test]
    fn differences_of_json_have_their_pointers() {
        let expected = serde_json::json!({"a": {"b/c": [1, 2]}, "d": true});
        let found = json_text(&expected, r#"{"a": {"b/c": [1, 3, 4]}, "e": null}"#);
        let shown: Vec<_> =
            found.iter().map(|it| format!("{} {} {}", it.at, it.expected, it.answered)).collect();
        assert_eq!(shown, ["/a/b~1c/1 2 3", "/a/b~1c/2  4", "/d true ", "/e  null"]);
        assert!(json_text(&expected, "Sure!")[0].at.starts_with("the whole: the answer is no JSON"));
    }

    #[test]
    fn calls_are_compared_in_order() {
        let expected: Vec<ExpectedCall> = serde_json::from_str(
            r#"[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "time"}]"#,
        )
        .unwrap();
        let call = |name: &str, arguments: &str| ToolCall { name: name.into(), arguments: arguments.into() };
        assert!(calls(&expected, &[call("weather", r#"{"city":"Paris"}"#), call("time", "")]).is_empty());
        let found = calls(&expected, &[call("weather", r#"{"city":"Rome"}"#)]);
        assert_eq!(found[0].at, "call 1, weather: /city");
        assert_eq!((found[1].at.as_str(), found[1].expected.as_str()), ("call 2", "time(…)"));
        assert_eq!(calls(&[], &[call("time", "{}")])[0].answered, "time({})");
        assert!(calls(&as_expected(&[call("time", "{}")]), &[call("time", "")]).is_empty());
    }

    proptest! {
        #[test]
        fn a_text_agrees_with_itself(text in "\\PC{0,60}") {
            for kind in ["exact", "normalized", "json-equal", "token-agreement"] {
                prop_assert!(agrees(kind, &text, &text), "{}", kind);
            }
        }

        #[test]
        fn agreement_is_a_share_and_has_no_sides(one in "[ab ]{0,20}", two in "[ab ]{0,20}") {
            let share = agreement(&one, &two);
            prop_assert!((0.0..=1.0).contains(&share));
            prop_assert_eq!(share.to_bits(), agreement(&two, &one).to_bits());
        }
    }
}
