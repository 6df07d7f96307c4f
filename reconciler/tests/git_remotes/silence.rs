//! Remotes that say nothing, or never end. In this process, since people can't set how long that may take.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_git_transport::{Options, register, with};
use git2::{Direction, Repository, Signature};

use crate::server::{Manner, Server};
use crate::ssh::script;

fn connect(dir: &Path, url: &str, options: Options) -> String {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    register();
    let options = Options { silence: Duration::from_secs(1), longest: Duration::from_secs(2), ..options };
    let repository = Repository::init_bare(dir.join("mirror")).unwrap();
    let begun = Instant::now();
    let connect = || repository.remote_anonymous(url).unwrap().connect(Direction::Fetch).unwrap_err();
    let error = with(&Arc::new(options), connect);
    assert!(begun.elapsed() < Duration::from_secs(5), "after {:?}: {error}", begun.elapsed());
    error.message().to_owned()
}

#[test]
fn a_remote_that_takes_no_more_of_a_push_is_given_up_on() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    register();
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(dir.path().join("mirror")).unwrap();
    Repository::init_bare(dir.path().join("remote")).unwrap();
    // More than a pipe holds, and nothing in it compresses.
    let mut seed = 1_u32;
    let noise = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    });
    let blob = repository.blob(&noise.take(1 << 20).collect::<Vec<_>>()).unwrap();
    let mut tree = repository.treebuilder(None).unwrap();
    tree.insert("noise", blob, 0o100_644).unwrap();
    let tree = repository.find_tree(tree.write().unwrap()).unwrap();
    let author = Signature::now("Ada", "ada@example.com").unwrap();
    repository.commit(Some("refs/heads/main"), &author, &author, "noise", &tree, &[]).unwrap();

    let advertises = format!(
        "git-receive-pack --http-backend-info-refs '{}'\nexec sleep 600\n",
        dir.path().join("remote").display()
    );
    let ssh = script(dir.path(), "fake-ssh", &advertises);
    let options = Options {
        ssh_command: Some(ssh.display().to_string()),
        silence: Duration::from_secs(1),
        ..Options::default()
    };
    let begun = Instant::now();
    let push = || {
        let mut remote = repository.remote_anonymous("ssh://git.example.com/a").unwrap();
        remote.push(&["refs/heads/main"], None).unwrap_err()
    };
    let error = with(&Arc::new(options), push);
    assert_eq!(error.message(), "`git.example.com` took nothing for 1 s over ssh");
    assert!(begun.elapsed() < Duration::from_secs(5), "after {:?}", begun.elapsed());
}

#[test]
fn silence_and_endlessness_end_a_look_and_what_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), dir.path());
    server.behave(Manner::Silent);
    let options = Options { authorities: Some(server.authority.clone()), ..Options::default() };
    let said = connect(dir.path(), &server.url("/a"), options.clone());
    assert_eq!(said, "`127.0.0.1` did not answer in time");
    server.behave(Manner::Endless);
    let said = connect(dir.path(), &server.url("/a"), options);
    assert_eq!(said, "`127.0.0.1` was not done within 2 s");

    let ssh =
        script(dir.path(), "fake-ssh", "echo $$ > \"$RECORD\"\nsleep 600 &\necho $! >> \"$RECORD\"\nwait\n");
    let options = |ssh: &Path| Options { ssh_command: Some(ssh.display().to_string()), ..Options::default() };
    let said = connect(dir.path(), "ssh://git.example.com/a", options(&ssh));
    assert_eq!(said, "`git.example.com` said nothing for 1 s over ssh");
    let ended = |id: &str| {
        let state = fs::read_to_string(format!("/proc/{id}/stat"));
        // One that nobody has waited for yet has ended all the same.
        state.map_or(true, |state| state.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
    };
    let started = fs::read_to_string(dir.path().join("record")).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while !started.lines().all(ended) {
        assert!(Instant::now() < until, "something it started goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(started.lines().count(), 2);

    let line = format!("003a{} refs/heads/x", "a".repeat(40));
    let ssh = script(dir.path(), "endless-ssh", &format!("while sleep 0.05; do echo '{line}'; done\n"));
    let said = connect(dir.path(), "ssh://git.example.com/a", options(&ssh));
    assert_eq!(said, "`git.example.com` was not done within 2 s over ssh");
}
