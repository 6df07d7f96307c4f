//! The Git repository that says what should run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use git2::{Repository, Signature};

/// A working repository with manifests at its root.
pub struct ConfigRepository {
    /// A person's clone.
    pub path: PathBuf,
    /// Where it is pushed to, and what the reconciler watches.
    pub remote: PathBuf,
    files: BTreeMap<String, String>,
}

impl ConfigRepository {
    /// A new repository; nothing is committed yet.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let mut options = git2::RepositoryInitOptions::new();
        options.initial_head("main");
        let making = |path: &Path| format!("cannot make {}", path.display());
        let clone = Repository::init_opts(path, &options).with_context(|| making(path))?;
        let remote = path.with_extension("git");
        Repository::init_opts(&remote, options.bare(true)).with_context(|| making(&remote))?;
        clone.remote("origin", &remote.display().to_string())?;
        // So that `git commit` and `git push` do what they say, on a machine that was never told who works there.
        let mut config = clone.config()?;
        for (name, value) in [
            ("branch.main.remote", "origin"),
            ("branch.main.merge", "refs/heads/main"),
            ("user.name", "An Operator"),
            ("user.email", "operator@example.com"),
        ] {
            config.set_str(name, value)?;
        }
        Ok(ConfigRepository { path: path.to_owned(), remote, files: BTreeMap::new() })
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

    /// Takes over what others have pushed.
    pub fn pull(&mut self) -> anyhow::Result<()> {
        let repository = Repository::open(&self.path)?;
        repository.find_remote("origin")?.fetch(
            &["+refs/heads/main:refs/remotes/origin/main"],
            None,
            None,
        )?;
        let theirs = repository.find_reference("refs/remotes/origin/main")?.peel(git2::ObjectType::Commit)?;
        repository.reset(&theirs, git2::ResetType::Hard, None)?;
        self.files.clear();
        for (name, bytes) in denv_schema::tree::read(&self.path)? {
            self.files.insert(name, String::from_utf8(bytes).context("manifests are UTF-8")?);
        }
        Ok(())
    }

    /// Commits all that was written and pushes it, as a person would, and gives the commit.
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
        repository.find_remote("origin")?.push(&["refs/heads/main"], None)?;
        Ok(oid.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_person_commits_and_pushes_with_git_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut repository = ConfigRepository::create(&dir.path().join("config")).unwrap();
        repository.write("a.yaml", "# one\n").unwrap();
        repository.commit("Begin").unwrap();
        std::fs::write(repository.path.join("a.yaml"), "# two\n").unwrap();
        for line in ["commit -q -a -m Next", "push -q"] {
            let git = Command::new("git")
                .args(line.split(' '))
                .current_dir(&repository.path)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_SYSTEM", "/dev/null")
                .output()
                .unwrap();
            assert!(git.status.success(), "{line}: {}", String::from_utf8_lossy(&git.stderr));
        }
        let remote = Repository::open(&repository.remote).unwrap();
        let newest = remote.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
        assert_eq!(newest.message().unwrap(), "Next\n");
    }
}
