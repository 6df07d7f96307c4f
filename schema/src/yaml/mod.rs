//! YAML text to values, strictly, with the place of every value and key.

mod places;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use places::Places;

/// A place in a text: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub line: usize,
    pub column: usize,
}

const START: Place = Place { line: 1, column: 1 };

/// A part of a text that is read by itself, so that a fault in one document does not hide those in others.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub text: &'a str,
    /// How many lines stand before it.
    lines_before: usize,
}

/// One document of a text.
pub(crate) struct Document {
    pub value: Value,
    pub source: Source,
}

/// Where a document's values and keys stand. It is looked for only when somebody asks, since most documents have
/// no faults.
#[derive(Debug)]
pub(crate) struct Source {
    /// The part's.
    text: Arc<str>,
    lines_before: usize,
    /// Which document of the part it is.
    number: usize,
    places: OnceLock<Option<Places>>,
}

#[derive(Debug)]
pub(crate) struct YamlError {
    pub place: Place,
    pub message: String,
    pub hint: Option<&'static str>,
}

impl Source {
    /// The text of the part that the document is in.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether no other document is in that part.
    pub(crate) fn is_alone(&self) -> bool {
        self.number == 0 && places::index(&self.text).len() == 1
    }

    /// Where the value at a JSON pointer stands, or its nearest ancestor that is written out: what an alias or a
    /// merge key brings stands where they do.
    pub(crate) fn value_place(&self, pointer: &str) -> Place {
        self.nearest(pointer).1
    }

    /// Where the key of the field at a JSON pointer stands.
    pub(crate) fn key_place(&self, pointer: &str) -> Place {
        self.nearest(pointer).0
    }

    fn nearest(&self, pointer: &str) -> (Place, Place) {
        let read = || places::index(&self.text).into_iter().nth(self.number);
        let places = self.places.get_or_init(read).as_ref();
        let (key, value) = places.and_then(|places| places.nearest(pointer)).unwrap_or((START, START));
        let part = Part { text: &self.text, lines_before: self.lines_before };
        (part.place(key), part.place(value))
    }
}

/// The parts of a text: cut at document markers, each with the directives and comments before it.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    // Editors do not count a byte order mark as a column.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut parts, mut start, mut lines_before, mut has_content) = (Vec::new(), 0, 0, false);
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        // In no place of a YAML text does a line that begins so mean anything else.
        let is_marker =
            line.strip_prefix("---").is_some_and(|rest| rest.trim_start() != rest || rest.is_empty());
        if is_marker && has_content {
            parts.push(Part { text: &text[start..at], lines_before });
            (start, lines_before, has_content) = (at, number, false);
        }
        let begin = if is_marker { &line[3..] } else { line }.trim();
        has_content |=
            !(begin.is_empty() || begin.starts_with('#') || (begin.starts_with('%') && !is_marker));
        at += line.len();
    }
    if has_content {
        parts.push(Part { text: &text[start..], lines_before });
    }
    parts
}

