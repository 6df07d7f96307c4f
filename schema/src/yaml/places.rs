//! Where every value and key of a text stands.

use std::collections::HashMap;

use serde_yaml::granit_parser::{Event, Parser, ScalarStyle};

use super::Place;

/// Where each JSON pointer stands: for a field the key, and the value.
#[derive(Debug, Default)]
pub(super) struct Places {
    of: HashMap<String, (Place, Place)>,
    second_merge: Option<Place>,
}

impl Places {
    /// A merge key in a mapping that has one already.
    pub(super) fn second_merge(&self) -> Option<Place> {
        self.second_merge
    }

    /// The key's and the value's place at a JSON pointer. What is not written out stands where the merge key is that
    /// may have brought it, else where its nearest ancestor's value is.
    pub(super) fn nearest(&self, pointer: &str) -> Option<(Place, Place)> {
        if let Some(found) = self.of.get(pointer) {
            return Some(*found);
        }
        let mut pointer = pointer;
        loop {
            pointer = &pointer[..pointer.rfind('/')?];
            let found = self.of.get(&format!("{pointer}/<<")).or_else(|| self.of.get(pointer));
            if let Some((_, value)) = found {
                return Some((*value, *value));
            }
        }
    }
}

/// The places of each document that is not empty. The text has been read strictly before, so errors can't come.
pub(super) fn index(text: &str) -> Vec<Places> {
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
    documents.retain(|places| !places.of.is_empty());
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
    let before = places.of.insert(pointer.clone(), (key_place, place));
    if before.is_some() && pointer.ends_with("/<<") {
        places.second_merge.get_or_insert(key_place);
    }
    pointer
}
