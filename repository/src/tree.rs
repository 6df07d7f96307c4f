//! The manifests of a commit.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::path::Path;

use denv_schema::diagnostic::{Code, Diagnostic, Diagnostics};
use denv_schema::tree::{Files, is_manifest};
use git2::{ObjectType, Odb, Oid, Repository, Tree, TreeWalkMode, TreeWalkResult};

use crate::GitError;

/// Manifests are written by people: a larger file is something else, and would only fill memory.
const LARGEST_FILE: usize = 4 << 20;

/// The manifests in a commit's tree, below `folder`, as a checkout would hold them: links inside the tree are
/// followed. What can't be read as a manifest is told, not passed over.
pub fn manifests(
    repository: &Repository,
    commit: Oid,
    folder: &str,
) -> Result<(Files, Diagnostics), GitError> {
    Blobs::default().manifests(repository, commit, folder)
}

/// What files held in the commit that was read last: the next one has most of them.
#[derive(Debug, Default)]
pub struct Blobs(HashMap<Oid, Vec<u8>>);

impl Blobs {
    /// The same as [`manifests`], without reading again what the last commit had too.
    pub fn manifests(
        &mut self,
        repository: &Repository,
        commit: Oid,
        folder: &str,
    ) -> Result<(Files, Diagnostics), GitError> {
        let mut next = HashMap::new();
        let read = read(repository, commit, folder, &self.0, &mut next)?;
        self.0 = next;
        Ok(read)
    }
}

fn read(
    repository: &Repository,
    commit: Oid,
    folder: &str,
    known: &HashMap<Oid, Vec<u8>>,
    next: &mut HashMap<Oid, Vec<u8>>,
) -> Result<(Files, Diagnostics), GitError> {
    let tree = repository.find_commit(commit)?.tree()?;
    let folder = match folder.trim_matches('/') {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let mut wanted = Vec::new();
    tree.walk(TreeWalkMode::PreOrder, |parent, entry| {
        let path = format!("{parent}{}", entry.name().unwrap_or_default());
        let is_file = entry.kind() == Some(ObjectType::Blob);
        if is_file && path.strip_prefix(&folder).is_some_and(is_manifest) {
            wanted.push(Wanted { path, id: entry.id(), is_link: entry.filemode() == LINK });
        }
        TreeWalkResult::Ok
    })?;
    let odb = repository.odb()?;
    let blobs = contents(repository, wanted.iter().filter(|it| !it.is_link && !known.contains_key(&it.id)))?;
    let (mut files, mut found) = (Files::new(), Diagnostics::default());
    for Wanted { path, id, is_link } in wanted {
        let inside = path[folder.len()..].to_owned();
        let content = if is_link {
            linked(&odb, &tree, &path, id)?
        } else {
            known.get(&id).map_or_else(|| blobs[&id].clone(), |content| Ok(content.clone()))
        };
        match content {
            Ok(content) => {
                if !is_link {
                    next.insert(id, content.clone());
                }
                files.insert(inside, content);
            }
            Err(unreadable) => found.push(unreadable.diagnostic(&inside)),
        }
    }
    Ok((files, found))
}

/// A manifest that a tree has.
struct Wanted {
    path: String,
    id: Oid,
    is_link: bool,
}

/// Below this many files a second thread costs more than it spares.
const WORTH_A_THREAD: usize = 64;

/// What these files hold. Git keeps each compressed and by itself, so that reading many is work for every core. libgit2
/// reads one at a time from a repository that it has open, so each core opens it for itself.
fn contents<'a>(
    repository: &Repository,
    wanted: impl Iterator<Item = &'a Wanted>,
) -> Result<HashMap<Oid, Result<Vec<u8>, Unreadable>>, git2::Error> {
    let mut ids: Vec<Oid> = wanted.map(|it| it.id).collect();
    let mut seen = HashSet::new();
    ids.retain(|id| seen.insert(*id));
    let read = |repository: &Repository, ids: &[Oid]| -> Result<Vec<_>, git2::Error> {
        let odb = repository.odb()?;
        ids.iter().map(|id| Ok((*id, content(&odb, *id)?))).collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    if threads == 1 || ids.len() < WORTH_A_THREAD {
        return Ok(read(repository, &ids)?.into_iter().collect());
    }
    let path = repository.path();
    std::thread::scope(|scope| {
        let shares = ids.chunks(ids.len().div_ceil(threads));
        let readers: Vec<_> =
            shares.map(|share| scope.spawn(move || read(&Repository::open(path)?, share))).collect();
        let mut all = HashMap::with_capacity(ids.len());
        for reader in readers {
            all.extend(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

fn content(odb: &Odb<'_>, id: Oid) -> Result<Result<Vec<u8>, Unreadable>, git2::Error> {
    let blob = odb.read(id)?;
    Ok(if blob.len() <= LARGEST_FILE { Ok(blob.data().to_vec()) } else { Err(Unreadable::TooLarge) })
}

/// What the file holds that a link leads to.
fn linked(
    odb: &Odb<'_>,
    tree: &Tree<'_>,
    path: &str,
    id: Oid,
) -> Result<Result<Vec<u8>, Unreadable>, git2::Error> {
    let link = odb.read(id)?;
    let target = std::str::from_utf8(link.data()).ok().and_then(|target| resolve(path, target));
    let entry = target.and_then(|target| tree.get_path(Path::new(&target)).ok());
    match entry.filter(|it| it.kind() == Some(ObjectType::Blob) && it.filemode() != LINK) {
        Some(entry) => content(odb, entry.id()),
        None => Ok(Err(Unreadable::Link)),
    }
}

/// The mode of links in Git's trees.
const LINK: i32 = 0o120_000;

#[derive(Clone, Copy)]
enum Unreadable {
    Link,
    TooLarge,
}

impl Unreadable {
    fn diagnostic(&self, file: &str) -> Diagnostic {
        let (message, hint) = match self {
            Unreadable::Link => {
                ("the file is a link that leads to no file in the repository", "copy the file instead")
            }
            Unreadable::TooLarge => ("the file is larger than 4 MiB", "split it"),
        };
        Diagnostic {
            file: file.to_owned(),
            line: 0,
            column: 0,
            code: Code::Unreadable,
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        }
    }
}

/// Where a link at `path` leads, from the tree's root; none if that is outside.
fn resolve(path: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
