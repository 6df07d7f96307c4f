//! One document, changed field by field.

use serde_json::Value;
use yaml_edit::{AsYaml, Document, Mapping, Sequence, YamlFile};

use crate::yaml;

/// `document` changed so that it reads as `wanted` does, and whether all comments are still there. Where
/// an edit does not come out as meant, `wanted` takes the document's place as it stands.
pub(super) fn edited(document: &str, wanted: &str) -> (String, bool) {
    if let Some(edited) = value(wanted).and_then(|wanted| changed(document, &wanted)) {
        return edited;
    }
    let begin = if document.starts_with("---") && !wanted.starts_with("---") { "---\n" } else { "" };
    let text = wanted.trim_end();
    (format!("{begin}{text}\n"), !document.contains('#'))
}

/// `document` changed so that it reads as `wanted`, and whether all comments are still there; none if no edit of it does.
fn changed(document: &str, wanted: &Value) -> Option<(String, bool)> {
    let windows = document.contains("\r\n");
    let unix = if windows { document.replace("\r\n", "\n") } else { document.to_owned() };
    let old = value(&unix)?;
    [Style::Block, Style::Flow].into_iter().find_map(|style| {
        let text = attempt(&unix, &old, wanted, style)?;
        let kept = comments(&text) >= comments(&unix);
        let reads = value(&text)? == *wanted;
        reads.then(|| (if windows { text.replace('\n', "\r\n") } else { text }, kept))
    })
}

/// `document` with the field at a JSON pointer set.
pub(super) fn patched(document: &str, pointer: &str, value_of_field: &Value) -> Option<String> {
    let mut wanted = value(document)?;
    let (parent, field) = pointer.rsplit_once('/')?;
    wanted.pointer_mut(parent)?.as_object_mut()?.insert(field.to_owned(), value_of_field.clone());
    changed(document, &wanted).map(|(text, _)| text)
}

/// How new lists and mappings are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Block,
    Flow,
}

fn value(text: &str) -> Option<Value> {
    let parts = yaml::parts(text);
    let [part] = parts.as_slice() else { return None };
    part.read().ok()?.into_iter().next().map(|document| document.value)
}

/// How many lines are comments. A field that goes may take its own with it.
fn comments(text: &str) -> usize {
    text.lines().filter(|line| line.trim_start().starts_with('#')).count()
}

fn attempt(text: &str, old: &Value, new: &Value, style: Style) -> Option<String> {
    let file: YamlFile = text.parse().ok()?;
    let root = file.document()?.as_mapping()?;
    change_mapping(&root, old, new, style)?;
    Some(file.to_string())
}

fn change_mapping(mapping: &Mapping, old: &Value, new: &Value, style: Style) -> Option<()> {
    let (old, new) = (old.as_object()?, new.as_object()?);
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        mapping.remove(key.as_str())?.discard();
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                change_mapping(&mapping.get_mapping(key.as_str())?, before, value, style)?;
            }
            Some(Value::Array(before)) if value.is_array() => {
                let after = value.as_array()?;
                match mapping.get_sequence(key.as_str()) {
                    Some(sequence) if change_sequence(&sequence, before, after, style).is_some() => {}
                    _ => set(mapping, key, value, style)?,
                }
            }
            _ => set(mapping, key, value, style)?,
        }
    }
    Some(())
}

/// Elements are changed one by one where their number stays, added at the end, or taken away; anything else is another
/// list.
fn change_sequence(sequence: &Sequence, old: &[Value], new: &[Value], style: Style) -> Option<()> {
    if old.len() == new.len() {
        for (at, (before, after)) in
            old.iter().zip(new).enumerate().filter(|(_, (before, after))| before != after)
        {
            match (before, after) {
                (Value::Object(_), Value::Object(_)) => {
                    change_mapping(sequence.get(at)?.as_mapping()?, before, after, style)?;
                }
                (_, Value::Object(_) | Value::Array(_)) => return None,
                _ => scalar(after, |value| sequence.set(at, value).then_some(()))?,
            }
        }
        return Some(());
    }
    if let Some(more) = new.strip_prefix(old) {
        for value in more {
            if value.is_object() || value.is_array() {
                // An element takes the style of the list.
                let flow = sequence.is_flow_style() || style == Style::Flow;
                let document: Document =
                    rendered(value, if flow { Style::Flow } else { style }).parse().ok()?;
                push(sequence, &document)?;
            } else {
                scalar(value, |value| {
                    sequence.push(value);
                    Some(())
                })?;
            }
        }
        return Some(());
    }
    let mut rest = new.iter().peekable();
    let kept: Vec<bool> = old.iter().map(|value| rest.next_if(|next| *next == value).is_some()).collect();
    if rest.peek().is_some() {
        return None;
    }
    for at in (0..old.len()).rev().filter(|at| !kept[*at]) {
        sequence.remove(at)?;
    }
    Some(())
}

fn push(sequence: &Sequence, document: &Document) -> Option<()> {
    if let Some(mapping) = document.as_mapping() {
        sequence.push(mapping);
    } else {
        sequence.push(document.as_sequence()?);
    }
    Some(())
}

fn set(mapping: &Mapping, key: &str, value: &Value, style: Style) -> Option<()> {
    if !(value.is_object() || value.is_array()) {
        return scalar(value, |value| {
            mapping.set(key, value);
            Some(())
        });
    }
    // What is written in flow style stays so, and lists of words are best read so.
    let flow = mapping.is_flow_style()
        || mapping.get_sequence(key).is_some_and(|old| old.is_flow_style())
        || mapping.get_mapping(key).is_some_and(|old| old.is_flow_style())
        || value
            .as_array()
            .is_some_and(|items| items.iter().all(|item| !item.is_object() && !item.is_array()));
    let style = if flow { Style::Flow } else { style };
    let document: Document = rendered(value, style).parse().ok()?;
    if let Some(inner) = document.as_mapping() {
        mapping.set(key, inner);
    } else {
        mapping.set(key, document.as_sequence()?);
    }
    Some(())
}

/// Hands a scalar on as what it is.
fn scalar(value: &Value, give: impl FnOnce(&dyn Scalar) -> Option<()>) -> Option<()> {
    match value {
        Value::String(text) => give(text),
        Value::Bool(value) => give(value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => give(&number),
            None => give(&number.as_f64()?),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What a scalar may be.
trait Scalar: AsYaml {}
impl Scalar for String {}
impl Scalar for bool {}
impl Scalar for i64 {}
impl Scalar for f64 {}

fn rendered(value: &Value, style: Style) -> String {
    match style {
        Style::Block => serde_yaml::to_string(value).unwrap_or_default(),
        Style::Flow => flow(value),
    }
}

/// On one line: `{name: local, units: {min: 2}}`.
fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{}: {}", flow_text(key), flow(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => flow_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Plain where it reads as text everywhere, else in quotes: JSON's are YAML's.
fn flow_text(text: &str) -> String {
    let plain = serde_yaml::to_string(&text).unwrap_or_default();
    let plain = plain.trim_end();
    if plain == text && !text.contains([',', '[', ']', '{', '}']) {
        plain.to_owned()
    } else {
        Value::from(text).to_string()
    }
}
