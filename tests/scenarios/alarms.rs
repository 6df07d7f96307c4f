//! A stage that wants to be asked before it is rolled back.

use denv_schema::api::RolloutAction;

use crate::fixture::{Fixture, PATIENCE, STAGE};

#[tokio::test]
async fn a_bad_release_pauses_with_its_reason_and_a_person_decides() {
    let mut fixture = Fixture::start_with(&[], &[("onAlarm: rollback", "onAlarm: pause")]).await;
    let client = fixture.client().unwrap();
    fixture.write_release("bad", &["--sim-exit", "3"]);
    fixture.release("first", "bad").await;
    let paused = async || {
        let view = fixture
            .stage_until(STAGE, "the pause", PATIENCE, |view| {
                view.deployment.as_ref().is_some_and(|deployment| {
                    deployment.paused
                        && deployment.reason.as_ref().is_some_and(|reason| reason.contains("status 3"))
                })
            })
            .await
            .unwrap();
        assert!(view.held.is_none());
        assert!(view.waiting.iter().any(|waiting| waiting.on.contains("denv rollout")), "{view:?}");
        let ready = view.units.iter().filter(|unit| unit.status == "ready");
        assert_eq!(ready.filter(|unit| unit.release.as_str() == "first").count(), 2);
    };
    paused().await;
    // It is tried once more, and is as bad.
    client.rollout(STAGE, RolloutAction::Resume).await.unwrap();
    paused().await;
    client.rollout(STAGE, RolloutAction::Abort).await.unwrap();
    let view = fixture
        .stage_until(STAGE, "the rollback", PATIENCE, |view| {
            view.held.is_some() && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        })
        .await
        .unwrap();
    assert_eq!(view.held.unwrap().release.as_str(), "bad");
    fixture.ready("first").await;
    fixture.release("bad", "r2").await;
    fixture.ready("r2").await;
}
