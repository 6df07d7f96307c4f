//! The reference says what the types say: its pages and schemas are made from them. Run with `UPDATE_DOCS=1` to write
//! them anew.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use denv_schema::Catalog;
use denv_schema::diagnostic::Code;
use denv_schema::launch::PLACEHOLDERS;
use denv_schema::manifest::Kind;
use denv_schema::reference;
use denv_schema::tree::Files;
use schemars::schema_for;
use serde_json::Value;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn example(kind: Kind) -> String {
    fs::read_to_string(docs().join(format!("reference/examples/{}.yaml", kind.singular()))).unwrap()
}

/// The file holds this, or is made to.
fn is_fresh(path: &str, text: &str) {
    let file = docs().join("reference").join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(file, text).unwrap();
        return;
    }
    let stale = fs::read_to_string(&file).unwrap_or_default() != text;
    assert!(
        !stale,
        "docs/reference/{path} is stale: run `UPDATE_DOCS=1 cargo nextest run -p denv-schema --test docs`"
    );
}

#[test]
fn the_pages_are_those_of_the_types() {
    for kind in Kind::ALL {
        is_fresh(&format!("{}.md", kind.singular()), &reference::page(*kind, &example(*kind)));
    }
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let text = |schema: &Value| format!("{}\n", serde_json::to_string_pretty(schema).unwrap());
    for kind in Kind::ALL {
        is_fresh(&format!("schemas/{}.json", kind.singular()), &text(&reference::json_schema(*kind)));
    }
    is_fresh("schemas/denv.json", &text(&reference::all_kinds()));
}

#[test]
fn every_kind_has_a_page_that_is_linked() {
    let page = fs::read_to_string(docs().join("manifests.md")).unwrap();
    for kind in Kind::ALL {
        let link = format!("[{kind}](reference/{}.md)", kind.singular());
        assert!(page.contains(&link), "docs/manifests.md has no link {link}");
    }
}

#[test]
fn every_code_is_explained() {
    let page = fs::read_to_string(docs().join("manifests.md")).unwrap();
    assert_eq!(
        words(&schema_for!(Code).to_value()),
        Code::ALL.iter().map(ToString::to_string).collect::<Vec<_>>()
    );
    for code in Code::ALL {
        let link = format!("| [`{code}`](reference/errors/{code}.md) |");
        assert!(page.contains(&link), "docs/manifests.md has no row {link}");
    }
}

#[test]
fn every_placeholder_is_explained() {
    let page = fs::read_to_string(docs().join("manifests.md")).unwrap();
    for placeholder in PLACEHOLDERS {
        let is_in_table = page.lines().any(|line| {
            line.strip_prefix("| `${").is_some() && line.split(" | ").next().unwrap().contains(placeholder)
        });
        assert!(is_in_table, "docs/manifests.md has no row of {placeholder}");
    }
}

#[test]
fn the_examples_are_one_valid_configuration() {
    let files: Files = Kind::ALL
        .iter()
        .map(|kind| (format!("{}.yaml", kind.singular()), example(*kind).into_bytes()))
        .collect();
    let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(catalog.keys.len(), 1);
}

/// The schema that editors use agrees with what validation says.
#[test]
fn the_published_schemas_accept_the_examples_and_refuse_unknown_fields() {
    let validator = jsonschema::validator_for(&reference::all_kinds()).unwrap();
    for kind in Kind::ALL {
        let mut value: Value = serde_yaml::from_str(&example(*kind)).unwrap();
        let faults: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert_eq!(faults, [] as [String; 0], "{kind}");
        value["spec"]["surelyUnknown"] = true.into();
        assert!(!validator.is_valid(&value), "{kind}");
    }
}

fn words(schema: &Value) -> Vec<String> {
    let own = schema["const"].as_str().map(str::to_owned);
    let plain = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let inside = schema["oneOf"].as_array().into_iter().flatten().flat_map(words);
    own.into_iter().chain(plain).chain(inside).collect()
}
