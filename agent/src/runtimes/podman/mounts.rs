//! Which files of the host are in a container, and where: at the same paths.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::container::ContainerFailure;
use crate::runtimes::engine::Room;

/// What a container is given of its host's files.
pub(super) fn mounts(room: &Room<'_>) -> Result<Vec<OsString>, ContainerFailure> {
    let mut mounts = Vec::new();
    for path in room.weights.into_iter().flat_map(places) {
        mounts.push(mount(&path, true)?);
    }
    for folder in &room.container.folders {
        let path = PathBuf::from(folder);
        fs::create_dir_all(&path)
            .map_err(|source| ContainerFailure::Folder { path: path.clone(), source })?;
        mounts.push(mount(&path, false)?);
    }
    Ok(mounts)
}

/// At the same path inside as outside.
fn mount(path: &Path, read_only: bool) -> Result<OsString, ContainerFailure> {
    let text = path.to_str().filter(|text| !text.contains([',', '"', '\n', '\r']));
    let text = text.ok_or_else(|| ContainerFailure::Path(path.to_owned()))?;
    Ok(format!("type=bind,source={text},destination={text},ro={read_only}").into())
}

/// A path, and what links below it lead to: a snapshot in Hugging Face's cache is made of links. Hidden files are no part of
/// weights, so what they lead to does not count.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = vec![path.to_owned()];
    let (mut seen, mut unread) = (BTreeSet::new(), vec![path.to_owned()]);
    while let Some(next) = unread.pop() {
        let Ok(meta) = fs::symlink_metadata(&next) else { continue };
        if !seen.insert(next.clone()) {
            continue;
        }
        if meta.is_dir() {
            let entries = fs::read_dir(&next).into_iter().flatten().flatten();
            let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
            unread.extend(shown.map(|entry| entry.path()));
        } else if meta.is_symlink()
            && let (Ok(target), Some(dir)) = (fs::read_link(&next), next.parent())
        {
            let target = plain(&dir.join(target));
            if target.exists() && !places.iter().any(|known| target.starts_with(known)) {
                places.push(target.clone());
            }
            // What it leads to may be a link itself, or a folder with links.
            unread.push(target);
        }
    }
    places.sort();
    places
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_mounted_with_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let snapshot = root.join("snapshots/1");
        for folder in [&snapshot, &root.join("blobs"), &root.join("store")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(root.join("store/one"), "1").unwrap();
        fs::write(snapshot.join("plain"), "0").unwrap();
        symlink(root.join("store/one"), root.join("blobs/one")).unwrap();
        symlink("../../blobs/one", snapshot.join("model")).unwrap();
        // Neither of these is a part of the weights.
        fs::create_dir_all(snapshot.join(".cache")).unwrap();
        symlink("..", snapshot.join(".cache/circle")).unwrap();
        symlink("nowhere", snapshot.join("gone")).unwrap();
        symlink("itself", snapshot.join("itself")).unwrap();
        let expected = ["blobs/one", "snapshots/1", "store/one"].map(|name| root.join(name));
        assert_eq!(places(&snapshot), expected);
        assert_eq!(places(&root.join("store/one")), [root.join("store/one")]);
    }

    #[test]
    fn a_path_that_podman_would_take_apart_is_refused() {
        assert_eq!(mount(Path::new("/a:b"), true).unwrap(), "type=bind,source=/a:b,destination=/a:b,ro=true");
        let error = mount(Path::new("/a,ro=false"), true).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("`/a,ro=false`"), "{error}");
    }
}
