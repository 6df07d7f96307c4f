//! The Git repository that says what should run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use git2::{Repository, Signature};

/// A working repository with manifests at its root.
pub struct ConfigRepository {
    pub path: PathBuf,
    files: BTreeMap<String, String>,
}

impl ConfigRepository {
    /// A new repository; nothing is committed yet.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let mut options = git2::RepositoryInitOptions::new();
        options.initial_head("main");
        Repository::init_opts(path, &options).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(ConfigRepository { path: path.to_owned(), files: BTreeMap::new() })
    }

    /// The text of a manifest file.
    pub fn file(&self, name: &str) -> anyhow::Result<&str> {
        self.files.get(name).map(String::as_str).with_context(|| format!("there is no file {name}"))
    }

    pub fn write(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.files.insert(name.to_owned(), text.to_owned());
        Ok(())
    }

    /// Takes in every manifest of a folder.
    pub fn copy_from(&mut self, folder: &Path) -> anyhow::Result<()> {
        for (name, bytes) in denv_schema::tree::read(folder)? {
            self.write(&name, &String::from_utf8(bytes).context("manifests are UTF-8")?)?;
        }
        Ok(())
    }

    /// Replaces a text that is there exactly once.
    pub fn edit(&mut self, name: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let text = self.file(name)?;
        anyhow::ensure!(text.matches(from).count() == 1, "`{from}` is not once in {name}:\n{text}");
        let text = text.replacen(from, to, 1);
        self.write(name, &text)
    }

    /// Commits all that was written, as a person would, and gives the commit.
    pub fn commit(&self, message: &str) -> anyhow::Result<String> {
        let repository = Repository::open(&self.path)?;
        let mut index = repository.index()?;
        index.add_all(["*"], git2::IndexAddOption::DEFAULT, None)?;
        index.write()?;
        let tree = repository.find_tree(index.write_tree()?)?;
        let author = Signature::now("An Operator", "operator@example.com")?;
        let head = repository.refname_to_id("refs/heads/main").ok();
        let parents = head.map(|oid| repository.find_commit(oid)).transpose()?;
        let parents: Vec<_> = parents.iter().collect();
        let oid = repository.commit(Some("refs/heads/main"), &author, &author, message, &tree, &parents)?;
        Ok(oid.to_string())
    }
}
