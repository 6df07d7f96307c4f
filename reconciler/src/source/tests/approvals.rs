//! A revision that deletes much waits for a person; an empty or failed one deletes nothing.

use super::*;

/// The quickstart with so many customers, and its hosts.
fn customers(count: usize) -> Vec<(String, String)> {
    let mut files: Vec<_> =
        QUICKSTART.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    for number in 0..count {
        let text =
            format!("apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: c{number}}}\nspec: {{}}\n");
        files.push((format!("customers/c{number}.yaml"), text));
    }
    files
}

fn commit_customers(dir: &Path, count: usize, message: &str) -> String {
    let files = customers(count);
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    commit(dir, &files, message, None).to_string()
}

fn in_force(bench: &Bench) -> usize {
    bench.catalog.borrow().as_ref().map_or(0, |catalog| catalog.customers.len())
}

#[tokio::test]
async fn a_large_deletion_waits_and_exactly_the_approved_revision_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    commit_customers(dir.path(), 9, "begin");
    let bench = Bench::start(dir).await;
    bench.look().await;
    assert_eq!(in_force(&bench), 10);

    let first = commit_customers(bench.dir.path(), 2, "clean up");
    let view = bench.look().await;
    assert_eq!(view.state, SourceState::AwaitingApproval);
    let awaiting = view.awaiting.unwrap();
    assert_eq!(
        (awaiting.revision.commit.as_str(), awaiting.reason.as_str()),
        (first.as_str(), "7 of 10 customers")
    );
    assert_eq!(awaiting.deletions[0].names[0], "c2");
    assert_eq!(in_force(&bench), 10);

    // A newer commit takes its place.
    let second = commit_customers(bench.dir.path(), 4, "clean up less");
    let awaiting = bench.look().await.awaiting.unwrap();
    assert_eq!(awaiting.reason, "5 of 10 customers");
    let refusal = bench.source.approve(first.clone(), "ada".to_owned()).await.unwrap().unwrap_err();
    assert!(refusal.to_string().contains("is not the revision that waits"), "{refusal}");
    assert_eq!(in_force(&bench), 10);

    bench.source.approve(second[..12].to_owned(), "ada".to_owned()).await.unwrap().unwrap();
    let view = bench.source.view();
    assert_eq!((view.state, view.accepted.unwrap().commit), (SourceState::Ready, second.clone()));
    assert_eq!((in_force(&bench), view.awaiting), (5, None));
    let events = bench.events().await;
    assert!(events.last().unwrap().starts_with(&format!("ada approved {}", &second[..10])), "{events:?}");
    assert!(events.last().unwrap().ends_with("which deletes 5 of 10 customers"), "{events:?}");
    let refusal = bench.source.approve(second, "ada".to_owned()).await.unwrap().unwrap_err();
    assert!(refusal.to_string().contains("no revision of source `main` waits"), "{refusal}");
}

#[tokio::test]
async fn what_waits_still_waits_after_a_restart_and_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    commit_customers(dir.path(), 9, "begin");
    let bench = Bench::start(dir).await;
    bench.look().await;
    let commit = commit_customers(bench.dir.path(), 0, "clean up");
    bench.look().await;
    let told = bench.events().await;
    let Bench { dir, source, .. } = bench;
    drop(source);
    let again = Bench::start(dir).await;
    let view = again.look().await;
    assert_eq!((view.state, in_force(&again)), (SourceState::AwaitingApproval, 10));
    assert_eq!(again.events().await, told);
    // Approved from the mirror, whatever the remote does.
    std::fs::rename(again.dir.path().join("remote"), again.dir.path().join("away")).unwrap();
    again.source.approve(commit, "ada".to_owned()).await.unwrap().unwrap();
    assert_eq!(in_force(&again), 1);
}

#[tokio::test]
async fn a_good_commit_after_one_that_waits_needs_no_approval() {
    let dir = tempfile::tempdir().unwrap();
    commit_customers(dir.path(), 9, "begin");
    let bench = Bench::start(dir).await;
    bench.look().await;
    commit_customers(bench.dir.path(), 0, "oops");
    assert_eq!(bench.look().await.state, SourceState::AwaitingApproval);
    commit_customers(bench.dir.path(), 9, "put back");
    let view = bench.look().await;
    assert_eq!((view.state, view.awaiting), (SourceState::Ready, None));
}

#[tokio::test]
async fn without_a_share_nothing_waits() {
    let dir = tempfile::tempdir().unwrap();
    commit_customers(dir.path(), 9, "begin");
    let bench = Bench::start_with(dir, |config| config.deletion_share = "100%".parse().unwrap()).await;
    bench.look().await;
    commit_customers(bench.dir.path(), 0, "clean up");
    assert_eq!(bench.look().await.state, SourceState::Ready);
    assert_eq!(in_force(&bench), 1);
}
