use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use denv_schema::api::SourceState;

use crate::process::Reconciler;
use crate::repository::{Repository, packs};
use crate::server::{Manner, Server};

const PASSWORD: &str = "planted-hunter2";
/// `bot:planted-hunter2`, as HTTP sends it.
const BASIC: &str = "Basic Ym90OnBsYW50ZWQtaHVudGVyMg==";

struct Bench {
    dir: tempfile::TempDir,
    repository: Repository,
    server: Server,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let repository = Repository::quickstart(&root);
        let server = Server::start(dir.path(), &root);
        Bench { dir, repository, server }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    async fn reconciler(&self) -> Reconciler {
        self.reconciler_at("/serving.git", &[]).await
    }

    async fn reconciler_at(&self, path: &str, with: &[(&str, &Path)]) -> Reconciler {
        let mut all = vec![("--source-ca", self.server.authority.as_path())];
        all.extend(with);
        Reconciler::start(self.path(), &self.server.url(path), &all).await
    }

    fn credentials(&self, text: &str) -> PathBuf {
        let path = self.path().join("credentials");
        fs::write(&path, text).unwrap();
        path
    }
}

#[track_caller]
fn assert_says(problem: &str, words: &[&str]) {
    for words in words {
        assert!(problem.contains(words), "`{words}` is not in: {problem}");
    }
    assert!(!problem.contains("class="), "{problem}");
}

fn assert_kept_secret(everything: &[u8]) {
    let encoded = BASIC.trim_start_matches("Basic ");
    for secret in [PASSWORD, encoded] {
        let found = everything.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
        assert!(!found, "`{secret}` is shown, logged or kept");
    }
}

#[tokio::test]
async fn it_is_fetched_and_followed_on_one_connection_a_look() {
    let bench = Bench::new();
    let reconciler = bench.reconciler().await;
    reconciler.accepted().await;
    let before = bench.server.connections();
    bench.server.seen();
    bench.repository.add_customer("second");
    let second = bench.repository.commit("second");
    assert_eq!(reconciler.accepted().await, second);
    let methods: Vec<_> = bench.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["GET", "POST"]);
    assert_eq!(bench.server.connections() - before, 1);

    // Nothing new costs one listing, and leaves nothing behind.
    let (packs_before, held) = (packs(&reconciler.mirror()), reconciler.held());
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(reconciler.accepted().await, second);
    }
    println!("a look that finds nothing new takes {:?}", begun.elapsed() / 20);
    let seen = bench.server.seen();
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|seen| seen.method == "GET" && seen.authorization.is_none()), "{seen:?}");
    assert_eq!(packs(&reconciler.mirror()), packs_before);
    let (files, threads) = reconciler.held();
    assert!(files <= held.0 + 2 && threads <= held.1 + 2, "from {held:?} to {:?}", (files, threads));
}

#[tokio::test]
async fn two_thousand_files_in_several_packs() {
    let bench = Bench::new();
    for pack in 0..4 {
        for number in 0..500 {
            bench.repository.add_customer(&format!("c-{pack}-{number}"));
        }
        bench.repository.commit(&format!("pack {pack}"));
        bench.repository.pack();
    }
    assert!(bench.repository.packs() >= 4);
    let reconciler = bench.reconciler().await;
    let begun = Instant::now();
    reconciler.accepted().await;
    println!("fetched and judged in {:?} or less", begun.elapsed());
    // More commits than a round of negotiation offers are ones that the remote no longer has.
    let latest = bench.repository.commit_empty(50);
    assert_eq!(reconciler.accepted().await, latest);
    let rewritten = bench.repository.rewrite(45);
    assert!(reconciler.refused(&rewritten).await.starts_with("history was rewritten"));
}

#[tokio::test]
async fn credentials_are_read_at_each_look_and_shown_nowhere() {
    let bench = Bench::new();
    bench.server.demand(BASIC);
    let file = bench.credentials("bot:wrong\n");
    let reconciler = bench.reconciler_at("/serving.git", &[("--source-credentials", &file)]).await;
    assert_says(
        &reconciler.problem().await,
        &["refused the credentials (401 Unauthorized)", "--source-credentials"],
    );
    bench.credentials(&format!("bot:{PASSWORD}\n"));
    reconciler.accepted().await;
    assert_eq!(bench.server.seen().pop().unwrap().authorization.as_deref(), Some(BASIC));
    for manner in [Manner::Status(403), Manner::Status(500), Manner::Page("text/html"), Manner::BreakOff] {
        bench.server.behave(manner);
        bench.repository.commit_empty(1);
        assert!(reconciler.look().await.problem.is_some());
    }
    bench.server.behave(Manner::Redirect(format!("https://bot:{PASSWORD}@elsewhere.example/?{PASSWORD}")));
    assert_says(&reconciler.problem().await, &["redirects to `https://elsewhere.example/`"]);
    fs::remove_file(&file).unwrap();
    assert_says(&reconciler.problem().await, &["cannot read `", "(--source-credentials): No such file"]);
    assert_kept_secret(&reconciler.everything().await);
}

#[tokio::test]
async fn a_token_goes_with_a_name_that_hosts_take() {
    let bench = Bench::new();
    // `x-access-token:t0ken`
    bench.server.demand("Basic eC1hY2Nlc3MtdG9rZW46dDBrZW4=");
    let file = bench.credentials("t0ken\n");
    let reconciler = bench.reconciler_at("/serving.git/", &[("--source-credentials", &file)]).await;
    reconciler.accepted().await;
}

