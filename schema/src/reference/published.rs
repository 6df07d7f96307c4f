//! The JSON Schemas that editors and CI read.

use serde_json::{Map, Value, json};

use crate::manifest::{API_VERSION, Kind};

/// The JSON Schema of a manifest of one kind. An optional field is left out or has a value, so none may be null.
pub fn json_schema(kind: Kind) -> Value {
    let mut schema = kind.json_schema().to_value();
    without_null(&mut schema);
    let fields = schema.as_object_mut().expect("a manifest is an object");
    fields.insert("title".to_owned(), kind.as_str().into());
    for (field, only) in [("apiVersion", API_VERSION), ("kind", kind.as_str())] {
        let property = &mut fields["properties"][field];
        *property = json!({ "description": property["description"], "const": only });
        if property["description"].is_null() {
            property.as_object_mut().expect("it was just made").remove("description");
        }
    }
    schema
}

/// The JSON Schema of a manifest of any kind: the one that `kind` says.
pub fn all_kinds() -> Value {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let rules: Vec<Value> = Kind::ALL
        .iter()
        .map(|kind| {
            let mut schema = json_schema(*kind);
            schema.as_object_mut().expect("a manifest is an object").remove("$schema");
            json!({ "if": { "properties": { "kind": { "const": kind.as_str() } }, "required": ["kind"] }, "then": schema })
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "denv",
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": { "apiVersion": { "const": API_VERSION }, "kind": { "enum": kinds } },
        "allOf": rules
    })
}

fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            one_that_is_not_null(object);
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            object.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn one_that_is_not_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(any)) = object.get_mut("anyOf") {
        any.retain(|schema| schema["type"] != "null");
        if let [Value::Object(only)] = any.as_mut_slice() {
            let only = std::mem::take(only);
            object.remove("anyOf");
            // The field's own description says more than its type's.
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}
