//! The mirror's packs. Each fetch adds one, and libgit2 never merges them: after a year of pushes every look would open
//! thousands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git2::Repository;

/// Enough that merging is rare, few enough that looking through them costs nothing.
pub(super) const MOST_PACKS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(super) enum PackError {
    #[error("cannot merge the mirror's packs: {}", .0.message())]
    Git(#[from] git2::Error),
    #[error("cannot tidy the mirror's packs")]
    Folder(#[from] io::Error),
}

/// Merges packs into one when there are too many. Everything is kept: what is in force may be no branch's any more.
/// `mirror` is to be opened anew after it.
pub(super) fn merge(mirror: &Repository) -> Result<(), PackError> {
    let folder = mirror.path().join("objects/pack");
    let old = packs(&folder)?;
    if old.len() <= MOST_PACKS {
        return Ok(());
    }
    let mut objects = Vec::new();
    mirror.odb()?.foreach(|object| {
        objects.push(*object);
        true
    })?;
    let mut builder = mirror.packbuilder()?;
    for object in objects {
        builder.insert_object(object, None)?;
    }
    // On the disk for good when this returns: the mirror is set so (`core.fsyncObjectFiles`).
    builder.write(&folder, 0)?;
    let merged = builder.name()?.map(|name| format!("pack-{name}.pack"));
    let merged = merged.ok_or_else(|| git2::Error::from_str("the merged pack has no name"))?;
    for pack in old {
        if pack.file_name().is_none_or(|name| name != merged.as_str()) {
            // A pack without an index is not seen, so a stop between the two leaves nothing half there.
            fs::remove_file(pack.with_extension("idx"))?;
            fs::remove_file(pack)?;
        }
    }
    Ok(())
}

fn packs(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "pack")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_are_merged_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mirror = Repository::init_bare(dir.path()).unwrap();
        mirror.config().unwrap().set_bool("core.fsyncObjectFiles", true).unwrap();
        let folder = dir.path().join("objects/pack");
        let mut written = Vec::new();
        for number in 0..=MOST_PACKS {
            // Referred to by nothing.
            let object = mirror.blob(format!("blob {number}").as_bytes()).unwrap();
            let mut builder = mirror.packbuilder().unwrap();
            builder.insert_object(object, None).unwrap();
            builder.write(&folder, 0).unwrap();
            written.push(object);
            let id = object.to_string();
            fs::remove_file(dir.path().join("objects").join(&id[..2]).join(&id[2..])).unwrap();
            let before = packs(&folder).unwrap().len();
            assert_eq!(before, number + 1);
        }
        let mirror = Repository::open_bare(dir.path()).unwrap();
        merge(&mirror).unwrap();
        merge(&mirror).unwrap();
        assert_eq!(packs(&folder).unwrap().len(), 1);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        let mirror = Repository::open_bare(dir.path()).unwrap();
        for (number, object) in written.into_iter().enumerate() {
            assert_eq!(mirror.find_blob(object).unwrap().content(), format!("blob {number}").as_bytes());
        }
    }
}
