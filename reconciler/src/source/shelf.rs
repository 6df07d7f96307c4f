//! What the sources of one tenant have in force, side by side: together it is the tenant's one catalog.
//!
//! A source holds the shelf while it judges, so that two never judge past each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};

use denv_repository::Blobs;
use denv_schema::tree::Files;
use denv_schema::{Catalog, Diagnostics, Reading};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, watch};

use super::mirror::{Mirror, MirrorError};

/// What a source has in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shelved {
    /// No revision was ever accepted.
    Nothing,
    /// A revision is in force, and what it holds is not known yet: whatever is judged now would lack it.
    Unread,
    Files(Files),
}

#[derive(Default)]
pub(super) struct Content {
    of: BTreeMap<String, Shelved>,
    /// Who is to look again when another's files have changed.
    hooks: BTreeMap<String, Arc<Notify>>,
    /// Counts what was put in force.
    pub(super) version: u64,
    /// The files as they were last read, whatever became of them: the next revision changes few of them.
    reading: Lock<Reading>,
    /// What each source's files held in the commit that was read last.
    blobs: BTreeMap<String, Lock<Blobs>>,
}

/// Shared by a tenant's sources.
#[derive(Clone)]
pub struct Shelf {
    content: Arc<Mutex<Content>>,
    catalog: watch::Sender<Option<Arc<Catalog>>>,
}

impl Shelf {
    pub fn new() -> (Self, watch::Receiver<Option<Arc<Catalog>>>) {
        let (catalog, catalogs) = watch::channel(None);
        (Shelf { content: Arc::default(), catalog }, catalogs)
    }

    pub(super) async fn lock(&self) -> OwnedMutexGuard<Content> {
        Arc::clone(&self.content).lock_owned().await
    }

    /// What is in force.
    pub(super) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.catalog.borrow().clone()
    }

    /// Puts a catalog in force, made of what the shelf holds.
    pub(super) fn publish(&self, catalog: Arc<Catalog>) {
        self.catalog.send_replace(Some(catalog));
    }
}

impl Content {
    pub(super) fn register(&mut self, source: &str, has_accepted: bool, hook: Arc<Notify>) {
        let shelved = if has_accepted { Shelved::Unread } else { Shelved::Nothing };
        self.of.insert(source.to_owned(), shelved);
        self.blobs.insert(source.to_owned(), Lock::default());
        self.hooks.insert(source.to_owned(), hook);
    }

    /// Keeps what `source` has in force now, and has the others look again: what they lacked may be there.
    pub(super) fn put(&mut self, source: &str, files: Files) {
        self.of.insert(source.to_owned(), Shelved::Files(files));
        self.version += 1;
        self.hooks.iter().filter(|(other, _)| *other != source).for_each(|(_, hook)| hook.notify_one());
    }

    pub(super) fn is_unread(&self, source: &str) -> bool {
        self.of.get(source) == Some(&Shelved::Unread)
    }

    /// The files of the tenant, with these of `source`, and what is to be kept of them; the name of another source
    /// while its files are not known.
    pub(super) fn together(&self, source: &str, files: Files) -> Result<(Files, Files), String> {
        // Nobody else will ask for those of an only source.
        if self.of.len() < 2 {
            return Ok((files, Files::new()));
        }
        let named = |of: &str, file: &str| format!("{of}/{file}");
        let mut all: Files = files.iter().map(|(file, text)| (named(source, file), text.clone())).collect();
        for (other, shelved) in self.of.iter().filter(|(other, _)| *other != source) {
            match shelved {
                Shelved::Nothing => {}
                Shelved::Unread => return Err(other.clone()),
                Shelved::Files(files) => {
                    all.extend(files.iter().map(|(file, text)| (named(other, file), text.clone())));
                }
            }
        }
        Ok((all, files))
    }

    /// The files of the tenant's other sources, by names that none of `source` can have; the name of another source
    /// while its files are not known.
    pub(super) fn others(&self, source: &str) -> Result<Files, String> {
        let mut all = Files::new();
        for (other, shelved) in self.of.iter().filter(|(other, _)| *other != source) {
            match shelved {
                Shelved::Nothing => {}
                Shelved::Unread => return Err(other.clone()),
                Shelved::Files(files) => {
                    all.extend(files.iter().map(|(file, text)| (format!("@{other}/{file}"), text.clone())));
                }
            }
        }
        Ok(all)
    }

    /// The manifests of a commit of `source`, most of which were in the one before.
    pub(super) fn files(
        &self,
        source: &str,
        mirror: &Mirror,
        commit: &str,
        folder: &str,
    ) -> Result<(Files, Diagnostics), MirrorError> {
        match self.blobs.get(source) {
            Some(blobs) => {
                let mut blobs = blobs.lock().unwrap_or_else(PoisonError::into_inner);
                mirror.files_again(&mut blobs, commit, folder)
            }
            None => mirror.files(commit, folder),
        }
    }

    /// Reads files, of which most read as they last did.
    pub(super) fn read(&self, all: &Files) -> Reading {
        let mut last = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.again(all);
        last.clone()
    }

    /// How a file of `source` is named where several are shown together.
    pub(super) fn shown(&self, source: &str, file: &str) -> String {
        if self.of.len() > 1 { format!("{source}/{file}") } else { file.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> Files {
        [(name.to_owned(), b"a: 1".to_vec())].into()
    }

    #[test]
    fn one_source_keeps_its_names_and_several_are_told_apart() {
        let mut content = Content::default();
        content.register("a", false, Arc::default());
        assert_eq!(
            content.together("a", files("x.yaml")).unwrap().0.into_keys().collect::<Vec<_>>(),
            ["x.yaml"]
        );
        content.register("b", true, Arc::default());
        assert_eq!(content.together("a", files("x.yaml")), Err("b".to_owned()));
        content.put("b", files("x.yaml"));
        let (all, own) = content.together("a", files("x.yaml")).unwrap();
        assert_eq!(own, files("x.yaml"));
        assert_eq!(all.into_keys().collect::<Vec<_>>(), ["a/x.yaml", "b/x.yaml"]);
    }
}
