//! What other systems of this kind get wrong about Git and desired state, over the real processes.

use crate::fixture::{Fixture, PATIENCE, STAGE};

/// Elsewhere there is no way back while Git is away, and the next sync applies what was rolled back again.
#[tokio::test]
async fn what_fails_is_rolled_back_while_git_is_away_and_not_tried_again_for_a_change_elsewhere() {
    let mut fixture = Fixture::start().await;
    fixture.write_release("bad", &["--sim-exit", "3"]);
    fixture.release("r1", "bad").await;
    let there = fixture.repository.remote.clone();
    let away = there.with_extension("away");
    std::fs::rename(&there, &away).unwrap();
    let view = fixture
        .stage_until(STAGE, "the rollback to end", PATIENCE, |view| {
            view.deployment.as_ref().is_some_and(|deployment| deployment.phase == "rolled-back")
        })
        .await
        .unwrap();
    let number = view.deployment.unwrap().number;
    fixture.ready("r1").await;
    let source = fixture.client().unwrap().refresh().await.unwrap();
    assert!(source.problem.is_some(), "Git is away: {source:?}");

    std::fs::rename(&away, &there).unwrap();
    let customer =
        "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {name: another}\nspec: {displayName: Another}\n";
    fixture.repository.write("another.yaml", customer).unwrap();
    fixture.push("A change elsewhere").await.unwrap();
    // Longer than a deployment takes to open, by far.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let view = fixture.client().unwrap().stage(STAGE).await.unwrap();
    assert_eq!(view.deployment.unwrap().number, number, "the same release was tried again");
    assert_eq!(view.held.unwrap().release.as_str(), "bad");
    fixture.release("bad", "r2").await;
    fixture.ready("r2").await;
}

/// Elsewhere retries stay pinned to a broken commit.
#[tokio::test]
async fn a_newer_revision_takes_the_place_of_one_that_never_becomes_ready() {
    let mut fixture = Fixture::start().await;
    fixture.write_release("stuck", &["--sim-unhealthy"]);
    fixture.release("r1", "stuck").await;
    let view = fixture.client().unwrap().stage(STAGE).await.unwrap();
    assert_eq!(view.deployment.unwrap().to.as_str(), "stuck");
    fixture.release("stuck", "r2").await;
    let view = fixture.client().unwrap().stage(STAGE).await.unwrap();
    assert_eq!(view.deployment.unwrap().to.as_str(), "r2", "at once");
    fixture.ready("r2").await;
}
