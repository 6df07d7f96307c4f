//! Manifests changed in the files they stand in: what a person applies becomes an edit of the document that is there, so
//! that its comments, its order and its style survive.
//!
//! Every edit is read again and compared with what was meant before it is given away.

mod document;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::catalog::{Entry, Reading};
use crate::diagnostic::Diagnostics;
use crate::diff::ManifestKey;
use crate::manifest::Kind;
use crate::tree::Files;
use crate::yaml;

/// Files that are other than they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// The new contents by path; none where the file goes.
    pub files: BTreeMap<String, Option<Vec<u8>>>,
    /// Manifests in whose document comments were lost: those of a field that went, or all, where it had to be written
    /// anew.
    pub rewritten: Vec<ManifestKey>,
}

#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// What is to be applied is not sound by itself.
    #[error("{0}")]
    Invalid(Diagnostics),
    #[error("{kind} `{name}` is given twice")]
    Twice { kind: Kind, name: String },
    #[error("there is no {kind} `{name}`")]
    NotFound { kind: Kind, name: String },
    #[error("the document of {kind} `{name}` in `{file}` can't be edited in place; change the file itself")]
    Unclear { kind: Kind, name: String, file: String },
}

impl Edit {
    /// Does another edit after this one.
    pub fn then(&mut self, next: Edit) {
        self.files.extend(next.files);
        self.rewritten.extend(next.rewritten);
    }

    /// The files with this edit done.
    pub fn applied_to(&self, files: &Files) -> Files {
        let mut files = files.clone();
        for (path, content) in &self.files {
            match content {
                Some(content) => drop(files.insert(path.clone(), content.clone())),
                None => drop(files.remove(path)),
            }
        }
        files
    }
}

/// What manifests these are, if each is sound by itself.
pub fn manifests(files: &Files) -> Result<Vec<ManifestKey>, Diagnostics> {
    let reading = Reading::of(files);
    match reading.faults() {
        Some(found) => Err(found),
        None => Ok(reading.entries().map(|entry| ManifestKey::of(&entry)).collect()),
    }
}

/// Makes the manifests of `wanted` what the files say: those that are there are edited, the others get files of their own.
pub fn apply(files: &Files, reading: &Reading, wanted: &Files) -> Result<Edit, EditError> {
    let wanted = Reading::of(wanted);
    if let Some(found) = wanted.faults() {
        return Err(EditError::Invalid(found));
    }
    let mut editor = Editor::new(files, reading);
    let mut seen = BTreeMap::new();
    for entry in wanted.entries() {
        let key = ManifestKey::of(&entry);
        if seen.insert(key.clone(), ()).is_some() {
            return Err(EditError::Twice { kind: key.kind, name: key.name });
        }
        editor.set(&key, &entry)?;
    }
    Ok(editor.edit)
}

/// Sets one field of a manifest, given by a JSON pointer: `/spec/release`.
pub fn patch(
    files: &Files,
    reading: &Reading,
    key: &ManifestKey,
    pointer: &str,
    value: &Value,
) -> Result<Edit, EditError> {
    let mut editor = Editor::new(files, reading);
    let not_found = || EditError::NotFound { kind: key.kind, name: key.name.clone() };
    let entry = editor.entries.get(key).copied().ok_or_else(not_found)?;
    let document = editor.document(key, &entry)?;
    let text = document::patched(&document, pointer, value).ok_or_else(|| {
        let (name, file) = (key.name.clone(), entry.file.to_owned());
        EditError::Unclear { kind: key.kind, name, file }
    })?;
    editor.replace(entry.file, &document, &text);
    Ok(editor.edit)
}

/// Takes manifests out of the files.
pub fn delete(files: &Files, reading: &Reading, keys: &[ManifestKey]) -> Result<Edit, EditError> {
    let mut editor = Editor::new(files, reading);
    for key in keys {
        editor.remove(key)?;
    }
    for content in editor.edit.files.values_mut().flatten() {
        // What is first now needs no marker.
        if content.starts_with(b"---\n") {
            content.drain(..4);
        }
    }
    Ok(editor.edit)
}

struct Editor<'a> {
    files: &'a Files,
    /// Where each manifest stands.
    entries: BTreeMap<ManifestKey, Entry<'a>>,
    edit: Edit,
}

impl<'a> Editor<'a> {
    fn new(files: &'a Files, reading: &'a Reading) -> Self {
        let entries = reading.entries().map(|entry| (ManifestKey::of(&entry), entry)).collect();
        Editor { files, entries, edit: Edit::default() }
    }

    /// A file as it is by now.
    fn text(&self, file: &str) -> String {
        let edited = self.edit.files.get(file).map(|content| content.clone().unwrap_or_default());
        let bytes = edited.or_else(|| self.files.get(file).cloned()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn set(&mut self, key: &ManifestKey, wanted: &Entry<'_>) -> Result<(), EditError> {
        let Some(entry) = self.entries.get(key).copied() else {
            self.add(key, wanted);
            return Ok(());
        };
        if entry.manifest == wanted.manifest {
            return Ok(());
        }
        let document = self.document(key, &entry)?;
        let (text, kept) = document::edited(&document, wanted.source.text());
        if !kept {
            self.edit.rewritten.push(key.clone());
        }
        self.replace(entry.file, &document, &text);
        Ok(())
    }

    fn remove(&mut self, key: &ManifestKey) -> Result<(), EditError> {
        let Some(entry) = self.entries.get(key).copied() else {
            return Err(EditError::NotFound { kind: key.kind, name: key.name.clone() });
        };
        let document = self.document(key, &entry)?;
        self.replace(entry.file, &document, "");
        if yaml::parts(&self.text(entry.file)).is_empty() {
            self.edit.files.insert(entry.file.to_owned(), None);
        }
        Ok(())
    }

    /// The text of an entry's document. Edits of others in its file have moved it, and left it what it is.
    fn document(&self, key: &ManifestKey, entry: &Entry<'_>) -> Result<String, EditError> {
        if !entry.source.is_alone() {
            let (name, file) = (key.name.clone(), entry.file.to_owned());
            return Err(EditError::Unclear { kind: key.kind, name, file });
        }
        Ok(entry.source.text().to_owned())
    }

    fn replace(&mut self, file: &str, document: &str, text: &str) {
        let whole = self.text(file);
        let at = whole.find(document).expect("the file holds the document that was read from it");
        let new = format!("{}{text}{}", &whole[..at], &whole[at + document.len()..]);
        self.edit.files.insert(file.to_owned(), Some(new.into_bytes()));
    }

    /// In a file of its own: `stages/chat-prod.yaml`.
    fn add(&mut self, key: &ManifestKey, wanted: &Entry<'_>) {
        let file = format!("{}/{}.yaml", key.kind.plural(), key.name.replace('/', "-"));
        let mut text = self.text(&file);
        if !text.is_empty() {
            text.push_str(if text.ends_with('\n') { "---\n" } else { "\n---\n" });
        }
        let document = wanted.source.text();
        let document =
            document.strip_prefix("---").map_or(document, |rest| rest.trim_start_matches(['\r', '\n']));
        text.push_str(document.trim_end());
        text.push('\n');
        self.edit.files.insert(file, Some(text.into_bytes()));
    }
}

#[cfg(test)]
mod tests;
