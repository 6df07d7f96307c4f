//! Manifest files, each read once: a revision that changes one of ten thousand files reads that one.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use super::parse::{self, Entry, ReadFile};
use super::{Catalog, check, settings};
use crate::diagnostic::Diagnostics;
use crate::tree::Files;
use crate::{Digest, Name};

/// The manifests of a revision, each sound by itself or with what is wrong with it; not yet judged together.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    files: BTreeMap<String, (Arc<[u8]>, Arc<ReadFile>)>,
}

/// Below this many files a second thread costs more than it spares.
const WORTH_A_THREAD: usize = 64;

impl Reading {
    pub fn of(files: &Files) -> Self {
        Reading::default().again(files)
    }

    /// The same as [`Reading::of`], where files that read as they did in this one are not read again.
    pub fn again(&self, files: &Files) -> Self {
        let mut kept = BTreeMap::new();
        let mut unread: Vec<(&String, &Vec<u8>)> = Vec::new();
        for (path, bytes) in files {
            match self.files.get(path).filter(|(before, _)| **before == **bytes) {
                Some(file) => drop(kept.insert(path.clone(), file.clone())),
                None => unread.push((path, bytes)),
            }
        }
        let read = |(path, bytes): &(&String, &Vec<u8>)| {
            ((*path).clone(), (Arc::from(bytes.as_slice()), Arc::new(parse::read(path, bytes))))
        };
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        if threads > 1 && unread.len() >= WORTH_A_THREAD {
            std::thread::scope(|scope| {
                let shares = unread.chunks(unread.len().div_ceil(threads));
                let readers: Vec<_> = shares
                    .map(|share| scope.spawn(move || share.iter().map(read).collect::<Vec<_>>()))
                    .collect();
                for reader in readers {
                    kept.extend(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                }
            });
        } else {
            kept.extend(unread.iter().map(read));
        }
        Reading { files: kept }
    }

    /// The catalog of these manifests, or everything that is wrong with them. `deployed` holds the digests of releases
    /// that have run: those may not read otherwise.
    pub fn catalog(&self, deployed: &BTreeMap<Name, Digest>) -> Result<Catalog, Diagnostics> {
        let mut found = Diagnostics::default();
        self.files.values().for_each(|(_, file)| found.extend(&file.found));
        let faulty = super::faulty::Faulty::of(self.files.values().flat_map(|(_, file)| &file.faulty));
        let entries: Vec<Entry<'_>> = self.entries().collect();
        let mut catalog = check::index(&entries, &mut found);
        catalog.rendered = catalog.render();
        settings::settings(&entries, &catalog, &faulty, &mut found);
        check::references(&entries, &catalog, faulty, &mut found);
        check::deployed(&entries, &catalog, deployed, &mut found);
        found.settle();
        if found.is_empty() { Ok(catalog) } else { Err(found) }
    }

    /// What is wrong with manifests by themselves, if anything is.
    pub(crate) fn faults(&self) -> Option<Diagnostics> {
        let mut found = Diagnostics::default();
        self.files.values().for_each(|(_, file)| found.extend(&file.found));
        found.settle();
        (!found.is_empty()).then_some(found)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.files.iter().flat_map(|(path, (_, file))| entries(path, file))
    }

    /// Those in files that were not read together with the other's: all others are surely the same.
    pub(crate) fn entries_not_in<'a>(&'a self, other: &'a Reading) -> impl Iterator<Item = Entry<'a>> {
        let is_shared = |path: &String, file: &Arc<ReadFile>| {
            other.files.get(path).is_some_and(|(_, theirs)| Arc::ptr_eq(file, theirs))
        };
        self.files
            .iter()
            .filter(move |(path, (_, file))| !is_shared(path, file))
            .flat_map(|(path, (_, file))| entries(path, file))
    }
}

fn entries<'a>(path: &'a str, file: &'a ReadFile) -> impl Iterator<Item = Entry<'a>> {
    file.manifests.iter().map(move |(source, manifest)| Entry { file: path, source, manifest })
}
