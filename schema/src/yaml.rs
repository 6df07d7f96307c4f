//! YAML text to values, strictly, with the place of every value and key.

use std::collections::HashMap;

use serde_json::Value;
use serde_yaml::granit_parser::{Event, Parser, ScalarStyle};

/// A place in a text: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub line: usize,
    pub column: usize,
}

/// One document of a text.
#[derive(Debug)]
pub(crate) struct Document {
    pub value: Value,
    places: Places,
}

/// Where each JSON pointer stands: for a field the key, and the value.
#[derive(Debug, Default)]
struct Places(HashMap<String, (Place, Place)>);

#[derive(Debug)]
pub(crate) struct YamlError {
    pub place: Place,
    pub message: String,
}

impl Document {
    /// Where the value at a JSON pointer stands, or its nearest ancestor that is written out.
    pub(crate) fn value_place(&self, pointer: &str) -> Place {
        self.nearest(pointer).1
    }

    /// Where the key of the field at a JSON pointer stands.
    pub(crate) fn key_place(&self, pointer: &str) -> Place {
        self.nearest(pointer).0
    }

    fn nearest(&self, pointer: &str) -> (Place, Place) {
        let mut pointer = pointer;
        loop {
            if let Some(found) = self.places.0.get(pointer) {
                return *found;
            }
            match pointer.rfind('/') {
                Some(parent) => pointer = &pointer[..parent],
                // An alias or a merge key stands in for the text: the document's start is what there is.
                None => return (Place { line: 1, column: 1 }, Place { line: 1, column: 1 }),
            }
        }
    }
}

/// All documents of a text. Duplicate keys, YAML 1.1 booleans, tabs, unknown tags and alias bombs are errors.
pub(crate) fn read(text: &str) -> Result<Vec<Document>, YamlError> {
    let values: Vec<Value> = serde_yaml::from_multiple_with_options(text, options()).map_err(|error| {
        let location = error.location();
        let at = |of: fn(&serde_yaml::Location) -> u64| {
            location.as_ref().map_or(1, |location| usize::try_from(of(location)).unwrap_or(1).max(1))
        };
        let message = error.without_snippet().to_string();
        // The place is given once, as the diagnostic's own.
        let message = message.split(" at line ").next().unwrap_or_default();
        YamlError {
            place: Place { line: at(serde_yaml::Location::line), column: at(serde_yaml::Location::column) },
            message: message.lines().next().unwrap_or_default().trim_end_matches([':', ' ']).to_owned(),
        }
    })?;
    let places = index(text);
    if places.len() != values.len() {
        let message = format!("{} documents were read but {} found", values.len(), places.len());
        return Err(YamlError { place: Place { line: 1, column: 1 }, message });
    }
    Ok(values.into_iter().zip(places).map(|(value, places)| Document { value, places }).collect())
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

/// The places of each document that is not empty. The text has been read strictly before, so errors can't come.
fn index(text: &str) -> Vec<Places> {
    let mut documents = Vec::new();
    let mut places = Places::default();
    let mut stack: Vec<Frame> = Vec::new();
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let place = Place { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::DocumentStart(..) => places = Places::default(),
            Event::DocumentEnd => documents.push(std::mem::take(&mut places)),
            Event::MappingStart(..) => {
                let pointer = enter(&mut places, &mut stack, place);
                stack.push(Frame::Mapping { pointer, key: None });
            }
            Event::SequenceStart(..) => {
                let pointer = enter(&mut places, &mut stack, place);
                stack.push(Frame::Sequence { pointer, next: 0 });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                stack.pop();
            }
            Event::Scalar(ref scalar, style, ..) => match stack.last_mut() {
                Some(Frame::Mapping { key: key @ None, .. }) => *key = Some((scalar.to_string(), place)),
                // A document that is nothing but an empty value is no document.
                None if style == ScalarStyle::Plain && matches!(&**scalar, "" | "~" | "null") => {}
                _ => {
                    enter(&mut places, &mut stack, place);
                }
            },
            Event::Alias(_) => {
                enter(&mut places, &mut stack, place);
            }
            _ => {}
        }
    }
    documents.retain(|places| !places.0.is_empty());
    documents
}

/// Where the parser is.
enum Frame {
    Mapping { pointer: String, key: Option<(String, Place)> },
    Sequence { pointer: String, next: usize },
}

/// Notes that a value begins here, and gives its pointer.
fn enter(places: &mut Places, stack: &mut [Frame], place: Place) -> String {
    let (pointer, key_place) = match stack.last_mut() {
        None => (String::new(), place),
        Some(Frame::Sequence { pointer, next }) => {
            *next += 1;
            (format!("{pointer}/{}", *next - 1), place)
        }
        Some(Frame::Mapping { pointer, key }) => {
            let (key, key_place) = key.take().unwrap_or_else(|| (String::new(), place));
            (format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), key_place)
        }
    };
    places.0.insert(pointer.clone(), (key_place, place));
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_has_its_place() {
        let text = "# head\na: 1\nb:\n  - x\n  - {c: d}\n---\nz: 2\n";
        let documents = read(text).unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].value_place("/a"), Place { line: 2, column: 4 });
        assert_eq!(documents[0].key_place("/b/1/c"), Place { line: 5, column: 6 });
        assert_eq!(documents[0].value_place("/b/0/deeper"), Place { line: 4, column: 5 });
        assert_eq!(documents[1].key_place("/z"), Place { line: 7, column: 1 });
    }

    #[test]
    fn empty_documents_are_skipped_alike() {
        assert_eq!(read("---\n---\na: 1\n---\n# only a comment\n").unwrap().len(), 1);
        assert_eq!(read("").unwrap().len(), 0);
    }

    #[test]
    fn traps_are_errors_or_text() {
        let duplicate = read("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!(duplicate.place, Place { line: 3, column: 1 });
        assert!(duplicate.message.contains("duplicate"), "{}", duplicate.message);
        assert!(read("a:\n\tb: 1\n").is_err());
        assert!(read("a: [1\n").is_err());
        assert_eq!(read("a: no\nb: 0755\n").unwrap()[0].value, serde_json::json!({"a": "no", "b": "0755"}));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ a-c:\\-\\[\\]{}#&*!|>'\"\n\t,?~0-9]{0,60}") {
            let _ = read(&text);
        }
    }
}
