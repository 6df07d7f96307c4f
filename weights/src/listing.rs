//! What weights consist of, and what that is called: pure.

use std::collections::BTreeMap;
use std::fmt;

use denv_schema::Digest;
use denv_schema::diagnostic::counted;

/// What was read of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileContents {
    pub bytes: u64,
    /// Of its content.
    pub digest: Digest,
}

/// What was read of weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    File(FileContents),
    Folder(Listing),
}

/// The files of a folder by their names relative to it, with `/` between folders, in the order of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    files: BTreeMap<String, FileContents>,
}

/// What sets one folder apart from the one that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Missing(String),
    TooMany(String),
    Changed(String),
}

/// Above this, each file is not tried as the one too many: it would take too long to say.
const TRIED_WITHOUT: usize = 2000;

impl Contents {
    /// Of a file, that of its content; of a folder, that of its listing.
    pub fn digest(&self) -> Digest {
        match self {
            Contents::File(file) => file.digest,
            Contents::Folder(listing) => listing.digest(),
        }
    }
}

impl Listing {
    /// The digest of what `sha256sum` prints of all files, each called `./` and its name.
    pub fn digest(&self) -> Digest {
        digest_of(self.files.iter())
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, &FileContents)> {
        self.files.iter().map(|(name, file)| (name.as_str(), file))
    }

    /// The file, where there is one alone.
    pub fn only(&self) -> Option<(&str, &FileContents)> {
        if self.files.len() == 1 { self.files().next() } else { None }
    }

    /// Of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// How it differs from the folder that is meant.
    pub fn differences(&self, meant: &Listing) -> Vec<Difference> {
        let here = self.files.iter().filter_map(|(name, file)| match meant.files.get(name) {
            None => Some(Difference::TooMany(name.clone())),
            Some(other) => (file.digest != other.digest).then(|| Difference::Changed(name.clone())),
        });
        let missing = meant.files.keys().filter(|name| !self.files.contains_key(*name));
        missing.cloned().map(Difference::Missing).chain(here).collect()
    }

    /// The file without which this would be the folder that has this digest. A file that is missing leaves no trace in a
    /// digest; one too many does.
    pub fn one_too_many(&self, meant: Digest) -> Option<&str> {
        if self.files.len() > TRIED_WITHOUT {
            return None;
        }
        let without = |left_out: &&String| digest_of(self.files.iter().filter(|(name, _)| name != left_out));
        self.files.keys().find(|name| without(name) == meant).map(String::as_str)
    }
}

impl FromIterator<(String, FileContents)> for Listing {
    fn from_iter<I: IntoIterator<Item = (String, FileContents)>>(files: I) -> Self {
        Listing { files: files.into_iter().collect() }
    }
}

fn digest_of<'a>(files: impl Iterator<Item = (&'a String, &'a FileContents)>) -> Digest {
    let lines: String = files.map(|(name, file)| line(name, file)).collect();
    Digest::of_bytes(lines.as_bytes())
}

fn line(name: &str, file: &FileContents) -> String {
    let digest = file.digest.to_string();
    format!("{}  ./{name}\n", digest.trim_start_matches("sha256:"))
}

/// As `sha256sum` prints it, and checks it.
impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.iter().try_for_each(|(name, file)| f.write_str(&line(name, file)))
    }
}

/// What it is, for people: `a file`, or `a folder of 12 files`.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contents::File(_) => f.write_str("a file"),
            Contents::Folder(listing) => write!(f, "a folder of {}", counted(listing.files.len(), "file")),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Missing(name) => write!(f, "`{name}` is missing"),
            Difference::TooMany(name) => write!(f, "`{name}` is too many"),
            Difference::Changed(name) => write!(f, "`{name}` is another"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(text: &str) -> FileContents {
        FileContents { bytes: text.len() as u64, digest: Digest::of_bytes(text.as_bytes()) }
    }

    fn listing(files: &[(&str, &str)]) -> Listing {
        files.iter().map(|(name, text)| ((*name).to_owned(), contents(text))).collect()
    }

    #[test]
    fn a_folders_digest_is_that_of_what_sha256sum_prints() {
        let folder = listing(&[("b", "two"), ("a/c", "one"), ("a-c", "three")]);
        assert_eq!(
            folder.to_string(),
            "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f  ./a-c\n\
             7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  ./a/c\n\
             3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3  ./b\n"
        );
        assert_eq!(folder.digest(), Digest::of_bytes(folder.to_string().as_bytes()));
        assert_eq!(
            (folder.bytes(), Contents::Folder(folder).to_string()),
            (11, "a folder of 3 files".into())
        );
    }

    #[test]
    fn differences_are_named() {
        let meant = listing(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let here = listing(&[("b", "2"), ("c", "4"), ("d", "5")]);
        let said: Vec<String> = here.differences(&meant).iter().map(Difference::to_string).collect();
        assert_eq!(said, ["`a` is missing", "`c` is another", "`d` is too many"]);
        assert_eq!(meant.differences(&meant), []);
    }

    proptest! {
        #[test]
        fn whatever_changes_a_folder_changes_its_digest(
            files in proptest::collection::btree_map("[a-c]{1,3}(/[a-c])?", "[xy]{0,2}", 1..6),
            other in proptest::collection::btree_map("[a-c]{1,3}(/[a-c])?", "[xy]{0,2}", 1..6),
        ) {
            let of = |files: &BTreeMap<String, String>| -> Listing {
                files.iter().map(|(name, text)| (name.clone(), contents(text))).collect()
            };
            let (this, that) = (of(&files), of(&other));
            prop_assert_eq!(this.digest() == that.digest(), files == other);
            prop_assert_eq!(this.differences(&that).is_empty(), files == other);
        }

        #[test]
        fn one_file_too_many_is_found(
            files in proptest::collection::btree_map("[a-c]{1,3}", "[xy]{0,2}", 0..6),
            extra in "[d-e]{1,3}",
        ) {
            let mut meant: Listing = files.iter().map(|(name, text)| (name.clone(), contents(text))).collect();
            let digest = meant.digest();
            prop_assert_eq!(meant.one_too_many(digest), None);
            meant.files.insert(extra.clone(), contents("z"));
            prop_assert_eq!(meant.one_too_many(digest), Some(extra.as_str()));
        }
    }
}
