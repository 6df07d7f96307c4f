//! What a kind's JSON Schema says of a document, in a person's words: never with the value, which may be a secret in
//! the wrong place.

use std::sync::OnceLock;

use jiff::Timestamp;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

use super::parse::Reporter;
use crate::diagnostic::{Code, nearest};
use crate::manifest::Kind;
use crate::quantity::{Period, Share, money};
use crate::secret::{self, SecretReference};
use crate::yaml::Source;

/// Where a type's schema says what its values look like. A field's description takes the place of its type's, so
/// the rule stands apart; editors show it under this name too.
const RULE: &str = "patternErrorMessage";

/// A kind's schema, made ready once.
pub(super) struct KindSchema {
    schema: Value,
    validator: Validator,
}

/// One thing that is wrong.
struct Fault {
    code: Code,
    message: String,
    hint: Option<String>,
}

impl KindSchema {
    pub(super) fn of(kind: Kind) -> &'static KindSchema {
        static READY: [OnceLock<KindSchema>; Kind::ALL.len()] = [const { OnceLock::new() }; Kind::ALL.len()];
        READY[kind as usize].get_or_init(|| KindSchema::new(kind))
    }

    fn new(kind: Kind) -> KindSchema {
        let mut schema = kind.json_schema().to_value();
        tighten(&mut schema);
        let validator = jsonschema::options()
            .with_format("period", |text: &str| text.parse::<Period>().is_ok())
            .with_format("threshold", |text: &str| is_threshold(text))
            .with_format("date-time", |text: &str| text.parse::<Timestamp>().is_ok())
            .with_format(secret::FORMAT, |text: &str| text.parse::<SecretReference>().is_ok())
            .should_validate_formats(true)
            .should_ignore_unknown_formats(true)
            .build(&schema)
            .expect("schemas generated from types are valid");
        KindSchema { schema, validator }
    }

    /// Reports everything in which a document is not of this kind.
    pub(super) fn check(&self, value: &Value, source: &Source, reporter: &mut Reporter<'_, '_>) {
        if self.validator.is_valid(value) {
            return;
        }
        for error in self.validator.iter_errors(value) {
            self.explain(&error, source, reporter);
        }
    }

    fn explain(&self, error: &ValidationError<'_>, source: &Source, reporter: &mut Reporter<'_, '_>) {
        let pointer = error.instance_path().to_string();
        let field = shown(&pointer);
        let keyword = error.schema_path().to_string();
        let rule = keyword.rfind('/').and_then(|end| self.schema.pointer(&keyword[..end]));
        let fault = match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                for name in unexpected {
                    let escaped = name.replace('~', "~0").replace('/', "~1");
                    let place = source.key_place(&format!("{pointer}/{escaped}"));
                    let message = format!("unknown field `{name}` in {field}");
                    reporter.at(place, Code::UnknownField, message, known_fields(name, &field, rule));
                }
                return;
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                // Said already, with a way out.
                if pointer.is_empty() && matches!(name, "apiVersion" | "kind") {
                    return;
                }
                let message = format!("{field} lacks the field `{name}`");
                Fault { code: Code::MissingField, message, hint: None }
            }
            // Said already.
            _ if matches!(pointer.as_str(), "/apiVersion" | "/kind") => return,
            ValidationErrorKind::Type { kind } => wrong_type(&field, kind, error.instance(), rule),
            ValidationErrorKind::Enum { options } => {
                let options: Vec<&str> =
                    options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let given = error.instance().as_str().unwrap_or_default();
                let hint = nearest(given, options.iter().copied());
                let message = match options.as_slice() {
                    [only] => format!("{field} must be {only}"),
                    _ => format!("{field} must be one of {}", options.join(", ")),
                };
                Fault { code: Code::BadValue, message, hint }
            }
            // One that is no reference may be the secret itself.
            kind if rule.and_then(|rule| rule.get("format")).and_then(Value::as_str)
                == Some(secret::FORMAT) =>
            {
                let hint = Some("if a secret stood here, take it for leaked: replace it".to_owned());
                Fault { code: Code::InlineSecret, message: bad_value(&field, kind, rule), hint }
            }
            kind => Fault { code: Code::BadValue, message: bad_value(&field, kind, rule), hint: None },
        };
        reporter.at(source.value_place(&pointer), fault.code, fault.message, fault.hint);
    }
}

fn is_threshold(text: &str) -> bool {
    text.parse::<Share>().is_ok() || text.parse::<Period>().is_ok()
}

