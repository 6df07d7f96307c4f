//! Changes that people apply, pushed to remotes that really are.

use std::fs;
use std::path::{Path, PathBuf};

use denv_schema::change::{ChangeRequest, ChangeView, FieldSetting};
use denv_schema::diff::ManifestKey;
use denv_schema::manifest::Kind;
use reqwest::StatusCode;

use crate::process::Reconciler;
use crate::repository::Repository;
use crate::server::{Manner, Server};
use crate::ssh::{RUNS, script};

const CHANGES: &str = "/v1/sources/main/changes";
/// `bot:hunter2`, as HTTP sends it.
const BASIC: &str = "Basic Ym90Omh1bnRlcjI=";

fn rename(to: &str) -> ChangeRequest {
    let manifest = ManifestKey { kind: Kind::Customer, name: "demo".to_owned() };
    let setting = FieldSetting { manifest, field: "/spec/displayName".to_owned(), value: to.into() };
    ChangeRequest { set: vec![setting], ..ChangeRequest::default() }
}

impl Reconciler {
    async fn publish(&self, request: &ChangeRequest) -> String {
        let view: ChangeView = self.ask_with(CHANGES, request).await;
        view.commit.unwrap()
    }
}

struct Https {
    dir: tempfile::TempDir,
    repository: Repository,
    server: Server,
    credentials: PathBuf,
}

impl Https {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let repository = Repository::quickstart(&root);
        let server = Server::start(dir.path(), &root);
        let credentials = dir.path().join("credentials");
        fs::write(&credentials, "bot:hunter2\n").unwrap();
        Https { dir, repository, server, credentials }
    }

    async fn reconciler(&self, path: &str) -> Reconciler {
        let with = [
            ("--source-ca", self.server.authority.as_path()),
            ("--source-credentials", self.credentials.as_path()),
        ];
        Reconciler::start(self.dir.path(), &self.server.url(path), &with).await
    }
}

async fn over_ssh(dir: &Path, repository: &Repository) -> Reconciler {
    let ssh = script(dir, "fake-ssh", RUNS);
    let url = format!("git@git.example.com:{}", repository.bare.display());
    Reconciler::start(dir, &url, &[("--source-ssh-command", &ssh)]).await
}

/// A change goes through; then one while another pushes; then none past the remote's rules.
async fn it_is_published(reconciler: &Reconciler, repository: &Repository) {
    reconciler.accepted().await;
    let commit = reconciler.publish(&rename("Ours")).await;
    assert_eq!(
        (repository.head(), reconciler.source().await.accepted.unwrap().commit),
        (commit.clone(), commit)
    );
    assert!(repository.file("commerce.yaml").contains("displayName: Ours"));

    // Between the listing and the update, where nobody but the remote sees it.
    let theirs = repository.prepare_another();
    repository.hook("update", &format!("rm \"$0\"\nexec git update-ref refs/heads/main {theirs}\n"));
    let commit = reconciler.publish(&rename("Ours again")).await;
    assert_eq!(repository.head(), commit);
    assert!(repository.file("commerce.yaml").contains("displayName: Ours again"));
    assert!(repository.file("customers/theirs.yaml").contains("theirs"));
    assert_eq!(reconciler.source().await.accepted.unwrap().commit, commit);

    repository.hook("pre-receive", "echo 'only on weekdays' >&2\necho 'ask Ada' >&2\nexit 1\n");
    let (status, said) = reconciler.refusal(CHANGES, &rename("Others")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let expected = "does not take the commit: pre-receive hook declined: only on weekdays; ask Ada";
    assert!(said.ends_with(expected), "{said}");
    assert_eq!(repository.head(), commit);
    repository.take_hook_away("pre-receive");

    let apart = ChangeRequest { branch: Some("topic".to_owned()), ..rename("Apart") };
    reconciler.publish(&apart).await;
    let (status, said) = reconciler.refusal(CHANGES, &apart).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(said.contains("branch `topic` exists already"), "{said}");
    assert_eq!(repository.head(), commit);
}

#[tokio::test]
async fn over_https() {
    let bench = Https::new();
    bench.server.demand(BASIC);
    let reconciler = bench.reconciler("/serving.git").await;
    it_is_published(&reconciler, &bench.repository).await;
    let asked: Vec<_> = bench.server.seen().into_iter().map(|seen| (seen.method, seen.path)).collect();
    let pushed = ("POST".to_owned(), "/serving.git/git-receive-pack".to_owned());
    assert!(asked.contains(&pushed), "{asked:?}");
}

#[tokio::test]
async fn over_ssh_with_a_file_that_no_pipe_holds() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(dir.path());
    let reconciler = over_ssh(dir.path(), &repository).await;
    it_is_published(&reconciler, &repository).await;
    // Nothing in it compresses, and the remote is in no hurry.
    let mut seed = 1_u64;
    let noise = (0..400_000).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((seed >> 33) % 26).unwrap())
    });
    let long = ChangeRequest {
        manifests: [("long.yaml".to_owned(), customer("long", &noise.collect::<String>()))].into(),
        ..ChangeRequest::default()
    };
    script(dir.path(), "fake-ssh", &RUNS.replace("exec sh", "sleep 0.2\nexec sh"));
    let view: ChangeView = reconciler.ask_with(CHANGES, &long).await;
    assert_eq!(view.commit, Some(repository.head()));
    assert!(repository.file(&view.files[0]).len() > 400_000);
    assert_eq!(reconciler.children(), 0);
}

