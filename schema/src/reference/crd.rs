//! A kind as a Kubernetes custom resource. Its schema is structural, as the API server demands: each value has one type,
//! nothing refers elsewhere, and what JSON Schema has beyond OpenAPI 3.0 is left out. denv itself checks the rest.

use serde_json::{Map, Value, json};

use super::json_schema;
use crate::manifest::Kind;

const GROUP: &str = "denv.dev";
const VERSION: &str = "v1";

/// The CustomResourceDefinition of a kind.
pub fn crd(kind: Kind) -> Value {
    let schema = json_schema(kind);
    let plural = kind.plural();
    let mut spec = structural(&schema["properties"]["spec"]);
    let description = spec.as_object_mut().and_then(|spec| spec.remove("description")).unwrap_or_default();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.as_str(),
                "listKind": format!("{kind}List"),
                "singular": kind.singular(),
                "plural": plural,
                "categories": ["denv"]
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": {
                    "description": description,
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": { "type": "string" },
                        "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": spec
                    }
                } }
            }]
        }
    })
}

/// The keywords that mean the same in both.
const KEPT: [&str; 12] = [
    "description",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "pattern",
    "required",
    "enum",
    "x-kubernetes-preserve-unknown-fields",
];

fn structural(schema: &Value) -> Value {
    let Some(given) = schema.as_object() else {
        return json!({ "x-kubernetes-preserve-unknown-fields": true });
    };
    let mut made = Map::new();
    match given.get("type") {
        // Amounts and bounds: the API server reads both, and has its own word for it.
        Some(Value::Array(_)) => {
            made.insert("x-kubernetes-int-or-string".to_owned(), true.into());
        }
        Some(Value::String(kind)) => {
            made.insert("type".to_owned(), kind.as_str().into());
        }
        _ => {
            made.insert("type".to_owned(), "string".into());
        }
    }
    let is_either = made.contains_key("x-kubernetes-int-or-string");
    for (keyword, value) in given.iter().filter(|(keyword, _)| KEPT.contains(&keyword.as_str())) {
        // A bound of the number does not hold for the text, nor a pattern of the text for the number.
        let is_of_one =
            matches!(keyword.as_str(), "minimum" | "maximum" | "pattern" | "minLength" | "maxLength");
        if !(is_either && is_of_one) {
            made.insert(keyword.clone(), value.clone());
        }
    }
    if given.get("type").and_then(Value::as_str) == Some("integer") {
        made.insert("format".to_owned(), "int64".into());
    }
    if let Some(choices) = given.get("oneOf").and_then(Value::as_array) {
        words(choices, &mut made);
    }
    if let Some(properties) = given.get("properties").and_then(Value::as_object) {
        let properties: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), structural(schema))).collect();
        made.insert("properties".to_owned(), properties.into());
    } else if let Some(values) = given.get("additionalProperties").filter(|values| values.is_object()) {
        made.insert("additionalProperties".to_owned(), structural(values));
    }
    if let Some(items) = given.get("items") {
        made.insert("items".to_owned(), structural(items));
    }
    made.into()
}

/// The words of a choice, with what each means in the description.
fn words(choices: &[Value], made: &mut Map<String, Value>) {
    let mut description = made.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut words = Vec::new();
    for choice in choices {
        if let Some(word) = choice["const"].as_str() {
            if let Some(meaning) = choice["description"].as_str() {
                description.push_str(&format!("\n`{word}`: {meaning}"));
            }
            words.push(Value::from(word));
        }
        words.extend(choice["enum"].as_array().into_iter().flatten().cloned());
    }
    made.insert("type".to_owned(), "string".into());
    made.insert("enum".to_owned(), words.into());
    made.insert("description".to_owned(), description.trim().into());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of structural schemas, and what the API server takes beside them.
    fn check(schema: &Value, path: &str, broken: &mut Vec<String>) {
        let fields = schema.as_object().unwrap();
        let known = [
            KEPT.as_slice(),
            &["type", "format", "properties", "additionalProperties", "items", "x-kubernetes-int-or-string"],
        ]
        .concat();
        let mut wrong = |what: &str| broken.push(format!("{path}: {what}"));
        for keyword in fields.keys().filter(|keyword| !known.contains(&keyword.as_str())) {
            wrong(&format!("unknown keyword {keyword}"));
        }
        let either = fields.contains_key("x-kubernetes-int-or-string");
        if either == fields.get("type").is_some_and(Value::is_string) {
            wrong("a value has one type, or is an int or a string");
        }
        if fields.contains_key("properties") && fields.contains_key("additionalProperties") {
            wrong("properties exclude additionalProperties");
        }
        if fields.get("type").is_some_and(|kind| kind == "array") && !fields.contains_key("items") {
            wrong("a list has items");
        }
        if fields.get("default").is_some_and(Value::is_null) {
            wrong("a default is not null");
        }
        let properties = fields.get("properties").and_then(Value::as_object);
        for name in fields.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !properties.is_some_and(|properties| properties.contains_key(name.as_str().unwrap())) {
                wrong(&format!("required {name} is not there"));
            }
        }
        for (name, inside) in properties.into_iter().flatten() {
            check(inside, &format!("{path}.{name}"), broken);
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(inside) = fields.get(keyword) {
                check(inside, &format!("{path}.{keyword}"), broken);
            }
        }
    }

    #[test]
    fn schemas_are_structural_and_say_what_the_types_say() {
        let mut broken = Vec::new();
        for kind in Kind::ALL {
            let crd = crd(*kind);
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            check(schema, kind.as_str(), &mut broken);
            assert_eq!(crd["metadata"]["name"], format!("{}.denv.dev", kind.plural()));
        }
        assert_eq!(broken, [] as [String; 0]);
    }

    #[test]
    fn defaults_and_amounts_are_kept() {
        let crd = crd(Kind::Stage);
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rollout = &spec["properties"]["rollout"]["properties"];
        assert_eq!(rollout["batches"]["items"]["x-kubernetes-int-or-string"], true);
        assert_eq!(rollout["batches"]["default"], json!([1, "25%", "100%"]));
        assert_eq!(rollout["strategy"]["enum"], json!(["surge", "replace", "auto"]));
    }
}
