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

/// What kind of fault a finding is: stable, for tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The file can't be read: not UTF-8, a link out of the tree.
    Unreadable,
    /// Not YAML, or YAML that means something else to different readers.
    Yaml,
    UnknownKind,
    UnknownField,
    MissingField,
    WrongType,
    BadValue,
    DuplicateName,
    UnknownReference,
    /// Two settings that can't both be followed.
    Contradiction,
    InlineSecret,
    /// A release that was deployed reads otherwise now.
    ChangedRelease,
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
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
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

/// A hint with the candidate that is most like `wrong`, where one is alike enough.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (candidate, _) = candidates
        .into_iter()
        .map(|candidate| {
            (candidate, strsim::damerau_levenshtein(&wrong.to_lowercase(), &candidate.to_lowercase()))
        })
        .filter(|(candidate, distance)| *distance <= 1 + candidate.len().max(wrong.len()) / 3)
        .min_by_key(|(candidate, distance)| (*distance, *candidate))?;
    Some(format!("did you mean `{candidate}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near_or_not_named() {
        let names = ["racks-fra", "cloud-fra"];
        assert_eq!(nearest("rack-fra", names), Some("did you mean `racks-fra`?".to_owned()));
        assert_eq!(nearest("minimum", names), None);
    }
}
