//! The manifests of a commit.

use std::collections::HashMap;
use std::path::Path;

use denv_schema::diagnostic::{Code, Diagnostic, Diagnostics};
use denv_schema::tree::{Files, is_manifest};
use git2::{ObjectType, Oid, Repository, Tree, TreeWalkMode, TreeWalkResult};

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
    let (mut files, mut found, mut failed) = (Files::new(), Diagnostics::default(), None);
    let walked = tree.walk(TreeWalkMode::PreOrder, |parent, entry| {
        let path = format!("{parent}{}", entry.name().unwrap_or_default());
        let is_file = entry.kind() == Some(ObjectType::Blob);
        let Some(inside) = path.strip_prefix(&folder).filter(|inside| is_file && is_manifest(inside)) else {
            return TreeWalkResult::Ok;
        };
        let id = entry.id();
        let content = match known.get(&id).filter(|_| entry.filemode() != LINK) {
            Some(content) => Ok(Ok(content.clone())),
            None => content(repository, &tree, &path, id, entry.filemode()),
        };
        match content {
            Ok(Ok(content)) => {
                if entry.filemode() != LINK {
                    next.insert(id, content.clone());
                }
                files.insert(inside.to_owned(), content);
            }
            Ok(Err(unreadable)) => found.push(unreadable.diagnostic(inside)),
            Err(error) => {
                failed = Some(error);
                return TreeWalkResult::Abort;
            }
        }
        TreeWalkResult::Ok
    });
    failed.map_or(walked, Err)?;
    Ok((files, found))
}

/// What a file holds, or what the file holds that it leads to.
fn content(
    repository: &Repository,
    tree: &Tree<'_>,
    path: &str,
    id: Oid,
    mode: i32,
) -> Result<Result<Vec<u8>, Unreadable>, git2::Error> {
    let mut blob = repository.find_blob(id)?;
    if mode == LINK {
        let target = std::str::from_utf8(blob.content()).ok().and_then(|target| resolve(path, target));
        let entry = target.and_then(|target| tree.get_path(Path::new(&target)).ok());
        let entry = entry.filter(|it| it.kind() == Some(ObjectType::Blob) && it.filemode() != LINK);
        let Some(entry) = entry else { return Ok(Err(Unreadable::Link)) };
        blob = repository.find_blob(entry.id())?;
    }
    Ok(if blob.size() <= LARGEST_FILE { Ok(blob.content().to_vec()) } else { Err(Unreadable::TooLarge) })
}

/// The mode of links in Git's trees.
const LINK: i32 = 0o120_000;

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
