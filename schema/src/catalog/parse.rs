//! Files to typed manifests. Every fault of every document is found before any is refused.

use serde_json::Value;

use super::explain::KindSchema;
use super::faulty::Identity;
use crate::diagnostic::{Code, Diagnostic, Diagnostics, nearest};
use crate::manifest::{API_VERSION, AnyManifest, FREE_FORM, Kind};
use crate::secret;
use crate::yaml::{self, Document, Place, Source};

/// A manifest with where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub file: &'a str,
    pub source: &'a Source,
    pub manifest: &'a AnyManifest,
}

/// What one file says by itself: it depends on nothing but its path and its text.
#[derive(Debug, Default)]
pub(super) struct ReadFile {
    /// The manifests that are sound by themselves.
    pub(super) manifests: Vec<(Source, AnyManifest)>,
    /// What is known of the others.
    pub(super) faulty: Vec<Identity>,
    pub(super) found: Diagnostics,
}

pub(super) fn read(file: &str, bytes: &[u8]) -> ReadFile {
    let mut read = ReadFile::default();
    let Ok(text) = std::str::from_utf8(bytes) else {
        read.found.push(Diagnostic {
            file: file.to_owned(),
            line: 0,
            column: 0,
            code: Code::Unreadable,
            message: "the file is not UTF-8".to_owned(),
            hint: Some("save it as UTF-8".to_owned()),
        });
        // UTF-16 of plain text is that text with zeros in between.
        let text = String::from_utf8_lossy(bytes).replace('\0', "");
        read.faulty.extend(yaml::parts(&text).iter().map(|part| Identity::of_text(part.text)));
        return read;
    };
    for part in yaml::parts(text) {
        let mut reporter = Reporter { file, found: &mut read.found };
        match part.read() {
            Ok(documents) => {
                for document in documents {
                    let typed = typed(document, &mut reporter, &mut read.faulty);
                    read.manifests.extend(typed);
                }
            }
            Err(error) => {
                reporter.at(error.place, Code::Yaml, error.message, error.hint.map(str::to_owned));
                read.faulty.push(Identity::of_text(part.text));
            }
        }
    }
    read
}

/// One document as its kind's type, or what is wrong with it.
fn typed(
    document: Document,
    reporter: &mut Reporter<'_, '_>,
    faulty: &mut Vec<Identity>,
) -> Option<(Source, AnyManifest)> {
    let Document { value, source } = document;
    // A document of nothing but comments.
    if value.is_null() {
        return None;
    }
    let before = reporter.found.len();
    let kind = kind_of(&value, &source, reporter);
    if let Some(kind) = kind {
        KindSchema::of(kind).check(&value, &source, reporter);
    }
    if reporter.found.len() == before
        && let Some(pointer) = fraction(&value, kind == Some(Kind::ParitySuite))
    {
        let message = "a whole number is written without a point".to_owned();
        reporter.at(source.value_place(&pointer), Code::BadValue, message, None);
    }
    if reporter.found.len() == before
        && let Some(pointer) = key(&value)
    {
        let message =
            "what stands here looks like a key, and everybody who reads the repository has it".to_owned();
        let hint =
            "take it for leaked: replace it, and write where it is found, never the key itself".to_owned();
        reporter.at(source.value_place(&pointer), Code::InlineSecret, message, Some(hint));
    }
    if reporter.found.len() > before {
        faulty.push(Identity::of_value(&value));
        return None;
    }
    match AnyManifest::from_value(kind?, value) {
        Ok(manifest) => Some((source, manifest)),
        // The schema says all that the types do. Were it not so, the error itself could hold a secret.
        Err(_) => {
            reporter.at(
                source.value_place("/spec"),
                Code::BadValue,
                format!("this is not a {}", kind?),
                None,
            );
            None
        }
    }
}

/// Where a text stands that is surely a secret, in whatever field.
fn key(value: &Value) -> Option<String> {
    let holds_key = |value: &Value| value.as_str().is_some_and(secret::holds_key);
    first(value, &|_| true, &holds_key)
}

