//! Changing what runs.

use denv_tests::traffic::Traffic;

use crate::fixture::{Fixture, PATIENCE, STAGE};

#[tokio::test]
async fn a_new_release_rolls_out_and_not_one_request_fails() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 4, 20);
    fixture.release("r1", "r2").await;
    fixture.ready("r2").await;
    let (answered, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(answered > 20, "{answered}");
}

#[tokio::test]
async fn a_release_that_cannot_start_is_rolled_back_and_held_with_its_reason() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 2, 20);
    fixture.write_release("bad", &["--sim-exit", "3"]);
    fixture.release("r1", "bad").await;
    let view = fixture
        .stage_until(STAGE, "the rollback to end", PATIENCE, |view| {
            view.deployment.as_ref().is_some_and(|deployment| deployment.phase == "rolled-back")
        })
        .await
        .unwrap();
    let held = view.held.unwrap();
    assert!(held.reason.contains("exited with status 3"), "{}", held.reason);
    assert!(
        held.reason.contains("ValueError: the simulated engine was told not to start"),
        "{}",
        held.reason
    );
    fixture.ready("r1").await;
    let (_, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");

    // A newer release goes forward from the hold.
    fixture.release("bad", "r2").await;
    fixture.ready("r2").await;
}

#[tokio::test]
async fn who_looks_after_a_push_sees_the_deployment_it_opened() {
    let mut fixture = Fixture::start().await;
    for (from, to) in [("r1", "r2"), ("r2", "r1")] {
        fixture.release(from, to).await;
        let view = fixture.client().unwrap().stage(STAGE).await.unwrap();
        assert_eq!(view.desired.as_str(), to);
        assert_eq!(view.deployment.unwrap().to.as_str(), to);
        fixture.ready(to).await;
    }
}

#[tokio::test]
async fn a_release_that_differs_in_name_alone_moves_no_unit_and_fails_no_request() {
    let mut fixture = Fixture::start().await;
    let members =
        |view: denv_schema::api::StageView| view.units.into_iter().map(|it| it.unit).collect::<Vec<_>>();
    let before = members(fixture.client().unwrap().stage(STAGE).await.unwrap());
    let traffic = Traffic::start(&fixture.application(), 4, 20);
    fixture.write_release("r1-again", &[]);
    fixture.release("r1", "r1-again").await;
    fixture.ready("r1-again").await;
    let (_, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(members(fixture.client().unwrap().stage(STAGE).await.unwrap()), before);
}