#[tokio::test]
async fn a_password_in_the_address_is_refused_and_not_shown() {
    let bench = Bench::new();
    let url = format!("https://bot:{PASSWORD}@{}/serving.git", bench.server.address);
    // By the environment: a command line would show it, which is why it is refused.
    let reconciler = Reconciler::start_on(bench.path(), |command| {
        command.args(["--poll", "1h"]).env("DENV_SOURCE", &url);
    })
    .await;
    assert_says(&reconciler.problem().await, &["put `user:password` in a file", "--source-credentials"]);
    assert_kept_secret(&reconciler.everything().await);
}

#[tokio::test]
async fn faults_are_said_in_words_and_change_nothing() {
    let bench = Bench::new();
    let reconciler = bench.reconciler().await;
    let accepted = reconciler.accepted().await;
    let url = bench.server.url("/serving.git");
    for (manner, words) in [
        (
            Manner::Status(401),
            ["refused the credentials (401 Unauthorized), as there were none", "--source-credentials"],
        ),
        (Manner::Status(403), ["refused the credentials (403 Forbidden)", "--source-credentials"]),
        (Manner::Status(404), ["there is no such repository as `https://", "(404 Not Found)"]),
        (Manner::Status(503), ["answered 503 Service Unavailable", "/serving.git`"]),
        (Manner::Page("text/html; charset=utf-8"), ["answered with a web page", "--source-credentials"]),
        (Manner::Page("text/plain"), ["dumb protocol", "git http-backend"]),
        (Manner::Page("application/json"), ["answered with `application/json`", "not Git"]),
        (
            Manner::Redirect(
                "https://other.example/serving.git/info/refs?service=git-upload-pack".to_owned(),
            ),
            ["redirects to `https://other.example/serving.git`", "make it the source's address"],
        ),
        (Manner::Redirect("/login?next=1".to_owned()), ["leads away from Git", "/login`"]),
        (
            Manner::Redirect("/serving.git/info/refs?service=git-upload-pack".to_owned()),
            ["redirects more than 5 times", "/serving.git`"],
        ),
    ] {
        bench.server.behave(manner.clone());
        let view = reconciler.look().await;
        assert_eq!(view.state, SourceState::Unreachable, "{manner:?}");
        let problem = view.problem.unwrap();
        assert_says(&problem, &words);
        assert!(problem.starts_with(&format!("cannot fetch branch `main` from `{url}`: ")), "{problem}");
        assert_eq!(view.accepted.unwrap().commit, accepted);
    }
    bench.server.behave(Manner::Serve);
    reconciler.accepted().await;
}

#[tokio::test]
async fn a_repository_that_moved_on_its_host_is_followed() {
    let bench = Bench::new();
    bench.server.behave(Manner::Moved);
    let reconciler = bench.reconciler_at("/old/serving.git", &[]).await;
    reconciler.accepted().await;
    let seen = bench.server.seen();
    assert!(seen.iter().any(|seen| seen.method == "POST" && seen.path == "/serving.git/git-upload-pack"));
}

#[tokio::test]
async fn an_unknown_authority_names_the_flag() {
    let bench = Bench::new();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let wrong = bench.path().join("wrong.pem");
    fs::write(&wrong, other.cert.pem()).unwrap();
    let reconciler =
        Reconciler::start(bench.path(), &bench.server.url("/serving.git"), &[("--source-ca", &wrong)]).await;
    assert_says(
        &reconciler.problem().await,
        &["the certificate of `127.0.0.1` is not trusted", "--source-ca"],
    );
    fs::write(&wrong, "no certificate").unwrap();
    assert_says(&reconciler.problem().await, &["there is no PEM certificate in `", "(--source-ca)"]);
    fs::remove_file(&wrong).unwrap();
    assert_says(
        &reconciler.problem().await,
        &["cannot read the certificates in `", "(--source-ca): No such file"],
    );
    assert!(bench.server.seen().is_empty());
}

#[tokio::test]
async fn a_remote_that_breaks_off_leaves_the_mirror_whole() {
    let bench = Bench::new();
    let reconciler = bench.reconciler().await;
    let first = reconciler.accepted().await;
    bench.repository.add_customer("second");
    let second = bench.repository.commit("second");
    bench.server.behave(Manner::BreakOff);
    let view = reconciler.look().await;
    assert_says(&view.problem.unwrap(), &["`127.0.0.1` broke off in the middle of its answer"]);
    assert_eq!(view.accepted.unwrap().commit, first);
    bench.server.behave(Manner::Serve);
    assert_eq!(reconciler.accepted().await, second);
}

#[tokio::test]
async fn plain_http_is_only_for_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let reconciler = Reconciler::start(dir.path(), "http://git.example.com/serving.git", &[]).await;
    assert_says(&reconciler.problem().await, &["in the clear", "use `https://`"]);
    let dir = tempfile::tempdir().unwrap();
    let reconciler = Reconciler::start(dir.path(), "http://127.0.0.1:1/serving.git", &[]).await;
    assert_says(&reconciler.problem().await, &["cannot reach `127.0.0.1`", "refused"]);
    let dir = tempfile::tempdir().unwrap();
    let reconciler = Reconciler::start(dir.path(), "git://git.example.com/serving.git", &[]).await;
    assert_says(&reconciler.problem().await, &["use `https://` or `ssh://`"]);
}

#[tokio::test]
async fn a_branch_that_is_not_there_is_named() {
    let bench = Bench::new();
    let url = bench.server.url("/serving.git");
    let reconciler = Reconciler::start_with(bench.path(), &url, |command| {
        command.arg("--source-ca").arg(&bench.server.authority).args(["--source-branch", "release"]);
    })
    .await;
    assert_eq!(reconciler.problem().await, format!("`{url}` has no branch `release`"));
}