impl Part<'_> {
    /// The documents of this part: one, but where `...` ends one. Duplicate keys, tabs, unknown tags and alias
    /// bombs are errors; YAML 1.1's booleans are text.
    pub(crate) fn read(self) -> Result<Vec<Document>, YamlError> {
        self.check_line_ends()?;
        let values: Vec<Value> = serde_yaml::from_multiple_with_options(self.text, options())
            .map_err(|error| self.explain(&error))?;
        self.check_merges()?;
        let text: Arc<str> = Arc::from(self.text);
        let document = |(number, value)| {
            let (text, lines_before) = (Arc::clone(&text), self.lines_before);
            Document { value, source: Source { text, lines_before, number, places: OnceLock::new() } }
        };
        Ok(values.into_iter().enumerate().map(document).collect())
    }

    /// Some readers take a carriage return by itself for the end of a line, and others do not.
    fn check_line_ends(self) -> Result<(), YamlError> {
        for (number, line) in self.text.split('\n').enumerate() {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if let Some(at) = line.find('\r') {
                let place = Place { line: number + 1, column: line[..at].chars().count() + 1 };
                return Err(YamlError {
                    place: self.place(place),
                    message: "a carriage return stands by itself".to_owned(),
                    hint: Some("end lines with a line feed"),
                });
            }
        }
        Ok(())
    }

    /// The reader takes several merge keys in one mapping, where any other key may stand once.
    fn check_merges(self) -> Result<(), YamlError> {
        if !self.text.contains("<<") {
            return Ok(());
        }
        match places::index(self.text).iter().find_map(Places::second_merge) {
            Some(place) => Err(YamlError {
                place: self.place(place),
                message: "the key `<<` is written twice".to_owned(),
                hint: Some("merge several at once: `<<: [*one, *other]`"),
            }),
            None => Ok(()),
        }
    }

    /// A place in this part as one in the whole text.
    fn place(&self, place: Place) -> Place {
        Place { line: self.lines_before + place.line, column: place.column }
    }

    fn explain(&self, error: &serde_yaml::Error) -> YamlError {
        let location = error.location();
        let at = |of: fn(&serde_yaml::Location) -> u64| {
            location.as_ref().map_or(1, |location| usize::try_from(of(location)).unwrap_or(1).max(1))
        };
        let place = Place { line: at(serde_yaml::Location::line), column: at(serde_yaml::Location::column) };
        let message = error.without_snippet().to_string();
        // The place is given once, as the diagnostic's own.
        let message = message.split(" at line ").next().unwrap_or_default();
        let message = message.lines().next().unwrap_or_default().trim_end_matches([':', ' ']);
        let (message, hint) = in_words(message);
        YamlError { place: self.place(self.within(place)), message, hint }
    }

    /// The nearest place that the text has: an error may stand behind its end.
    fn within(&self, place: Place) -> Place {
        let lines: Vec<&str> = self.text.split('\n').collect();
        let line = place.line.min(lines.len());
        let length = lines[line - 1].chars().count();
        let column = if line < place.line { length + 1 } else { place.column.min(length + 1) };
        Place { line, column }
    }
}

/// The reader speaks to programmers in places; manifests are written by others.
fn in_words(message: &str) -> (String, Option<&'static str>) {
    if let Some(key) = message.strip_prefix("duplicate mapping key: ") {
        let key = key.split(", set DuplicateKeyPolicy").next().unwrap_or(key);
        return (format!("the key `{key}` is written twice"), Some("remove one of them"));
    }
    let known: [(&str, &str, Option<&str>); 9] = [
        (
            "while scanning an anchor or alias",
            "`*` or `&` begins an alias or an anchor here, and no name follows",
            Some("put text that begins so in quotes: `\"*\"`"),
        ),
        ("budget breached: Depth", "the document is nested too deeply", None),
        ("recursion limit exceeded", "the document is nested too deeply", None),
        (
            "budget breached",
            "the document is too large, where an alias counts as what it stands for",
            Some("write several documents"),
        ),
        (
            "while scanning a plain scalar, found a tab",
            "a tab stands where only spaces may",
            Some("indent with spaces"),
        ),
        ("tabs disallowed", "a tab stands where only spaces may", Some("indent with spaces")),
        ("recursive references", "the anchor contains itself", None),
        ("cannot deserialize null into string", "a key must be text", None),
        (
            "mapping values are not allowed",
            "`: ` begins a value here, and none may stand here",
            Some("put text that holds `: ` in quotes, and check the indentation"),
        ),
    ];
    match known.iter().find(|(begin, ..)| message.starts_with(begin)) {
        Some((_, words, hint)) => ((*words).to_owned(), *hint),
        None => (message.to_owned(), None),
    }
}

fn options() -> serde_yaml::Options {
    let mut budget = serde_yaml::Budget::default();
    budget.max_nodes = 50_000;
    budget.max_depth = 64;
    budget.max_aliases = 1_000;
    budget.max_events = 200_000;
    let mut options = serde_yaml::Options::default();
    options.budget = Some(budget);
    options.strict_booleans = true;
    options.leading_zero_numbers_as_strings = true;
    options.underscored_numbers_as_strings = true;
    options.reject_unsupported_tags = true;
    options.strict_indentation = true;
    options.with_snippet = false;
    options
}

#[cfg(test)]
mod tests;
