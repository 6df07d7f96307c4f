use std::time::{Duration, Instant};

use denv_schema::api::SourceState;

use crate::process::Reconciler;
use crate::repository::{Repository, packs};

#[tokio::test]
async fn a_path_is_looked_at_far_below_a_second() {
    let dir = tempfile::tempdir().unwrap();
    // With a colon, which libgit2 alone would send to SSH.
    let repository = Repository::quickstart(&dir.path().join("a:b"));
    let url = repository.bare.display().to_string();
    let reconciler = Reconciler::start(dir.path(), &url, &[]).await;
    reconciler.accepted().await;
    let mut slowest = Duration::ZERO;
    for number in 0..5 {
        repository.add_customer(&format!("customer-{number}"));
        let commit = repository.commit("one more");
        let begun = Instant::now();
        assert_eq!(reconciler.accepted().await, commit);
        slowest = slowest.max(begun.elapsed());
    }
    let (before, begun) = (packs(&reconciler.mirror()), Instant::now());
    for _ in 0..20 {
        reconciler.accepted().await;
    }
    let idle = begun.elapsed() / 20;
    println!("a new commit took at most {slowest:?}, nothing new {idle:?}");
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    assert_eq!(packs(&reconciler.mirror()), before);
}

#[tokio::test]
async fn a_path_or_scheme_that_leads_nowhere_is_said() {
    for (url, words) in [
        ("/nowhere/serving.git", "No such file"),
        ("ftp://host/serving.git", "there is no way to `ftp://`; use a path, `https://` or `ssh://`"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let reconciler = Reconciler::start(dir.path(), url, &[]).await;
        let view = reconciler.look().await;
        assert_eq!(view.state, SourceState::Unreachable);
        let problem = view.problem.unwrap();
        assert!(problem.contains(words), "{problem}");
    }
}
