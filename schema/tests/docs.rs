//! `docs/manifests.md` says what the types say: its tables are made from the JSON Schemas. Run with `UPDATE_DOCS=1`
//! to write them anew.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;

use denv_schema::diagnostic::Code;
use denv_schema::manifest::Kind;
use denv_schema::manifest::{StagePattern, TimeOfDay};
use denv_schema::quantity::{Amount, ByteSize, Money, Share};
use denv_schema::tree::Files;
use denv_schema::{Catalog, Digest, Name, StageId};
use schemars::{JsonSchema, schema_for};
use serde_json::Value;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/manifests.md");

#[test]
fn the_tables_are_those_of_the_types() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let mut made = with_table(&page, "metadata", &table(&Kind::Host.json_schema().to_value(), "metadata"));
    for kind in Kind::ALL {
        made = with_table(&made, kind.as_str(), &table(&kind.json_schema().to_value(), "spec"));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &made).unwrap();
        return;
    }
    assert!(
        page == made,
        "docs/manifests.md is stale: run `UPDATE_DOCS=1 cargo nextest run -p denv-schema tables`"
    );
}

#[test]
fn every_code_is_explained() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let codes = words(&schema_for!(Code).to_value());
    assert!(codes.len() > 5, "{codes:?}");
    for (code, _) in codes {
        assert!(page.contains(&format!("| `{code}` |")), "the code `{code}` is not explained");
    }
}

#[test]
fn the_examples_are_one_valid_configuration() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let examples = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let files: Files =
        examples.enumerate().map(|(i, text)| (format!("{i:02}.yaml"), text.as_bytes().to_vec())).collect();
    assert_eq!(files.len(), Kind::ALL.len(), "each kind has one example");
    let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(catalog.keys.len(), 1);
}

/// The page with a table put between its marks.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- fields: {name} -->\n");
    let start = page.find(&begin).unwrap_or_else(|| panic!("docs/manifests.md has no table for {name}"));
    let start = start + begin.len();
    let end = start + page[start..].find("<!-- end -->").unwrap();
    format!("{}\n{table}\n{}", &page[..start], &page[end..])
}

fn table(schema: &Value, part: &str) -> String {
    let mut text = "| Field | Type | Default | Meaning |\n| --- | --- | --- | --- |\n".to_owned();
    rows(&schema["properties"][part], "", &mut text);
    text
}

fn rows(schema: &Value, path: &str, text: &mut String) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let schema = present(field);
        let default = match (required.contains(&name.as_str()), field.get("default")) {
            (true, _) => "required".to_owned(),
            (false, Some(Value::Object(_) | Value::Null) | None) => String::new(),
            (false, Some(default)) => {
                format!("`{}`", default.to_string().replace('"', "").replace(',', ", "))
            }
        };
        let meaning = meaning(&path, field, schema);
        writeln!(text, "| `{path}` | {} | {default} | {meaning} |", type_of(schema)).unwrap();
        match schema.get("items") {
            Some(items) => rows(items, &format!("{path}[]"), text),
            None => rows(schema, &path, text),
        }
    }
}

/// A field's own schema, where it may also be left out.
fn present(field: &Value) -> &Value {
    let any = field["anyOf"].as_array();
    any.and_then(|any| any.iter().find(|schema| schema["type"] != "null")).unwrap_or(field)
}

fn meaning(path: &str, field: &Value, schema: &Value) -> String {
    let own = [field, schema].iter().find_map(|schema| schema["description"].as_str());
    let mut text = own.unwrap_or_else(|| panic!("`{path}` has no description")).replace('\n', " ");
    for (word, description) in words(schema).iter().filter(|(_, description)| !description.is_empty()) {
        write!(text, " `{word}`: {}", description.replace('\n', " ")).unwrap();
    }
    // Amounts and plain numbers have limits of their types, which nobody needs to read.
    let limit = |keyword: &str| schema[keyword].as_u64().filter(|limit| (1..100_000).contains(limit));
    for (keyword, words) in [("minimum", "At least"), ("maximum", "At most")] {
        if let Some(limit) = limit(keyword) {
            write!(text, " {words} {limit}.").unwrap();
        }
    }
    text
}

/// The words of a choice, each with what it means.
fn words(schema: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        let description = choice["description"].as_str().unwrap_or_default().to_owned();
        match choice["const"].as_str() {
            Some(word) => found.push((word.to_owned(), description)),
            None => found.extend(words(choice)),
        }
    }
    let plain = schema["enum"].as_array().into_iter().flatten();
    found.extend(plain.filter_map(Value::as_str).map(|word| (word.to_owned(), String::new())));
    found
}

fn type_of(schema: &Value) -> String {
    fn has_pattern_of<T: JsonSchema>(schema: &Value) -> bool {
        schema["pattern"].is_string() && schema["pattern"] == schema_for!(T).to_value()["pattern"]
    }
    let choices = words(schema);
    let is = |kind: &str| {
        let several = schema["type"].as_array();
        schema["type"] == kind || several.is_some_and(|kinds| kinds.iter().any(|it| it == kind))
    };
    let name = match schema {
        _ if !choices.is_empty() => {
            let choices = choices.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>();
            return choices.join(" or ");
        }
        _ if has_pattern_of::<Name>(schema) => "name",
        _ if has_pattern_of::<StageId>(schema) => "`environment/stage`",
        _ if has_pattern_of::<Digest>(schema) => "digest",
        _ if has_pattern_of::<Amount>(schema) => "amount",
        _ if has_pattern_of::<ByteSize>(schema) => "size",
        _ if has_pattern_of::<Money>(schema) => "money",
        _ if has_pattern_of::<Share>(schema) => "share",
        _ if has_pattern_of::<TimeOfDay>(schema) => "time of day",
        _ if has_pattern_of::<StagePattern>(schema) => "stages",
        _ if schema["format"] == "period" => "period",
        _ if schema["format"] == "threshold" => "period, share or number",
        _ if schema["format"] == "date-time" => "time",
        _ if schema["format"] == "secret-reference" => "secret reference",
        _ if schema["x-kubernetes-preserve-unknown-fields"] == true => "free form",
        _ if is("array") => return format!("list of {}", plural(&type_of(&schema["items"]))),
        _ if schema["additionalProperties"].is_object() => "mapping of text",
        _ if is("object") => "fields",
        _ if is("integer") => "number",
        _ if is("boolean") => "`true` or `false`",
        _ => "text",
    };
    name.to_owned()
}

fn plural(name: &str) -> String {
    match name {
        "name" | "amount" | "digest" | "period" | "number" | "size" | "time" | "share" => format!("{name}s"),
        "fields" => "mappings".to_owned(),
        other => other.to_owned(),
    }
}
