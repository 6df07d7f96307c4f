//! A kind's page in the reference.

use std::fmt::Write as _;

use super::{Field, explain};
use crate::manifest::Kind;

/// The page of a kind, as Markdown. `example` is a manifest of it, in YAML.
pub fn page(kind: Kind, example: &str) -> String {
    let root = explain(kind);
    let mut text = format!(
        "# {kind}\n\n{}\n\n[How manifests are read](../manifests.md), [how values are written](../manifests.md#values). On \
         the command line: `denv explain {}`. For editors: [schemas/{}.json](schemas/{}.json).\n\n```yaml\n{}\n```\n\n",
        root.description,
        kind.singular(),
        kind.singular(),
        kind.singular(),
        example.trim_end(),
    );
    text.push_str("## Fields of `spec`\n\n| Field | Type | Default | Meaning |\n| --- | --- | --- | --- |\n");
    let spec = root.fields.iter().find(|field| field.name == "spec");
    spec.into_iter().for_each(|spec| rows(&spec.fields, "", &mut text));
    text
}

fn rows(fields: &[Field], path: &str, text: &mut String) {
    for field in fields {
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        let default = match (&field.default, field.required) {
            (_, true) => "required".to_owned(),
            (Some(default), false) => format!("`{default}`"),
            (None, false) => String::new(),
        };
        let mut meaning = field.description.clone();
        for choice in &field.choices {
            match choice.description.as_str() {
                "" => write!(meaning, " `{}`.", choice.word),
                description => write!(meaning, " `{}`: {description}", choice.word),
            }
            .expect("writing to a String cannot fail");
        }
        let mut rules = field.rules.iter().map(String::as_str);
        if let Some(first) = rules.next() {
            let rules = std::iter::once(first).chain(rules).collect::<Vec<_>>().join("; ");
            write!(meaning, " ({rules})").expect("writing to a String cannot fail");
        }
        let meaning = meaning.replace('|', "\\|");
        writeln!(text, "| `{path}` | {} | {default} | {meaning} |", field.kind)
            .expect("writing to a String cannot fail");
        let inside = if field.kind.starts_with("list") { format!("{path}[]") } else { path };
        rows(&field.fields, &inside, text);
    }
}
