//! The Static Analysis Results Interchange Format, version 2.1.0 (OASIS): what code scanning reads.

use std::collections::BTreeSet;

use denv_schema::Diagnostics;
use denv_schema::diagnostic::{Code, Diagnostic};
use serde_json::{Value, json};

pub(super) fn log(found: &Diagnostics) -> Value {
    let codes: BTreeSet<Code> = found.iter().map(|finding| finding.code).collect();
    let rules: Vec<Value> = codes.iter().map(|code| rule(*code)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "denv",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": found.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn rule(code: Code) -> Value {
    json!({
        "id": code.as_str(),
        "shortDescription": {"text": code.title()},
        "help": {"text": code.page(), "markdown": code.page()},
    })
}

fn result(finding: &Diagnostic) -> Value {
    let hint = finding.hint.as_ref().map_or(String::new(), |hint| format!("\nhint: {hint}"));
    let mut location = json!({"artifactLocation": {"uri": uri(&finding.file)}});
    if finding.line > 0 {
        location["region"] = json!({"startLine": finding.line, "startColumn": finding.column.max(1)});
    }
    json!({
        "ruleId": finding.code.as_str(),
        "level": "error",
        "message": {"text": format!("{}{hint}", finding.message)},
        "locations": [{"physicalLocation": location}],
    })
}

/// A path as a relative reference: what means something in one is written by its number.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
