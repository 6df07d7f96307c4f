//! Manifest files, from a folder. Other places (a Git tree) give the same [`Files`].

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Code, Diagnostic, Diagnostics};

/// Contents by path, relative to the root, with `/`.
pub type Files = BTreeMap<String, Vec<u8>>;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Unreadable(Diagnostics),
}

/// Whether a path, relative to the root, is a manifest: `.yaml` or `.yml`, and nothing on the way hidden.
pub fn is_manifest(path: &str) -> bool {
    (path.ends_with(".yaml") || path.ends_with(".yml")) && !path.split('/').any(|part| part.starts_with('.'))
}

/// The manifests below `root`, in any layout of folders. `root` may be one file. What can't be read as a manifest,
/// because it is a link to nowhere or out of the tree, is told beside them.
pub fn scan(root: &Path) -> Result<(Files, Diagnostics), ReadError> {
    let canonical =
        |path: &Path| path.canonicalize().map_err(|source| ReadError::Io { path: path.to_owned(), source });
    let real_root = canonical(root)?;
    let (mut files, mut found) = (Files::new(), Diagnostics::default());
    if real_root.is_file() {
        let name = root
            .file_name()
            .map_or_else(|| "manifest.yaml".to_owned(), |name| name.to_string_lossy().into_owned());
        files.insert(name, read_file(root)?);
        return Ok((files, found));
    }
    let mut folders = vec![real_root.clone()];
    while let Some(folder) = folders.pop() {
        let io_error = |source| ReadError::Io { path: folder.clone(), source };
        for entry in std::fs::read_dir(&folder).map_err(io_error)? {
            let path = entry.map_err(io_error)?.path();
            let name = path.strip_prefix(&real_root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if name.rsplit('/').next().is_some_and(|last| last.starts_with('.')) {
                continue;
            }
            // Where another kind of file leads to is nobody's business here.
            if path.is_symlink() && (is_manifest(&name) || path.is_dir()) {
                match path.canonicalize() {
                    Ok(target) if target.starts_with(&real_root) => {}
                    Ok(_) => {
                        found.push(unreadable(name, "the link leads out of the folder that is read"));
                        continue;
                    }
                    Err(_) => {
                        found.push(unreadable(name, "the link leads to no file"));
                        continue;
                    }
                }
            }
            // A link to a folder inside the tree would show the same manifests twice.
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if path.is_file() && is_manifest(&name) {
                files.insert(name, read_file(&path)?);
            }
        }
    }
    Ok((files, found))
}

/// The same, where all of it must be readable.
pub fn read(root: &Path) -> Result<Files, ReadError> {
    let (files, found) = scan(root)?;
    if found.is_empty() { Ok(files) } else { Err(ReadError::Unreadable(found)) }
}

fn unreadable(file: String, message: &str) -> Diagnostic {
    let hint = Some("copy the file instead".to_owned());
    Diagnostic { file, line: 0, column: 0, code: Code::Unreadable, message: message.to_owned(), hint }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    std::fs::read(path).map_err(|source| ReadError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_found_in_any_layout_and_links_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "a: 1").unwrap();
        };
        for name in ["a.yaml", "deep/er/b.yml", "c.txt", ".git/d.yaml"] {
            write(name);
        }
        let files = read(dir.path()).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a.yaml", "deep/er/b.yml"]);

        let (outside, folder) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        link(outside.path(), "NOTES");
        link(Path::new("nowhere"), "dangling");
        link(folder.path(), ".hidden");
        assert_eq!(read(dir.path()).unwrap(), files);
        for (to, name) in
            [(outside.path(), "out.yaml"), (folder.path(), "out"), (Path::new("/etc/hosts"), "deep/h.yml")]
        {
            link(to, name);
            let (rest, found) = scan(dir.path()).unwrap();
            assert_eq!((rest, found.len()), (files.clone(), 1));
            let error = read(dir.path()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name}: the link leads out of")), "{error}");
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        link(Path::new("nowhere"), "dangling.yaml");
        let (rest, found) = scan(dir.path()).unwrap();
        assert_eq!((rest, found.iter().next().unwrap().file.as_str()), (files, "dangling.yaml"));
    }
}
