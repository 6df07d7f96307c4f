//! Which fields of a manifest differ. Lists of things with names are compared by name, so a new first element is one
//! change and not a change of all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog::Entry;
use crate::diagnostic::shown;
use crate::launch::Reference;

/// One field that is other than it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// As people write it: `spec.fleets[racks-fra].units.min`.
    pub field: String,
    /// Where it stands now, or stood if it is gone; 0 where it is not written out.
    pub line: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The values may be secrets, and are not here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

pub(super) fn compare(was: Option<Entry<'_>>, is: Option<Entry<'_>>) -> Vec<FieldChange> {
    let value = |entry: Option<Entry<'_>>| entry.map(|entry| entry.manifest.to_value());
    let (old, new) = (value(was), value(is));
    let mut comparison = Comparison { was, is, changes: Vec::new() };
    for part in ["metadata", "spec"] {
        let of = |value: &Option<Value>| value.as_ref().and_then(|value| value.get(part)).cloned();
        let pointer = format!("/{part}");
        comparison.compare(&Spot::new(part, &pointer, &pointer), of(&old).as_ref(), of(&new).as_ref());
    }
    // The name is what the change is of.
    comparison.changes.retain(|change| change.field != "metadata.name");
    comparison.changes
}

/// A field: as people call it, and where it is in the older and the newer document.
struct Spot {
    field: String,
    old: String,
    new: String,
    /// The name of the field, or of the one whose element this is.
    key: String,
}

impl Spot {
    fn new(field: &str, old: &str, new: &str) -> Self {
        Spot { field: field.to_owned(), old: old.to_owned(), new: new.to_owned(), key: field.to_owned() }
    }

    fn of_key(&self, key: &str) -> Self {
        let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
        let field = if plain { format!("{}.{key}", self.field) } else { format!("{}[{key:?}]", self.field) };
        let escaped = key.replace('~', "~0").replace('/', "~1");
        let (old, new) = (format!("{}/{escaped}", self.old), format!("{}/{escaped}", self.new));
        Spot { field: shown(field), old, new, key: key.to_owned() }
    }

    fn of_element(&self, name: &str, old: Option<usize>, new: Option<usize>) -> Self {
        let at = |pointer: &str, index: Option<usize>| {
            index.map_or_else(|| pointer.to_owned(), |index| format!("{pointer}/{index}"))
        };
        Spot {
            field: shown(format!("{}[{name}]", self.field)),
            old: at(&self.old, old),
            new: at(&self.new, new),
            key: self.key.clone(),
        }
    }
}

struct Comparison<'a> {
    was: Option<Entry<'a>>,
    is: Option<Entry<'a>>,
    changes: Vec<FieldChange>,
}

impl Comparison<'_> {
    fn compare(&mut self, spot: &Spot, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        match (old, new) {
            (None | Some(Value::Object(_)), None | Some(Value::Object(_))) => self.objects(spot, old, new),
            (None | Some(Value::Array(_)), None | Some(Value::Array(_))) => match (named(old), named(new)) {
                (Some(old), Some(new)) => self.elements(spot, &old, &new),
                _ => self.push(spot, old, new),
            },
            _ => self.push(spot, old, new),
        }
    }

    fn objects(&mut self, spot: &Spot, old: Option<&Value>, new: Option<&Value>) {
        let nothing = Map::new();
        let fields =
            |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or(nothing.clone());
        let (old_fields, new_fields) = (fields(old), fields(new));
        if old_fields.is_empty() && new_fields.is_empty() {
            // There, or not there.
            return self.push(spot, old, new);
        }
        let gone = old_fields.keys().filter(|key| !new_fields.contains_key(*key));
        for key in new_fields.keys().chain(gone) {
            self.compare(&spot.of_key(key), old_fields.get(key), new_fields.get(key));
        }
    }

    fn elements(&mut self, spot: &Spot, old: &[(&str, &Value)], new: &[(&str, &Value)]) {
        let place = |among: &[(&str, &Value)], name: &str| among.iter().position(|(other, _)| *other == name);
        let before = self.changes.len();
        for (at, (name, value)) in new.iter().enumerate() {
            let was = place(old, name);
            self.compare(&spot.of_element(name, was, Some(at)), was.map(|was| old[was].1), Some(value));
        }
        for (at, (name, value)) in old.iter().enumerate() {
            if place(new, name).is_none() {
                self.compare(&spot.of_element(name, Some(at), None), Some(value), None);
            }
        }
        if self.changes.len() == before {
            let order = |among: &[(&str, &Value)]| {
                Value::Array(among.iter().map(|(name, _)| Value::from(*name)).collect())
            };
            self.push(spot, Some(&order(old)), Some(&order(new)));
        }
    }

    fn push(&mut self, spot: &Spot, old: Option<&Value>, new: Option<&Value>) {
        let line = match (self.is.filter(|_| new.is_some()), self.was) {
            (Some(is), _) => is.source.value_place(&spot.new).line,
            (None, Some(was)) => was.source.value_place(&spot.old).line,
            (None, None) => 0,
        };
        let hidden = [old, new].into_iter().flatten().any(|value| may_be_secret(spot, value));
        let value = |value: Option<&Value>| value.filter(|_| !hidden).map(legible);
        let (before, after) = (value(old), value(new));
        self.changes.push(FieldChange { field: spot.field.clone(), line, before, after, hidden });
    }
}

/// The elements of a list with their names, where each has one of its own.
fn named(list: Option<&Value>) -> Option<Vec<(&str, &Value)>> {
    let Some(list) = list else { return Some(Vec::new()) };
    let named: Option<Vec<(&str, &Value)>> =
        list.as_array()?.iter().map(|value| Some((value.get("name")?.as_str()?, value))).collect();
    let named = named.filter(|named| !named.is_empty())?;
    let mut names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    (names.len() == named.len()).then_some(named)
}

/// A variable's value, unless it is a reference: nobody can tell whether it is a secret.
fn may_be_secret(spot: &Spot, value: &Value) -> bool {
    let is_variable = spot.old.starts_with("/spec/env/") || spot.new.starts_with("/spec/env/");
    let is_reference = |text: &str| matches!(Reference::parse(text), Some(Ok(_)));
    is_variable && value.as_str().is_some_and(|text| !is_reference(text))
}

/// A value without what looks like a key that was pasted in the wrong place.
fn legible(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(shown(text.clone())),
        Value::Array(items) => Value::Array(items.iter().map(legible).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (shown(key.clone()), legible(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
