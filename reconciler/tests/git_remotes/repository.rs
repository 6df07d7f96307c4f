//! A repository made with Git itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const QUICKSTART: [(&str, &str); 4] = [
    ("capacity.yaml", include_str!("../../../examples/manifests/quickstart/capacity.yaml")),
    ("software.yaml", include_str!("../../../examples/manifests/quickstart/software.yaml")),
    ("service.yaml", include_str!("../../../examples/manifests/quickstart/service.yaml")),
    ("commerce.yaml", include_str!("../../../examples/manifests/quickstart/commerce.yaml")),
];

/// A bare repository, and a worktree that pushes to it.
pub(crate) struct Repository {
    pub(crate) bare: PathBuf,
    worktree: PathBuf,
}

impl Repository {
    /// The quickstart's manifests, committed.
    pub(crate) fn quickstart(dir: &Path) -> Self {
        let (bare, worktree) = (dir.join("serving.git"), dir.join("worktree"));
        fs::create_dir_all(dir).unwrap();
        git(dir, &["init", "--quiet", "--bare", "--initial-branch=main", "serving.git"]);
        git(dir, &["clone", "--quiet", "serving.git", "worktree"]);
        git(&worktree, &["checkout", "--quiet", "-B", "main"]);
        let repository = Repository { bare, worktree };
        for (name, text) in QUICKSTART {
            repository.write(name, text);
        }
        repository.commit("begin");
        repository
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.worktree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A customer, so that a revision differs.
    pub(crate) fn add_customer(&self, name: &str) {
        let text = format!(
            "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: {name}}}\nspec:\n  displayName: Number {name}\n"
        );
        self.write(&format!("customers/{name}.yaml"), &text);
    }

    /// Commits everything and pushes it; returns the commit.
    pub(crate) fn commit(&self, message: &str) -> String {
        git(&self.worktree, &["add", "--all"]);
        git(&self.worktree, &["commit", "--quiet", "--message", message]);
        self.commit_of_push(&[])
    }

    /// This many commits that change nothing.
    pub(crate) fn commit_empty(&self, count: usize) -> String {
        for _ in 0..count {
            git(&self.worktree, &["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
        }
        self.commit_of_push(&[])
    }

    /// Takes back this many commits, and puts another in their place.
    pub(crate) fn rewrite(&self, back: usize) -> String {
        git(&self.worktree, &["reset", "--quiet", "--hard", &format!("HEAD~{back}")]);
        git(&self.worktree, &["commit", "--quiet", "--allow-empty", "--message", "another"]);
        self.commit_of_push(&["--force"])
    }

    /// Prepares the commit that another pushes to the branch while denv does: the remote has it, beside the branch.
    pub(crate) fn prepare_another(&self) -> String {
        git(&self.worktree, &["fetch", "--quiet", "origin"]);
        git(&self.worktree, &["reset", "--quiet", "--hard", "origin/main"]);
        self.add_customer("theirs");
        git(&self.worktree, &["add", "--all"]);
        git(&self.worktree, &["commit", "--quiet", "--message", "theirs"]);
        git(&self.worktree, &["push", "--quiet", "origin", "HEAD:refs/other/theirs"]);
        git(&self.worktree, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Has the remote run this at each push to it.
    pub(crate) fn hook(&self, name: &str, script: &str) {
        let path = self.bare.join("hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn take_hook_away(&self, name: &str) {
        fs::remove_file(self.bare.join("hooks").join(name)).unwrap();
    }

    pub(crate) fn head(&self) -> String {
        git(&self.bare, &["rev-parse", "refs/heads/main"]).trim().to_owned()
    }

    /// The files at the head of the branch.
    pub(crate) fn file(&self, path: &str) -> String {
        git(&self.bare, &["show", &format!("refs/heads/main:{path}")])
    }

    fn commit_of_push(&self, with: &[&str]) -> String {
        git(&self.worktree, &[&["push", "--quiet"], with, &["origin", "main"]].concat());
        git(&self.worktree, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Everything that is loose goes to one more pack.
    pub(crate) fn pack(&self) {
        git(&self.bare, &["repack", "--quiet", "-d"]);
    }

    pub(crate) fn packs(&self) -> usize {
        packs(&self.bare)
    }
}

pub(crate) fn packs(bare: &Path) -> usize {
    let Ok(entries) = fs::read_dir(bare.join("objects/pack")) else { return 0 };
    entries
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "pack"))
        .count()
}

pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(dir)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "Ada")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "ada@example.com")))
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
