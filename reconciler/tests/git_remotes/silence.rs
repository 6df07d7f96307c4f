//! Remotes that say nothing, or never end. In this process, since people can't set how long that may take.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_git_transport::{Options, register, with};
use git2::{Direction, Repository};

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
