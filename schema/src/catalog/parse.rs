//! Files to typed manifests. Every fault of every document is found before any is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use crate::diagnostic::{Code, Diagnostic, Diagnostics, nearest};
use crate::manifest::{API_VERSION, AnyManifest, Kind};
use crate::tree::Files;
use crate::yaml::{self, Document, Place};

/// A manifest with where it stands.
pub(crate) struct Entry {
    pub file: String,
    pub document: Document,
    pub manifest: AnyManifest,
}

pub(super) fn parse(files: &Files, found: &mut Diagnostics) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (file, bytes) in files {
        let whole_file = |code, message: String, hint: &str| Diagnostic {
            file: file.clone(),
            line: 0,
            column: 0,
            code,
            message,
            hint: Some(hint.to_owned()),
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            found.push(whole_file(Code::Unreadable, "the file is not UTF-8".to_owned(), "save it as UTF-8"));
            continue;
        };
        match yaml::read(text) {
            Ok(documents) => {
                entries.extend(documents.into_iter().filter_map(|document| typed(file, document, found)));
            }
            Err(error) => found.push(Diagnostic {
                file: file.clone(),
                line: error.place.line,
                column: error.place.column,
                code: Code::Yaml,
                message: error.message,
                hint: None,
            }),
        }
    }
    entries
}

/// One document as its kind's type, or what is wrong with it.
fn typed(file: &str, document: Document, found: &mut Diagnostics) -> Option<Entry> {
    let mut reporter = Reporter { file, found };
    let kind = kind_of(&document, &mut reporter)?;
    let schema = KindSchema::of(kind);
    let before = reporter.found.len();
    for error in schema.validator.iter_errors(&document.value) {
        schema.explain(&document, &error, &mut reporter);
    }
    if reporter.found.len() > before {
        return None;
    }
    match AnyManifest::from_value(kind, document.value.clone()) {
        Ok(manifest) => Some(Entry { file: file.to_owned(), document, manifest }),
        Err(error) => {
            // The schema and the types agree but for what a schema can't say, such as the range of a period.
            reporter.at(document.value_place("/spec"), Code::BadValue, error.to_string(), None);
            None
        }
    }
}

struct Reporter<'a> {
    file: &'a str,
    found: &'a mut Diagnostics,
}

impl Reporter<'_> {
    fn at(&mut self, place: Place, code: Code, message: String, hint: Option<String>) {
        let (file, line, column) = (self.file.to_owned(), place.line, place.column);
        self.found.push(Diagnostic { file, line, column, code, message, hint });
    }
}

/// The kind a document says it is.
fn kind_of(document: &Document, reporter: &mut Reporter<'_>) -> Option<Kind> {
    let field = |name: &str| document.value.get(name).and_then(Value::as_str);
    match field("apiVersion") {
        Some(API_VERSION) => {}
        Some(other) => {
            let message = format!("`{other}` is not a version of denv's manifests");
            let hint = Some(format!("write `apiVersion: {API_VERSION}`"));
            reporter.at(document.value_place("/apiVersion"), Code::UnknownKind, message, hint);
            return None;
        }
        None => {
            let hint = Some(format!("write `apiVersion: {API_VERSION}`"));
            let message = "the document has no `apiVersion`".to_owned();
            reporter.at(document.value_place(""), Code::MissingField, message, hint);
            return None;
        }
    }
    let Some(kind) = field("kind") else {
        let hint = Some(format!("one of {}", kinds()));
        reporter.at(
            document.value_place(""),
            Code::MissingField,
            "the document has no `kind`".to_owned(),
            hint,
        );
        return None;
    };
    kind.parse().ok().or_else(|| {
        let hint = nearest(kind, Kind::ALL.iter().map(|kind| kind.as_str()))
            .or_else(|| Some(format!("one of {}", kinds())));
        reporter.at(
            document.value_place("/kind"),
            Code::UnknownKind,
            format!("`{kind}` is not a kind"),
            hint,
        );
        None
    })
}

fn kinds() -> String {
    Kind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}

/// A kind's schema, made ready once.
struct KindSchema {
    schema: Value,
    validator: Validator,
}

impl KindSchema {
    fn of(kind: Kind) -> Arc<KindSchema> {
        static READY: Mutex<BTreeMap<Kind, Arc<KindSchema>>> = Mutex::new(BTreeMap::new());
        let mut ready = READY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(ready.entry(kind).or_insert_with(|| Arc::new(KindSchema::new(kind))))
    }

    fn new(kind: Kind) -> KindSchema {
        let mut schema = kind.json_schema().to_value();
        refuse_null(&mut schema);
        let validator = jsonschema::validator_for(&schema).expect("schemas generated from types are valid");
        KindSchema { schema, validator }
    }

    /// Turns one schema error into findings in a person's words.
    fn explain(
        &self,
        document: &Document,
        error: &jsonschema::ValidationError<'_>,
        reporter: &mut Reporter<'_>,
    ) {
        let pointer = error.instance_path().to_string();
        let (place, field) = (document.value_place(&pointer), shown(&pointer));
        let keyword = error.schema_path().to_string();
        let parent = keyword.rfind('/').map_or("", |end| &keyword[..end]);
        let rule = self.schema.pointer(parent);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = rule.and_then(|rule| rule.get("properties")).and_then(Value::as_object);
                for name in unexpected {
                    let escaped = name.replace('~', "~0").replace('/', "~1");
                    let place = document.key_place(&format!("{pointer}/{escaped}"));
                    let hint = known.and_then(|known| {
                        nearest(name, known.keys().map(String::as_str)).or_else(|| {
                            let fields = known.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>();
                            Some(format!("{field} has the fields {}", fields.join(", ")))
                        })
                    });
                    reporter.at(
                        place,
                        Code::UnknownField,
                        format!("unknown field `{name}` in {field}"),
                        hint,
                    );
                }
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                reporter.at(place, Code::MissingField, format!("{field} lacks the field `{name}`"), None);
            }
            ValidationErrorKind::Type { kind } => {
                let (expected, given) = (expected(kind), given(error.instance()));
                let hint = match error.instance().as_ref() {
                    Value::Number(_) | Value::Bool(_) if expected == "text" => {
                        Some("put it in quotes".to_owned())
                    }
                    _ => None,
                };
                let message = format!("{field} must be {expected}, and is {given}");
                reporter.at(place, Code::WrongType, message, hint);
            }
            ValidationErrorKind::Enum { options } => {
                let options: Vec<&str> =
                    options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let given = error.instance().as_str().unwrap_or_default();
                let hint = nearest(given, options.iter().copied());
                let message = format!("{field} must be one of {}", options.join(", "));
                reporter.at(place, Code::BadValue, message, hint);
            }
            _ => {
                // The rule's own words; never the value, which may be a secret in the wrong place.
                let words = rule.and_then(|rule| rule.get("description")).and_then(Value::as_str);
                let message = match (words, error.kind()) {
                    (Some(words), _) => format!("{field} is not valid: {}", words.trim_end_matches('.')),
                    (None, ValidationErrorKind::Pattern { pattern }) => {
                        format!("{field} must match `{pattern}`")
                    }
                    (None, kind) => format!("{field} is not valid: it breaks the rule `{}`", kind.keyword()),
                };
                reporter.at(place, Code::BadValue, message, None);
            }
        }
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

fn given(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping of fields",
    }
}

/// An optional field is left out or has a value; written without one it is a slip, so schemas refuse null.
fn refuse_null(schema: &mut Value) {
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
            object.values_mut().for_each(refuse_null);
        }
        Value::Array(items) => items.iter_mut().for_each(refuse_null),
        _ => {}
    }
}
