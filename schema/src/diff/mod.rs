//! What two configurations differ in, in the terms of their files, and what each difference does.
//!
//! Manifests are compared by what they mean: a default that is written out, a comment, another order of fields or
//! another file is no difference. No value that may be a secret is ever in a [`Diff`]; that it changed is.

mod effects;
mod fields;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use effects::Effect;
pub use fields::FieldChange;

use crate::catalog::{Entry, Reading};
use crate::manifest::{AnyManifest, Kind};
use crate::tree::Files;
use crate::{Catalog, Diagnostics, Digest, Name};

/// A configuration that is valid, with where its manifests stand.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub reading: Reading,
    pub catalog: Catalog,
}

impl Configuration {
    /// The configuration of these files, or everything that is wrong with them.
    pub fn of(files: &Files) -> Result<Self, Diagnostics> {
        let reading = Reading::of(files);
        let catalog = reading.catalog(&BTreeMap::new())?;
        Ok(Configuration { reading, catalog })
    }

    /// Two configurations at once: what they have in common is read once, and each is judged by itself; the later one with
    /// the releases that have run.
    pub fn pair(
        before: &Files,
        after: &Files,
        deployed: &BTreeMap<Name, Digest>,
    ) -> [Result<Self, Diagnostics>; 2] {
        let old = Reading::of(before);
        let new = old.again(after);
        let judge = |reading: Reading, deployed: &BTreeMap<Name, Digest>| {
            let catalog = reading.catalog(deployed)?;
            Ok(Configuration { reading, catalog })
        };
        std::thread::scope(|scope| {
            let old = scope.spawn(|| judge(old, &BTreeMap::new()));
            let new = judge(new, deployed);
            [old.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), new]
        })
    }
}

/// All differences, in the order of kinds and names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    pub changes: Vec<ManifestChange>,
}

/// One manifest that is other than it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestChange {
    pub kind: Kind,
    /// A Stage's is `environment/stage`.
    pub name: String,
    pub change: Change,
    /// Where it stands; where it stood, if it is gone.
    pub file: String,
    /// Of its name, from 1.
    pub line: usize,
    pub fields: Vec<FieldChange>,
    /// Never empty: a change that does nothing says so.
    pub effects: Vec<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    Added,
    Removed,
    Changed,
}

impl Diff {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Every effect there is, each once.
    pub fn effects(&self) -> Vec<&Effect> {
        let mut all: Vec<&Effect> = self.changes.iter().flat_map(|change| &change.effects).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// What `after` has other than `before`.
pub fn diff<'a>(before: &'a Configuration, after: &'a Configuration) -> Diff {
    let index = |reading: &'a Reading, other: &'a Reading| -> BTreeMap<ManifestKey, Entry<'a>> {
        reading.entries_not_in(other).map(|entry| (ManifestKey::of(&entry), entry)).collect()
    };
    let old = index(&before.reading, &after.reading);
    let new = index(&after.reading, &before.reading);
    let mut changes = Vec::new();
    for (key, was) in &old {
        let is = new.get(key);
        if is.is_none_or(|is| is.manifest != was.manifest) {
            changes.push(change(key, Some(*was), is.copied()));
        }
    }
    for (key, is) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        changes.push(change(key, None, Some(*is)));
    }
    // What is written otherwise and means the same is no difference.
    changes.retain(|change| change.change != Change::Changed || !change.fields.is_empty());
    changes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    for change in &mut changes {
        change.effects = effects::effects(change, &before.catalog, &after.catalog);
    }
    Diff { changes }
}

/// What a manifest is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ManifestKey {
    pub kind: Kind,
    /// A Stage's is `environment/stage`.
    pub name: String,
}

impl ManifestKey {
    pub(crate) fn of(entry: &Entry<'_>) -> Self {
        let name = &entry.manifest.metadata().name;
        let name = match entry.manifest {
            AnyManifest::Stage(stage) => format!("{}/{name}", stage.spec.environment),
            _ => name.to_string(),
        };
        ManifestKey { kind: entry.manifest.kind(), name }
    }
}

fn change(key: &ManifestKey, was: Option<Entry<'_>>, is: Option<Entry<'_>>) -> ManifestChange {
    let there = is.or(was).expect("a change is of a manifest that is there, or was");
    let change = match (was, is) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        (Some(_), Some(_)) => Change::Changed,
    };
    ManifestChange {
        kind: key.kind,
        name: key.name.clone(),
        change,
        file: there.file.to_owned(),
        line: there.source.value_place("/metadata/name").line,
        fields: fields::compare(was, is),
        effects: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
