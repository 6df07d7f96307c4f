//! `denv explain`: what a field of a manifest is, as the types say it.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use denv_schema::diagnostic::Code;
use denv_schema::reference::{self, Field};
use serde_json::json;

use crate::error::Error;
use crate::output::{Exit, Output};
use crate::resource::manifest_kind;

/// Say what a kind of manifest or a field of it is, or what a fault means
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// A kind and perhaps a field: `stage`, `stage.spec.rollout.batches`; or the code of a fault: `unknown-field`
    path: String,
    /// Show all fields below it, not only the next ones
    #[arg(long)]
    recursive: bool,
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// For tools: the field with all below it
    Json,
}

const EXAMPLES: &str = "\
Examples:
  What a Stage is made of:
    denv explain stage
  What one field means, and what it is when it is left out:
    denv explain stage.spec.rollout.batches
  All that a Release may say:
    denv explain release.spec --recursive
  What a fault means, and what to do:
    denv explain unknown-field";

pub(crate) fn run(arguments: &Explain, output: &mut Output) -> Result<Exit, Error> {
    if let Some(code) = Code::ALL.iter().find(|code| code.as_str() == arguments.path) {
        match arguments.output {
            Form::Json => output.json(&json!({"code": code, "title": code.title(), "page": code.page()}))?,
            Form::Text => output.say(code.page())?,
        }
        return Ok(Exit::Done);
    }
    let mut parts = arguments.path.split('.').map(|part| part.trim_end_matches("[]"));
    let kind = parts.next().unwrap_or_default();
    let kind = manifest_kind(kind)
        .map_err(|hint| Error::Usage { message: format!("there is no kind `{kind}`"), hint: Some(hint) })?;
    let root = reference::explain(kind);
    let field = root
        .at(parts)
        .map_err(|error| Error::Usage { message: error.to_string(), hint: Some(error.hint.clone()) })?;
    match arguments.output {
        Form::Json => output.json(field)?,
        Form::Text => output.say(&text(&arguments.path, field, arguments.recursive))?,
    }
    Ok(Exit::Done)
}

fn text(path: &str, field: &Field, recursive: bool) -> String {
    let mut text = format!("{path}: {}\n", about(field));
    if !field.description.is_empty() {
        let _ = write!(text, "\n{}", wrapped(&field.description, 2));
    }
    for choice in &field.choices {
        let _ = write!(
            text,
            "\n{}",
            wrapped(format!("{}: {}", choice.word, choice.description).trim_end_matches(": "), 4)
        );
    }
    for rule in &field.rules {
        let _ = write!(text, "\n{}", wrapped(rule, 2));
    }
    if !field.fields.is_empty() {
        text.push_str("\n\nFields:\n");
        fields(&field.fields, 2, recursive, &mut text);
    }
    text.trim_end().to_owned() + "\n"
}

/// The type, and whether it may be left out.
fn about(field: &Field) -> String {
    match (&field.default, field.required) {
        (_, true) => format!("{}, required", field.kind),
        (Some(default), false) => format!("{}, default {default}", field.kind),
        (None, false) => field.kind.clone(),
    }
}

fn fields(inside: &[Field], indent: usize, recursive: bool, text: &mut String) {
    for field in inside {
        let _ = writeln!(text, "{:indent$}{}: {}", "", field.name, about(field));
        if recursive {
            fields(&field.fields, indent + 2, true, text);
        } else if !field.description.is_empty() {
            let _ = writeln!(text, "{}", wrapped(&field.description, indent + 2));
        }
    }
}

const WIDTH: usize = 100;

fn wrapped(words: &str, indent: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in words.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("{:indent$}{line}", ""));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(format!("{:indent$}{line}", ""));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use denv_schema::manifest::Kind;

    use super::*;

    fn of(kind: Kind, path: &[&str], recursive: bool) -> String {
        let root = reference::explain(kind);
        text("x", root.at(path.iter().copied()).unwrap(), recursive)
    }

    #[test]
    fn a_field_says_its_type_default_and_meaning() {
        insta::assert_snapshot!(of(Kind::Stage, &["spec", "rollout", "batches"], false), @"
        x: list of amounts, default [1, 25%, 100%]

          How many units run the new release at the end of each batch, ascending; the last must be all of
          them.
          items: at least 1
        ");
        insta::assert_snapshot!(of(Kind::Stage, &["spec", "rollout", "strategy"], false), @"
        x: word, default surge

          In which order the old unit goes and the new one comes.
            surge: Start and check the new unit before the old one drains. Needs room for it.
            replace: Drain and stop the old unit, then start the new one in its place. Needs
            `maxUnavailable` of at least 1.
            auto: Surge where there is room; where there is none, replace within `maxUnavailable`.
        ");
        insta::assert_snapshot!(of(Kind::Release, &["spec", "kvCache"], false), @"
        x: fields

          Where the KV cache is kept, and who shares it. Without it: in the accelerators' memory, each unit
          its own.

        Fields:
          tiers: list of mappings, required
            Where it is kept, the fastest first. What leaves one goes to the next.
          share: word, default unit
            Who may use what one replica has computed.
        ");
        insta::assert_snapshot!(of(Kind::Release, &["spec", "topology"], true), @"
        x: fields, required

          How accelerators are used.

        Fields:
          mode: word, required
          placement: word, default same-domain
          replica: fields
            gpus: number
            cpuSlots: number
            parallelism: fields
              tensor: number, default 1
              pipeline: number, default 1
              data: number, default 1
              expert: number, default 1
          prefill: fields
            gpus: number
            cpuSlots: number
            parallelism: fields
              tensor: number, default 1
              pipeline: number, default 1
              data: number, default 1
              expert: number, default 1
          decode: fields
            gpus: number
            cpuSlots: number
            parallelism: fields
              tensor: number, default 1
              pipeline: number, default 1
              data: number, default 1
              expert: number, default 1
        ");
    }
}