/// The nearest field that there is, else all of them.
fn known_fields(name: &str, field: &str, rule: Option<&Value>) -> Option<String> {
    let known = rule?.get("properties")?.as_object()?;
    nearest(name, known.keys().map(String::as_str)).or_else(|| {
        let fields = known.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>();
        let word = if fields.len() == 1 { "only the field" } else { "the fields" };
        Some(format!("{field} has {word} {}", fields.join(", ")))
    })
}

fn wrong_type(field: &str, kind: &TypeKind, value: &Value, rule: Option<&Value>) -> Fault {
    let is_money = rule.is_some_and(|rule| rule["format"] == money::FORMAT);
    let expected = expected(kind);
    let hint = match value {
        Value::Number(_) if is_money => {
            Some("put it in quotes: without them, a fraction is rounded as it is read")
        }
        Value::Number(_) | Value::Bool(_) if expected == "text" => Some("put it in quotes"),
        Value::String(text) if expected == "true or false" => {
            let word = text.to_lowercase();
            let known = ["yes", "no", "on", "off", "y", "n", "true", "false"].contains(&word.as_str());
            known.then_some("write `true` or `false`, without quotes")
        }
        Value::String(text) if expected.contains("number") && text.bytes().all(|b| b.is_ascii_digit()) => {
            Some("write it without quotes and without zeros in front")
        }
        _ => None,
    };
    let message = format!("{field} must be {expected}, and is {}", given(value));
    Fault { code: Code::WrongType, message, hint: hint.map(str::to_owned) }
}

fn bad_value(field: &str, kind: &ValidationErrorKind, rule: Option<&Value>) -> String {
    let words = rule.and_then(|rule| rule.get(RULE)).and_then(Value::as_str);
    match kind {
        ValidationErrorKind::Minimum { limit } => format!("{field} must be at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("{field} must be at most {limit}"),
        ValidationErrorKind::MinItems { limit: 1 } => format!("{field} must not be empty"),
        ValidationErrorKind::MinLength { limit: 1 } => format!("{field} must not be empty"),
        ValidationErrorKind::MinItems { limit } => format!("{field} must have at least {limit} items"),
        kind => match (words, kind) {
            (Some(words), _) => format!("{field} is not valid: {words}"),
            (None, ValidationErrorKind::Pattern { pattern }) => format!("{field} must match `{pattern}`"),
            (None, kind) => format!("{field} is not valid: it breaks the rule `{}`", kind.keyword()),
        },
    }
}

/// `/spec/fleets/0/name` as `` `spec.fleets[0].name` ``.
fn shown(pointer: &str) -> String {
    if pointer.is_empty() {
        return "the manifest".to_owned();
    }
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|b| b.is_ascii_digit()) {
            path.push_str(&format!("[{part}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&part.replace("~1", "/").replace("~0", "~"));
        }
    }
    format!("`{path}`")
}

fn expected(kind: &TypeKind) -> String {
    let name = |kind: &str| match kind {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a mapping of fields",
        _ => "something else",
    };
    match kind {
        TypeKind::Single(kind) => name(kind.as_str()).to_owned(),
        TypeKind::Multiple(kinds) => {
            kinds.iter().map(|kind| name(kind.as_str())).collect::<Vec<_>>().join(" or ")
        }
    }
}

pub(super) fn given(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping of fields",
    }
}

/// What the types demand beyond the schemas that editors are given. An optional field is left out or has a value, so
/// null is a slip; and a whole number fits its type.
fn tighten(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_null = |schema: &Value| schema.get("type").and_then(Value::as_str) == Some("null");
            if let Some(Value::Array(any)) = object.get_mut("anyOf") {
                any.retain(|schema| !is_null(schema));
                if let [Value::Object(only)] = any.as_mut_slice() {
                    let only = std::mem::take(only);
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_mut_slice() {
                    let only = only.take();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(words) = object.get("oneOf").and_then(words_of) {
                object.remove("oneOf");
                object.insert("type".to_owned(), "string".into());
                object.insert("enum".to_owned(), words.into());
            }
            if object.get("format").and_then(Value::as_str) == Some("uint32") {
                object.entry("maximum").or_insert_with(|| u32::MAX.into());
            }
            object.values_mut().for_each(tighten);
        }
        Value::Array(items) => items.iter_mut().for_each(tighten),
        _ => {}
    }
}

/// The words of a choice. Where they have descriptions, schemas write it as one schema a word.
fn words_of(choice: &Value) -> Option<Vec<Value>> {
    let mut words = Vec::new();
    for schema in choice.as_array()? {
        match (schema.get("const"), schema.get("enum")) {
            (Some(word @ Value::String(_)), _) => words.push(word.clone()),
            (None, Some(Value::Array(several))) => words.extend(several.iter().cloned()),
            _ => return None,
        }
    }
    Some(words)
}
