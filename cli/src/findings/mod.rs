//! What validation found, as people and tools read it.

mod excerpt;
mod github;
mod sarif;

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use denv_schema::Diagnostics;
use denv_schema::diagnostic::{Code, Diagnostic};
use denv_schema::tree::Files;

use crate::error::Error;
use crate::output::Output;
use crate::text::counted;

pub(crate) use excerpt::render;

/// The form of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people, on standard error: what is alike is shown once, with a count
    Text,
    /// A list of all, on standard output
    Json,
    /// SARIF 2.1.0 of all, on standard output, for code scanning
    Sarif,
    /// Annotations that GitHub Actions puts beside the lines, on standard output
    Github,
}

/// Findings that are alike are shown so often in full.
const ALIKE: usize = 3;
/// Kinds of findings that are shown in full, before only counts are given.
const MOST: usize = 40;

/// Says all that was found, or nothing.
pub(crate) fn tell(found: &Diagnostics, files: &Files, form: Form, output: &mut Output) -> Result<(), Error> {
    match form {
        Form::Text => {
            if !found.is_empty() {
                output.note(&text(found, files));
            }
            Ok(())
        }
        Form::Json => output.json(found),
        Form::Sarif => output.json(&sarif::log(found)),
        Form::Github => output.say(&github::annotations(found)),
    }
}

/// All findings for people, with the lines they are about.
pub(crate) fn text(found: &Diagnostics, files: &Files) -> String {
    let mut alike: BTreeMap<(Code, String), Vec<&Diagnostic>> = BTreeMap::new();
    for finding in found.iter() {
        alike.entry((finding.code, gist(&finding.message))).or_default().push(finding);
    }
    let mut groups: Vec<Vec<&Diagnostic>> = alike.into_values().collect();
    // In the order of places; what is alike stands where the first of it does.
    groups.sort_by_key(|group| (&group[0].file, group[0].line, group[0].column));
    let mut text = String::new();
    for group in groups.iter().take(MOST) {
        for finding in group.iter().take(ALIKE) {
            let source = files.get(&finding.file).and_then(|bytes| std::str::from_utf8(bytes).ok());
            text.push_str(&render(finding, source));
            text.push('\n');
        }
        if group.len() > ALIKE {
            let more = &group[ALIKE..];
            let places: Vec<String> = more.iter().take(5).map(|finding| place(finding)).collect();
            let rest = if more.len() > places.len() { ", …" } else { "" };
            text.push_str(&format!("  … and {} more like it: {}{rest}\n\n", more.len(), places.join(", ")));
        }
    }
    if groups.len() > MOST {
        let hidden: usize = groups[MOST..].iter().map(Vec::len).sum();
        let kinds = groups.len() - MOST;
        text.push_str(&format!(
            "… and {} of {} that are not shown; `-o json` has all\n\n",
            counted(hidden, "problem"),
            counted(kinds, "other kind")
        ));
    }
    text.push_str(&summary(found));
    text
}

/// `3 problems in 2 files: 2 unknown-field, 1 yaml; denv explain …`.
fn summary(found: &Diagnostics) -> String {
    let wrong: BTreeSet<&str> = found.iter().map(|finding| finding.file.as_str()).collect();
    let mut codes: BTreeMap<Code, usize> = BTreeMap::new();
    found.iter().for_each(|finding| *codes.entry(finding.code).or_default() += 1);
    let each = codes.iter().map(|(code, count)| format!("{count} {code}")).collect::<Vec<_>>().join(", ");
    let first = codes.keys().next().map_or("", |code| code.as_str());
    format!(
        "{} in {}: {each}\nwhat they mean: denv explain {first}",
        counted(found.len(), "problem"),
        counted(wrong.len(), "file")
    )
}

fn place(finding: &Diagnostic) -> String {
    match finding.line {
        0 => finding.file.clone(),
        line => format!("{}:{line}", finding.file),
    }
}

/// A message without what it names and counts: what is left is alike for faults that are.
fn gist(message: &str) -> String {
    let mut gist = String::with_capacity(message.len());
    let mut inside = false;
    for c in message.chars() {
        match c {
            '`' => inside = !inside,
            c if inside || c.is_ascii_digit() => {}
            c => gist.push(c),
        }
    }
    gist
}

#[cfg(test)]
mod tests;
