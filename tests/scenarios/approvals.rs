//! A stage whose changes wait for a person.

use denv_schema::api::RolloutAction;

use crate::fixture::{Fixture, PATIENCE, STAGE};

#[tokio::test]
async fn a_release_waits_for_its_approval_which_is_kept_with_it() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().unwrap();
    fixture
        .repository
        .edit("service.yaml", "onAlarm: rollback", "onAlarm: rollback\n    approval: required")
        .unwrap();
    fixture.release("r1", "r2").await;
    let asks = format!("denv rollout approve {STAGE} --release r2");
    let view = fixture
        .stage_until(STAGE, "the question", PATIENCE, |view| {
            view.waiting.iter().any(|waiting| waiting.on.contains(&asks))
        })
        .await
        .unwrap();
    assert!(view.units.iter().all(|unit| unit.release.as_str() == "r1"), "{view:?}");
    client.rollout(STAGE, RolloutAction::Approve).await.unwrap();
    fixture.ready("r2").await;
    let deployment = client.stage(STAGE).await.unwrap().deployment.unwrap();
    assert!(deployment.approved.is_some(), "{deployment:?}");
}
