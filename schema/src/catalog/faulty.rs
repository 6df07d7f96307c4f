//! What is known of documents that have faults of their own, so that what refers to them is not said to refer to
//! nothing: a person fixes the one fault and not its echoes.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::diagnostic::nearest_name;
use crate::manifest::Kind;
use crate::{Name, StageId};

/// Documents that are there and can't be read as manifests.
#[derive(Default)]
pub(super) struct Faulty {
    /// By kind and name, as far as those are known; with the environments that Stages of that name say.
    documents: HashMap<Called, Vec<Option<String>>>,
    /// The fleets that Hosts say. None: one does not say it legibly.
    fleets: BTreeSet<Option<String>>,
}

type Called = (Option<Kind>, Option<String>);

/// What a faulty document says of itself, perhaps.
#[derive(Debug, Default)]
pub(super) struct Identity {
    kind: Option<String>,
    name: Option<String>,
    environment: Option<String>,
    fleet: Option<String>,
}

impl Identity {
    /// Of a document that is YAML.
    pub(super) fn of_value(value: &Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Identity {
            kind: text("/kind"),
            name: text("/metadata/name"),
            environment: text("/spec/environment"),
            fleet: text("/spec/fleet"),
        }
    }

    /// Of a document that is not even YAML.
    pub(super) fn of_text(text: &str) -> Self {
        let metadata = text.find("metadata:").map_or("", |at| &text[at..]);
        Identity {
            kind: text.lines().find_map(|line| line.strip_prefix("kind:")).and_then(scalar),
            name: field(metadata, "name:"),
            environment: field(text, "environment:"),
            fleet: field(text, "fleet:"),
        }
    }
}

impl Faulty {
    pub(super) fn of<'a>(documents: impl Iterator<Item = &'a Identity>) -> Self {
        let mut faulty = Faulty::default();
        documents.for_each(|identity| faulty.add(identity));
        faulty
    }

    /// A Stage of an Environment that does not exist: whatever mentions the Stage, the Environment is what is wrong.
    pub(super) fn add_stray_stage(&mut self, name: &Name) {
        self.documents.entry((Some(Kind::Stage), Some(name.to_string()))).or_default().push(None);
    }

    fn add(&mut self, identity: &Identity) {
        let kind = identity.kind.as_deref().and_then(meant);
        // One that is no name can't be what others mention; what they do mention is not known.
        let legible = |text: &Option<String>| text.clone().filter(|text| text.parse::<Name>().is_ok());
        let name = legible(&identity.name);
        if kind == Some(Kind::Host) {
            self.fleets.insert(legible(&identity.fleet));
        }
        if kind.is_some() || name.is_some() {
            self.documents.entry((kind, name)).or_default().push(legible(&identity.environment));
        }
    }

    /// Whether a faulty document may be what is referred to.
    pub(super) fn may_be(&self, kind: Kind, name: &str) -> bool {
        let (environment, name) = match (kind, name.parse::<StageId>()) {
            (Kind::Stage, Ok(id)) => (Some(id.environment.to_string()), id.stage.to_string()),
            _ => (None, name.to_owned()),
        };
        let keys = [(Some(kind), Some(name.clone())), (Some(kind), None), (None, Some(name))];
        let of_it = |said: &Option<String>| kind != Kind::Stage || said.is_none() || *said == environment;
        keys.iter().any(|key| self.documents.get(key).is_some_and(|said| said.iter().any(of_it)))
    }

    /// Whether all documents can be read as manifests.
    pub(super) fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.fleets.is_empty()
    }

    /// Whether a faulty Host may be of this fleet.
    pub(super) fn may_have_host_of(&self, fleet: &Name) -> bool {
        self.fleets.contains(&None) || self.fleets.contains(&Some(fleet.to_string()))
    }
}

/// The kind that is written, or surely meant.
fn meant(kind: &str) -> Option<Kind> {
    nearest_name(kind, Kind::ALL.iter().map(|kind| kind.as_str()))?.parse().ok()
}

/// The value of the first field that is written so, in block or flow style.
fn field(text: &str, key: &str) -> Option<String> {
    let begins = |at: &usize| text[..*at].chars().next_back().is_none_or(|before| !before.is_alphanumeric());
    let at = text.match_indices(key).map(|(at, _)| at).find(begins)?;
    scalar(&text[at + key.len()..])
}

/// The plain or quoted text at the beginning.
fn scalar(text: &str) -> Option<String> {
    let end = text.find(['\n', ',', '}', '#']).unwrap_or(text.len());
    let value = text[..end].trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}