fn customer(name: &str, comment: &str) -> String {
    format!("apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: {name}}}\n# {comment}\nspec: {{}}\n")
}

#[tokio::test]
async fn a_repository_that_moved_on_its_host_is_pushed_to_where_it_is() {
    let bench = Https::new();
    bench.server.behave(Manner::Moved);
    let reconciler = bench.reconciler("/old/serving.git").await;
    reconciler.accepted().await;
    // Without a demand for them the credentials are sent all the same.
    let commit = reconciler.publish(&rename("Ours")).await;
    assert_eq!(bench.repository.head(), commit);
}

#[tokio::test]
async fn those_who_may_only_read_are_told_so() {
    let bench = Https::new();
    let before = bench.repository.head();
    bench.server.behave(Manner::ReadOnly);
    let reconciler = bench.reconciler("/serving.git").await;
    reconciler.accepted().await;
    let says = async |words: &[&str]| {
        let (status, said) = reconciler.refusal(CHANGES, &rename("Ours")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        for words in words {
            assert!(said.contains(words), "`{words}` is not in: {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    };
    let url = bench.server.url("/serving.git");
    says(&[
        &format!(
            "cannot push to branch `main` of `{url}`: the credentials may read `{url}` but not push to it"
        ),
        "(403 Forbidden)",
        "--source-credentials; it said: Write access not granted.",
    ])
    .await;
    bench.server.behave(Manner::Serve);
    bench.server.demand("Basic another");
    says(&["refused the credentials (401 Unauthorized)", "--source-credentials"]).await;
    fs::remove_file(&bench.credentials).unwrap();
    says(&["cannot read `", "(--source-credentials): No such file"]).await;
    assert_eq!(bench.repository.head(), before);
}

#[tokio::test]
async fn without_credentials_a_push_asks_for_some() {
    let bench = Https::new();
    let with = [("--source-ca", bench.server.authority.as_path())];
    let reconciler = Reconciler::start(bench.dir.path(), &bench.server.url("/serving.git"), &with).await;
    reconciler.accepted().await;
    let (status, said) = reconciler.refusal(CHANGES, &rename("Ours")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(said.contains("takes no push without credentials (403 Forbidden); give a file"), "{said}");
}

#[tokio::test]
async fn a_key_that_only_reads_is_told_by_the_hosts_words() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(dir.path());
    let reconciler = over_ssh(dir.path(), &repository).await;
    reconciler.accepted().await;
    let refuses = "case \"$*\" in\n*git-receive-pack*)\n  echo \"$SAID\" >&2\n  exit 1\nesac\n";
    for said in [
        "ERROR: The key you are authenticating with has been marked as read only.",
        "ERROR: Permission to ml/serving.git denied to deploy key",
        "ERROR: This deploy key does not have write access to this project.",
    ] {
        script(dir.path(), "fake-ssh", &format!("SAID='{said}'\n{refuses}{RUNS}"));
        let (status, told) = reconciler.refusal(CHANGES, &rename("Ours")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        let expected =
            format!("ssh to `git@git.example.com` failed: {said}; give denv's user a key that may push");
        assert!(told.contains(&expected), "{told}");
    }
    script(dir.path(), "fake-ssh", RUNS);
    let commit = reconciler.publish(&rename("Ours")).await;
    assert_eq!(repository.head(), commit);
}

#[tokio::test]
async fn a_remote_that_dies_while_it_takes_the_pack_has_taken_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(dir.path());
    let reconciler = over_ssh(dir.path(), &repository).await;
    let before = reconciler.accepted().await;
    let dies = format!(
        "case \"$*\" in\n*git-receive-pack*)\n  git-receive-pack --http-backend-info-refs '{}'\n  sleep 0.1\n  \
         echo 'Connection reset by peer' >&2\n  exit 255\nesac\n",
        repository.bare.display()
    );
    script(dir.path(), "fake-ssh", &format!("{dies}{RUNS}"));
    let (status, said) = reconciler.refusal(CHANGES, &rename("Ours")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(said.contains("ssh to `git@git.example.com` failed: Connection reset by peer"), "{said}");
    script(dir.path(), "fake-ssh", RUNS);
    assert_eq!(reconciler.accepted().await, before);
}

#[tokio::test]
async fn a_branch_that_is_checked_out_elsewhere_is_not_pushed_to() {
    let dir = tempfile::tempdir().unwrap();
    let mut repository = Repository::quickstart(dir.path());
    let before = repository.head();
    repository.bare = dir.path().join("worktree");
    let reconciler = over_ssh(dir.path(), &repository).await;
    reconciler.accepted().await;
    let (status, said) = reconciler.refusal(CHANGES, &rename("Ours")).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(said.contains("must be a bare repository"), "{said}");
    assert_eq!(repository.head(), before);
}
