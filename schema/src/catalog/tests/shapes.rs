//! Manifests of every kind whose fields are dropped, renamed, retyped, or hold a secret.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::mutations::check_places;
use super::*;

const SELLER: &str = include_str!("seller.yaml");

/// The fields and items of a document, each by the way to it.
fn nodes(value: &Value, pointer: &str, found: &mut Vec<String>) {
    let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let pointer = format!("{pointer}/{}", escaped(name));
                found.push(pointer.clone());
                nodes(field, &pointer, found);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                let pointer = format!("{pointer}/{i}");
                found.push(pointer.clone());
                nodes(item, &pointer, found);
            }
        }
        _ => {}
    }
}

/// One node of one document, by shares of how many there are.
fn pick(documents: &[Value], document: f64, node: f64) -> (usize, String) {
    let at = super::mutations::index(document, documents.len());
    let mut found = Vec::new();
    nodes(&documents[at], "", &mut found);
    let node = super::mutations::index(node, found.len());
    (at, found.swap_remove(node))
}

fn files(documents: &[Value]) -> Files {
    let text = documents.iter().map(|value| format!("---\n{value:#}\n")).collect::<String>();
    Files::from([("a.yaml".to_owned(), text.into_bytes())])
}

fn documents() -> Vec<Value> {
    serde_yaml::from_multiple(SELLER).unwrap()
}

/// The mapping around a node, and the node's name in it.
fn around<'a>(
    document: &'a mut Value,
    pointer: &str,
) -> Option<(&'a mut serde_json::Map<String, Value>, String)> {
    let (parent, name) = pointer.rsplit_once('/')?;
    Some((document.pointer_mut(parent)?.as_object_mut()?, name.replace("~1", "/").replace("~0", "~")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_dropped_field_is_missed_or_was_optional(document in 0.0..1.0f64, node in 0.0..1.0f64) {
        let mut documents = documents();
        let (at, pointer) = pick(&documents, document, node);
        let Some((fields, name)) = around(&mut documents[at], &pointer) else { return Ok(()) };
        fields.remove(&name);
        let files = files(&documents);
        if let Err(found) = Catalog::from_files(&files) {
            check_places(&files, &found)?;
        }
    }

    #[test]
    fn a_renamed_field_is_never_accepted(document in 0.0..1.0f64, node in 0.0..1.0f64) {
        let mut documents = documents();
        let (at, pointer) = pick(&documents, document, node);
        let Some((fields, name)) = around(&mut documents[at], &pointer) else { return Ok(()) };
        let value = fields.remove(&name).unwrap();
        fields.insert(format!("{name}X"), value);
        let files = files(&documents);
        let found = Catalog::from_files(&files);
        prop_assert!(found.is_err(), "{pointer}");
        check_places(&files, &found.unwrap_err())?;
    }

    #[test]
    fn a_field_of_another_type_is_refused_at_its_place(
        document in 0.0..1.0f64,
        node in 0.0..1.0f64,
        other in prop::sample::select(vec![json!(null), json!(true), json!(-1), json!(0.5), json!(""), json!([]), json!({}), json!([[]])]),
    ) {
        let mut documents = documents();
        let (at, pointer) = pick(&documents, document, node);
        let node = documents[at].pointer_mut(&pointer).unwrap();
        let is_same = std::mem::discriminant(node) == std::mem::discriminant(&other);
        *node = other;
        let files = files(&documents);
        match Catalog::from_files(&files) {
            // Numbers and texts stand for each other where a field takes both.
            Ok(_) => prop_assert!(is_same || pointer.ends_with("/above"), "{pointer}"),
            Err(found) => check_places(&files, &found)?,
        }
    }

    #[test]
    fn a_planted_key_is_refused_wherever_it_stands_and_shown_nowhere(document in 0.0..1.0f64, node in 0.0..1.0f64) {
        let mut documents = documents();
        let (at, pointer) = pick(&documents, document, node);
        *documents[at].pointer_mut(&pointer).unwrap() = json!("sk-denv-PLANTED0secret0value");
        let files = files(&documents);
        let found = Catalog::from_files(&files);
        prop_assert!(found.is_err(), "{pointer}");
        let found = found.unwrap_err();
        check_places(&files, &found)?;
        let shown = format!("{found} {found:?} {}", serde_json::to_string(&found).unwrap());
        prop_assert!(!shown.contains("PLANTED"), "{shown}");
    }
}
