//! Which files weights consist of, before any is read.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Weights that were found, and not read.
#[derive(Debug)]
pub enum Found {
    File(FoundFile),
    /// By their names relative to the folder.
    Folder(BTreeMap<String, FoundFile>),
}

/// A file, and how it was when it was found.
#[derive(Debug)]
pub struct FoundFile {
    pub(crate) path: PathBuf,
    pub(crate) state: FileState,
}

/// What changes a file's content changes one of these. It is the same under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    pub(crate) bytes: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("`{path}` cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` is a link to nothing")]
    Dangling { path: PathBuf },
    #[error("`{path}` leads back to a folder above it; remove the link")]
    Loop { path: PathBuf },
    #[error("`{path}` is neither a file nor a folder; remove it")]
    Special { path: PathBuf },
    #[error(
        "the name of `{}` cannot be listed: it is not UTF-8, or has a backslash or a control character; rename it",
        path.display()
    )]
    Name { path: PathBuf },
    #[error("the folder `{path}` holds no files, but perhaps hidden ones")]
    Empty { path: PathBuf },
}

/// The file at `path`, or the files of the folder there.
///
/// Names that begin with a dot are left out, with all that is in such folders: there tools keep their notes (`.git`,
/// `.cache`, `.DS_Store`), which differ from host to host, and no engine reads them. Links are followed wherever they
/// lead, since it is what they lead to that an engine reads: a snapshot in Hugging Face's cache consists of links.
pub fn find(path: &Path) -> Result<Found, FindError> {
    let meta = metadata(path)?;
    if meta.is_file() {
        return Ok(Found::File(FoundFile::of(path.to_owned(), &meta)));
    }
    if !meta.is_dir() {
        return Err(FindError::Special { path: path.to_owned() });
    }
    let mut files = BTreeMap::new();
    walk(path, "", &mut vec![(meta.dev(), meta.ino())], &mut files)?;
    if files.is_empty() {
        return Err(FindError::Empty { path: path.to_owned() });
    }
    Ok(Found::Folder(files))
}

/// `above` are the folders that lead here, by device and inode.
fn walk(
    folder: &Path,
    prefix: &str,
    above: &mut Vec<(u64, u64)>,
    files: &mut BTreeMap<String, FoundFile>,
) -> Result<(), FindError> {
    let at = |source| FindError::Read { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let path = entry.path();
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let name = name.to_str().filter(|name| is_name(name));
        let name = format!("{prefix}{}", name.ok_or_else(|| FindError::Name { path: path.clone() })?);
        let meta = metadata(&path)?;
        if meta.is_file() {
            files.insert(name, FoundFile::of(path, &meta));
        } else if meta.is_dir() {
            let identity = (meta.dev(), meta.ino());
            if above.contains(&identity) {
                return Err(FindError::Loop { path });
            }
            above.push(identity);
            walk(&path, &format!("{name}/"), above, files)?;
            above.pop();
        } else {
            return Err(FindError::Special { path });
        }
    }
    Ok(())
}

/// Of what a link leads to.
fn metadata(path: &Path) -> Result<Metadata, FindError> {
    fs::metadata(path).map_err(|source| match (source.kind(), fs::symlink_metadata(path)) {
        (io::ErrorKind::NotFound, Ok(_)) => FindError::Dangling { path: path.to_owned() },
        _ => FindError::Read { path: path.to_owned(), source },
    })
}

/// Whether a file can be listed under this name, relative to its folder: what `sha256sum` would print otherwise is left
/// to it, and a name that leads out of the folder is none.
pub fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    name.split('/').all(is_part) && !name.chars().any(|c| c.is_control() || c == '\\')
}

/// Whether a file of this name, relative to its folder, is none of the weights.
pub fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('.'))
}

impl FoundFile {
    fn of(path: PathBuf, meta: &Metadata) -> Self {
        FoundFile { path, state: FileState::of(meta) }
    }

    /// Whether the file is as it was found.
    pub(crate) fn still_holds(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|meta| FileState::of(&meta) == self.state)
    }
}

impl FileState {
    fn of(meta: &Metadata) -> Self {
        FileState {
            bytes: meta.size(),
            device: meta.dev(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(path: &Path) -> Vec<String> {
        match find(path).unwrap() {
            Found::Folder(files) => files.into_keys().collect(),
            Found::File(_) => panic!("a file"),
        }
    }

    #[test]
    fn hidden_files_are_none_of_the_weights_and_links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        // As Hugging Face's cache lays a model out.
        let (blobs, snapshot) = (dir.path().join("blobs"), dir.path().join("snapshots/1"));
        fs::create_dir_all(&blobs).unwrap();
        fs::create_dir_all(snapshot.join(".cache/huggingface")).unwrap();
        fs::write(blobs.join("one"), "1").unwrap();
        fs::write(snapshot.join(".cache/huggingface/x.metadata"), "now").unwrap();
        fs::write(snapshot.join(".gitattributes"), "").unwrap();
        symlink("../../blobs/one", snapshot.join("model.safetensors")).unwrap();
        fs::create_dir(snapshot.join("tokenizer")).unwrap();
        fs::write(snapshot.join("tokenizer/vocab.json"), "{}").unwrap();
        symlink("tokenizer", snapshot.join("again")).unwrap();
        assert_eq!(names(&snapshot), ["again/vocab.json", "model.safetensors", "tokenizer/vocab.json"]);

        symlink("../../blobs/two", snapshot.join("gone")).unwrap();
        let error = find(&snapshot).unwrap_err().to_string();
        assert!(error.ends_with("gone` is a link to nothing"), "{error}");
        fs::remove_file(snapshot.join("gone")).unwrap();
        symlink("..", snapshot.join("tokenizer/up")).unwrap();
        assert!(matches!(find(&snapshot).unwrap_err(), FindError::Loop { path } if path.ends_with("up")));
    }

    #[test]
    fn what_cannot_be_weights_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        assert!(matches!(find(path).unwrap_err(), FindError::Empty { .. }));
        assert!(matches!(find(&path.join("x")).unwrap_err(), FindError::Read { .. }));
        fs::write(path.join("a\nb"), "").unwrap();
        assert!(matches!(find(path).unwrap_err(), FindError::Name { .. }));
        fs::remove_file(path.join("a\nb")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
        assert!(matches!(find(path).unwrap_err(), FindError::Special { .. }));
        for bad in ["", "/a", "a/", "a//b", "../a", "a/./b", "a\\b", "a\tb"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name("a b/ü.txt") && is_hidden("a/.b/c") && !is_hidden("a/b.c"));
    }
}
