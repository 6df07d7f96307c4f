//! What validation found, at a place, in words, with a way out.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One finding. It never holds a value that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    pub file: String,
    /// From 1; 0 where a whole file is meant.
    pub line: usize,
    /// From 1, in characters; 0 where a whole file is meant.
    pub column: usize,
    pub code: Code,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $code:ident => $name:literal),* $(,)?) => {
        /// What kind of fault a finding is: stable, for tools.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum Code { $($(#[doc = $doc])* $code),* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Code::$code => $name),* }
            }

            /// What it means and what to do, as Markdown: its page in `docs/reference/errors/`.
            pub fn page(self) -> &'static str {
                match self {
                    $(Code::$code => include_str!(concat!("../../docs/reference/errors/", $name, ".md"))),*
                }
            }

            /// What it means, in a few words.
            pub fn title(self) -> &'static str {
                let line = self.page().lines().next().unwrap_or_default();
                line.split_once(": ").map_or(line, |(_, title)| title)
            }
        }
    };
}

codes! {
    /// The file can't be read: not UTF-8, a link out of the tree.
    Unreadable => "unreadable",
    /// Not YAML, or YAML that means something else to different readers.
    Yaml => "yaml",
    /// `apiVersion` or `kind` is none that denv has.
    UnknownKind => "unknown-kind",
    /// There is no such field there.
    UnknownField => "unknown-field",
    /// A field that must be there is not.
    MissingField => "missing-field",
    /// A value of another type.
    WrongType => "wrong-type",
    /// A value that breaks its field's rule.
    BadValue => "bad-value",
    /// Another manifest has the name.
    DuplicateName => "duplicate-name",
    /// What is referred to does not exist.
    UnknownReference => "unknown-reference",
    /// Two settings that can't both be followed.
    Contradiction => "contradiction",
    /// Stages that do not follow each other as is said.
    Order => "order",
    /// What depends on itself.
    Cycle => "cycle",
    /// What an engine can't do of what a release asks.
    EngineLimit => "engine-limit",
    /// Units that no host, domain or fleet of theirs can hold.
    NoFit => "no-fit",
    /// A place where something may not be served, or nowhere that it may.
    Residency => "residency",
    /// A model is sold without a price.
    MissingPrice => "missing-price",
    /// A secret is written out.
    InlineSecret => "inline-secret",
    /// A release that was deployed reads otherwise now.
    ChangedRelease => "changed-release",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message)?,
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message)?,
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// All that was found, in the order of places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub fn push(&mut self, mut diagnostic: Diagnostic) {
        diagnostic.message = shown(diagnostic.message);
        diagnostic.hint = diagnostic.hint.map(shown);
        self.0.push(diagnostic);
    }

    /// These and those of another, in the order of places.
    pub fn with(mut self, other: &Diagnostics) -> Self {
        self.extend(other);
        self.settle();
        self
    }

    /// Takes what another has, as it stands.
    pub(crate) fn extend(&mut self, other: &Diagnostics) {
        self.0.extend_from_slice(&other.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Orders findings by file and place, each once.
    pub(crate) fn settle(&mut self) {
        self.0.sort();
        self.0.dedup();
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.0 {
            writeln!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// One line of bearable length, whatever a manifest holds that a finding names.
pub(crate) fn shown(text: String) -> String {
    const LONGEST: usize = 600;
    let mut text = masked(text);
    if text.chars().any(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Findings name what is written: fields, names, placeholders. A key that was pasted in such a place is cut short.
fn masked(text: String) -> String {
    /// How keys of denv, and of others that people paste, begin; and how long what begins so must be to be one.
    const KEYS: [(&str, usize); 5] =
        [("sk-denv-", 8), ("sk-", 24), ("hf_", 24), ("ghp_", 24), ("github_pat_", 24)];
    let is_key_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if KEYS.iter().all(|(begin, _)| !text.contains(begin)) {
        return text;
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while !rest.is_empty() {
        let word = &rest[..rest.find(|c| !is_key_part(c)).unwrap_or(rest.len())];
        match KEYS.iter().find(|(begin, length)| word.starts_with(begin) && word.len() >= *length) {
            Some((begin, _)) => {
                shown.push_str(begin);
                shown.push('…');
            }
            None => shown.push_str(word),
        }
        rest = &rest[word.len()..];
        if let Some(other) = rest.chars().next() {
            shown.push(other);
            rest = &rest[other.len_utf8()..];
        }
    }
    shown
}

/// `1 Host`, `2 Hosts`.
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// An error with its causes, on one line: for the one place where it is shown.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// A hint with the candidate that is most like `wrong`, where one is alike enough.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest_name(wrong, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

pub(crate) fn nearest_name<'a>(
    wrong: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = wrong.to_lowercase();
    let most = |candidate: &str| 1 + candidate.len().max(wrong.len()) / 3;
    candidates
        .into_iter()
        // Names are at least as far apart as their lengths.
        .filter(|candidate| candidate.len().abs_diff(wrong.len()) <= most(candidate))
        .map(|candidate| (candidate, strsim::damerau_levenshtein(&lower, &candidate.to_lowercase())))
        .filter(|(candidate, distance)| *distance <= most(candidate))
        .min_by_key(|(candidate, distance)| (*distance, *candidate))
        .map(|(candidate, _)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_cut_short_and_a_name_is_not() {
        let masked = |text: &str| masked(text.to_owned());
        assert_eq!(masked("there is no Key `sk-denv-PLANTED_0`, ü"), "there is no Key `sk-denv-…`, ü");
        assert_eq!(masked("hf_abcdefghijklmnopqrstuvwx"), "hf_…");
        assert_eq!(masked("there is no Customer `sk-telecom`"), "there is no Customer `sk-telecom`");
    }

    #[test]
    fn a_finding_is_one_line_of_bearable_length() {
        assert_eq!(shown("a\nb\u{1b}".to_owned()), "a b ");
        assert_eq!(shown("ü".repeat(10_000)).chars().count(), 601);
    }

    #[test]
    fn the_nearest_name_is_near_or_not_named() {
        let names = ["racks-fra", "cloud-fra"];
        assert_eq!(nearest("rack-fra", names), Some("did you mean `racks-fra`?".to_owned()));
        assert_eq!(nearest("minimum", names), None);
    }
}
