use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use denv_schema::api::SourceState;

use crate::process::Reconciler;
use crate::repository::Repository;

/// Keeps its arguments, and runs the last one as the other side's shell would.
pub(crate) const RUNS: &str = r#"printf '%s\n' "$@" > "$RECORD"
for last do :; done
exec sh -c "$last"
"#;

pub(crate) fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    // Moved into place: one that may be running is not written over.
    let partial = dir.join("partial");
    fs::write(&partial, format!("#!/bin/sh\nRECORD='{}'\n{text}", dir.join("record").display())).unwrap();
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(partial, &path).unwrap();
    path
}

#[tokio::test]
async fn it_is_fetched_through_the_ssh_of_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(&dir.path().join("it's here"));
    let ssh = script(dir.path(), "fake-ssh", RUNS);
    let path = repository.bare.display().to_string();
    let url = format!("ssh://git@git.example.com:2222{}", path.replace(' ', "%20"));
    let command = PathBuf::from(format!("'{}' -i 'my key'", ssh.display()));
    let reconciler = Reconciler::start(dir.path(), &url, &[("--source-ssh-command", &command)]).await;
    reconciler.accepted().await;
    repository.add_customer("second");
    let second = repository.commit("second");
    let view = reconciler.look().await;
    assert_eq!(view.accepted.unwrap().commit, second);
    assert_eq!(view.url, format!("ssh://git.example.com:2222{}", path.replace(' ', "%20")));

    let remote = format!("git-upload-pack '{}'", path.replace('\'', r"'\''"));
    let expected = ["-i", "my key", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-p", "2222"];
    let recorded = fs::read_to_string(dir.path().join("record")).unwrap();
    let recorded: Vec<_> = recorded.lines().collect();
    assert_eq!(recorded, [&expected[..], &["git@git.example.com", &remote]].concat());

    // More commits than a round of negotiation offers are ones that the remote no longer has.
    let latest = repository.commit_empty(50);
    assert_eq!(reconciler.accepted().await, latest);
    let rewritten = repository.rewrite(45);
    assert!(reconciler.refused(&rewritten).await.starts_with("history was rewritten"));

    // Each look's ssh is gone with it.
    let held = reconciler.held();
    for _ in 0..10 {
        reconciler.refused(&rewritten).await;
    }
    let (files, threads) = reconciler.held();
    assert!(files <= held.0 + 2 && threads <= held.1 + 2, "from {held:?} to {:?}", (files, threads));
    assert_eq!(reconciler.children(), 0);
}

#[tokio::test]
async fn an_address_as_scp_has_it_and_the_ssh_of_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(dir.path());
    let ssh = script(dir.path(), "fake-ssh", RUNS);
    let url = format!("git@git.example.com:{}", repository.bare.display());
    let reconciler = Reconciler::start_with(dir.path(), &url, |command| {
        command.env("GIT_SSH_COMMAND", ssh);
    })
    .await;
    let view = reconciler.look().await;
    assert_eq!((view.problem, view.state, view.url), (None, SourceState::Ready, url));
    let recorded = fs::read_to_string(dir.path().join("record")).unwrap();
    assert!(recorded.contains("\ngit@git.example.com\ngit-upload-pack '/"), "{recorded}");
}

#[tokio::test]
async fn what_ssh_says_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let ssh = script(dir.path(), "fake-ssh", "cat \"$RECORD.says\" >&2\nexit 255\n");
    let says = |text: &str| fs::write(dir.path().join("record.says"), text).unwrap();
    says("");
    let url = "git@git.example.com:ml/serving.git";
    let reconciler = Reconciler::start(dir.path(), url, &[("--source-ssh-command", &ssh)]).await;
    for (said, words) in [
        (
            "Warning: one\nWarning: two\nWarning: three\r\ngit@git.example.com: Permission denied (publickey).\r\n",
            [
                ": Permission denied (publickey).; give denv's user a key",
                "--source-ssh-command 'ssh -i FILE'",
            ],
        ),
        ("Host key verification failed.\n", ["Host key verification failed.", "known hosts of denv's user"]),
        (
            "\u{1b}[31mERROR: Repository not found.\n",
            ["ssh to `git@git.example.com` failed", "Repository not found."],
        ),
        ("", ["ssh to `git@git.example.com` ended without a word", "exit status: 255"]),
    ] {
        says(said);
        let problem = reconciler.problem().await;
        for words in words {
            assert!(problem.contains(words), "`{words}` is not in: {problem}");
        }
        assert!(!problem.contains("Warning: one") && !problem.contains('\u{1b}'), "{problem}");
    }
}

#[tokio::test]
async fn a_session_that_dies_in_the_middle_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(dir.path());
    // The references come; then the connection is lost.
    let text = format!(
        "git-upload-pack --advertise-refs '{}'\nsleep 0.2\necho 'Connection reset by peer' >&2\nexit 255\n",
        repository.bare.display()
    );
    let ssh = script(dir.path(), "fake-ssh", &text);
    let reconciler =
        Reconciler::start(dir.path(), "ssh://git.example.com/a", &[("--source-ssh-command", &ssh)]).await;
    let problem = reconciler.problem().await;
    assert!(problem.contains("ssh to `git.example.com` failed: Connection reset by peer"), "{problem}");
    script(
        dir.path(),
        "fake-ssh",
        RUNS.replace("$last", &format!("git-upload-pack '{}'", repository.bare.display())).as_str(),
    );
    reconciler.accepted().await;
}

#[tokio::test]
async fn options_in_disguise_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ssh = script(dir.path(), "fake-ssh", RUNS);
    let url = "ssh://-oProxyCommand=touch/a";
    let reconciler = Reconciler::start(dir.path(), url, &[("--source-ssh-command", &ssh)]).await;
    let problem = reconciler.problem().await;
    assert!(problem.contains("must not begin with `-`"), "{problem}");
    assert!(!dir.path().join("record").exists());
}

#[tokio::test]
async fn no_ssh_at_all_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let reconciler = Reconciler::start_with(dir.path(), "ssh://git.example.com/a", |command| {
        command.env("PATH", dir.path());
    })
    .await;
    let problem = reconciler.problem().await;
    assert!(problem.contains("cannot run ssh: No such file"), "{problem}");
}