/// Where a number with a point stands. No field takes one, but JSON Schema takes `1.0` for whole. What is of a free form
/// may hold one, in the kind that has such fields.
fn fraction(value: &Value, free: bool) -> Option<String> {
    first(value, &|field| !free || !FREE_FORM.contains(&field), &Value::is_f64)
}

/// The pointer of the first scalar that is such a one, in fields that are to be looked into. It is put together on the way
/// back, since most documents have none.
fn first(value: &Value, looked_into: &impl Fn(&str) -> bool, is: &impl Fn(&Value) -> bool) -> Option<String> {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| Some(format!("/{i}{}", first(item, looked_into, is)?))),
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| looked_into(name)).find_map(|(name, field)| {
                let rest = first(field, looked_into, is)?;
                Some(format!("/{}{rest}", name.replace('~', "~0").replace('/', "~1")))
            })
        }
        scalar => is(scalar).then(String::new),
    }
}

pub(super) struct Reporter<'a, 'f> {
    pub(super) file: &'a str,
    pub(super) found: &'f mut Diagnostics,
}

impl Reporter<'_, '_> {
    pub(super) fn at(&mut self, place: Place, code: Code, message: String, hint: Option<String>) {
        let (file, line, column) = (self.file.to_owned(), place.line, place.column);
        self.found.push(Diagnostic { file, line, column, code, message, hint });
    }
}

const ELSEWHERE: &str = "other YAML is left alone in a folder whose name begins with a dot";

/// The kind a document says it is.
fn kind_of(value: &Value, source: &Source, reporter: &mut Reporter<'_, '_>) -> Option<Kind> {
    let Value::Object(fields) = value else {
        let message =
            format!("a manifest is a mapping of fields, and this is {}", super::explain::given(value));
        let hint = format!("begin with `apiVersion: {API_VERSION}`; {ELSEWHERE}");
        reporter.at(source.value_place(""), Code::WrongType, message, Some(hint));
        return None;
    };
    let write = format!("write `apiVersion: {API_VERSION}`");
    match fields.get("apiVersion") {
        Some(Value::String(version)) if version == API_VERSION => {}
        Some(Value::String(version)) => {
            let ours = version.to_lowercase().starts_with("denv");
            let hint = if ours { write } else { format!("{write}; {ELSEWHERE}") };
            let message = format!("`{version}` is not a version of denv's manifests");
            reporter.at(source.value_place("/apiVersion"), Code::UnknownKind, message, Some(hint));
            if !ours {
                return None;
            }
        }
        Some(other) => {
            let message = format!("`apiVersion` must be text, and is {}", super::explain::given(other));
            reporter.at(source.value_place("/apiVersion"), Code::WrongType, message, Some(write));
        }
        None => {
            let hint = format!("{write}; {ELSEWHERE}");
            let message = "the document has no `apiVersion`".to_owned();
            reporter.at(source.value_place(""), Code::MissingField, message, Some(hint));
        }
    }
    let all = || format!("the kinds are {}", kinds());
    match fields.get("kind") {
        Some(Value::String(kind)) => kind.parse().ok().or_else(|| {
            let hint = nearest(kind, Kind::ALL.iter().map(|kind| kind.as_str())).unwrap_or_else(all);
            let message = format!("`{kind}` is not a kind");
            reporter.at(source.value_place("/kind"), Code::UnknownKind, message, Some(hint));
            None
        }),
        Some(other) => {
            let message = format!("`kind` must be text, and is {}", super::explain::given(other));
            reporter.at(source.value_place("/kind"), Code::WrongType, message, Some(all()));
            None
        }
        None => {
            let message = "the document has no `kind`".to_owned();
            reporter.at(source.value_place(""), Code::MissingField, message, Some(all()));
            None
        }
    }
}

fn kinds() -> String {
    Kind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
}
