//! A kind's fields in words.

use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;

use super::json_schema;
use crate::diagnostic::nearest;
use crate::manifest::{Kind, StagePattern, TimeOfDay};
use crate::quantity::{Amount, ByteSize, Money, Share};
use crate::{Digest, Name, StageId};

/// A field, with those inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    pub name: String,
    /// In the words of the page on values: `name`, `period`, `list of amounts` …
    #[serde(rename = "type")]
    pub kind: String,
    pub required: bool,
    /// What holds where the field is left out, as it would be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    pub description: String,
    /// The words it may be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// What it must keep beside its type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    pub word: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A path that leads to no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{parent}` has no field `{name}`")]
pub struct NoSuchField {
    /// How far the path leads.
    pub parent: String,
    pub name: String,
    /// The nearest name, or all that there are.
    pub hint: String,
}

/// What a manifest of this kind may hold.
pub fn explain(kind: Kind) -> Field {
    let schema = json_schema(kind);
    let mut root = field(kind.as_str(), &schema, true);
    // What the kind is, is what its spec is.
    let spec = root.fields.iter().find(|field| field.name == "spec");
    root.description = spec.map(|spec| spec.description.clone()).unwrap_or_default();
    root
}

impl Field {
    /// The field that a path leads to, for example `spec`, `rollout`, `batches`.
    pub fn at<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Result<&Field, NoSuchField> {
        let (mut field, mut parent) = (self, self.name.to_lowercase());
        for name in path {
            let Some(inside) = field.fields.iter().find(|inside| inside.name == name) else {
                let names: Vec<&str> = field.fields.iter().map(|field| field.name.as_str()).collect();
                let hint = nearest(name, names.iter().copied()).unwrap_or_else(|| match names.as_slice() {
                    [] => format!("it has none: it is {}", field.kind),
                    names => format!("it has {}", names.join(", ")),
                });
                return Err(NoSuchField { parent, name: name.to_owned(), hint });
            };
            field = inside;
            parent = format!("{parent}.{name}");
        }
        Ok(field)
    }
}

fn field(name: &str, schema: &Value, required: bool) -> Field {
    let default = schema.get("default").filter(|default| !default.is_object());
    let shape = schema.get("items").unwrap_or(schema);
    let inside = shape["properties"].as_object().into_iter().flatten();
    let must: Vec<&str> =
        shape["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    Field {
        name: name.to_owned(),
        kind: type_of(schema),
        required,
        default: default.map(|default| default.to_string().replace('"', "").replace(',', ", ")),
        description: schema["description"].as_str().unwrap_or_default().replace('\n', " "),
        choices: if shape["type"] == "object" { Vec::new() } else { choices(shape) },
        rules: rules(schema),
        fields: inside.map(|(name, schema)| field(name, schema, must.contains(&name.as_str()))).collect(),
    }
}

/// Limits that types have of themselves are left out: nobody needs to read them.
fn rules(schema: &Value) -> Vec<String> {
    let limit = |keyword: &str| schema[keyword].as_u64().filter(|limit| (1..=1_000_000).contains(limit));
    let known = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minItems", "items: at least"),
        ("maxItems", "items: at most"),
        ("minLength", "characters: at least"),
        ("maxLength", "characters: at most"),
    ];
    let is_period = schema["format"] == "period";
    let known = known.into_iter().filter(|(keyword, _)| !(is_period && keyword.ends_with("Length")));
    let mut rules: Vec<String> =
        known.filter_map(|(keyword, words)| Some(format!("{words} {}", limit(keyword)?))).collect();
    // Of the types that have a word of their own, the page on values says the rule.
    if type_of(schema) == "text"
        && let Some(words) = schema["patternErrorMessage"].as_str()
    {
        rules.push(words.to_owned());
    }
    rules
}

/// The words of a choice, each with what it means.
fn choices(schema: &Value) -> Vec<Choice> {
    let mut found = Vec::new();
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        match choice["const"].as_str() {
            Some(word) => found.push(Choice {
                word: word.to_owned(),
                description: choice["description"].as_str().unwrap_or_default().replace('\n', " "),
            }),
            None => found.extend(choices(choice)),
        }
    }
    let plain = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    found.extend(plain.map(|word| Choice { word: word.to_owned(), description: String::new() }));
    found
}

fn type_of(schema: &Value) -> String {
    fn has_pattern_of<T: JsonSchema>(schema: &Value) -> bool {
        schema["pattern"].is_string() && schema["pattern"] == schema_for!(T).to_value()["pattern"]
    }
    let is = |kind: &str| {
        let several = schema["type"].as_array();
        schema["type"] == kind || several.is_some_and(|kinds| kinds.iter().any(|it| it == kind))
    };
    let name = match schema {
        _ if !choices(schema).is_empty() => "word",
        _ if schema["const"].is_string() => "word",
        _ if has_pattern_of::<Name>(schema) => "name",
        _ if has_pattern_of::<StageId>(schema) => "stage",
        _ if has_pattern_of::<Digest>(schema) => "digest",
        _ if has_pattern_of::<Amount>(schema) => "amount",
        _ if has_pattern_of::<ByteSize>(schema) => "size",
        _ if has_pattern_of::<Money>(schema) => "money",
        _ if has_pattern_of::<Share>(schema) => "share",
        _ if has_pattern_of::<TimeOfDay>(schema) => "time of day",
        _ if has_pattern_of::<StagePattern>(schema) => "stage pattern",
        _ if schema["format"] == "period" => "period",
        _ if schema["format"] == "threshold" => "period, share or number",
        _ if schema["format"] == "date-time" => "time",
        _ if schema["format"] == "secret-reference" => "secret reference",
        _ if schema["x-kubernetes-preserve-unknown-fields"] == true => "free form",
        _ if is("array") => return format!("list of {}", plural(&type_of(&schema["items"]))),
        _ if schema["additionalProperties"].is_object() => "mapping of text",
        _ if is("object") => "fields",
        _ if is("integer") => "number",
        _ if is("boolean") => "true or false",
        _ => "text",
    };
    name.to_owned()
}

fn plural(name: &str) -> String {
    match name {
        "fields" => "mappings".to_owned(),
        "text" => name.to_owned(),
        other => format!("{other}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_field_or_says_where_it_ends() {
        let stage = explain(Kind::Stage);
        let batches = stage.at(["spec", "rollout", "batches"]).unwrap();
        assert_eq!(
            (batches.kind.as_str(), batches.default.as_deref()),
            ("list of amounts", Some("[1, 25%, 100%]"))
        );
        let error = stage.at(["spec", "rollout", "baches"]).unwrap_err();
        assert_eq!(error.to_string(), "`stage.spec.rollout` has no field `baches`");
        assert_eq!(error.hint, "did you mean `batches`?");
        assert_eq!(stage.at(["spec", "release", "x"]).unwrap_err().hint, "it has none: it is name");
    }

    #[test]
    fn every_field_of_every_kind_says_what_it_is_for() {
        fn check(field: &Field, path: &str, silent: &mut Vec<String>) {
            let path = format!("{path}.{}", field.name);
            if field.description.is_empty() && field.kind != "word" {
                silent.push(path.clone());
            }
            field.fields.iter().for_each(|inside| check(inside, &path, silent));
        }
        let mut silent = Vec::new();
        for kind in Kind::ALL {
            explain(*kind).fields.iter().for_each(|field| check(field, kind.as_str(), &mut silent));
        }
        assert_eq!(silent, [] as [String; 0]);
    }
}
