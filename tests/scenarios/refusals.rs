//! What is wrong is said where a person would look.

use denv_schema::api::{JoinRole, RolloutAction, SourceState};

use crate::fixture::{Fixture, PATIENCE, STAGE};

#[tokio::test]
async fn a_bad_commit_changes_nothing_and_its_faults_are_shown() {
    let mut fixture = Fixture::start().await;
    let before = fixture.client().unwrap().stage(STAGE).await.unwrap();
    fixture.repository.edit("service.yaml", "release: r1\n", "release: r9\n").unwrap();
    fixture.repository.edit("service.yaml", "maxUnavailable: 0", "maxUnavailible: 0").unwrap();
    fixture.push("Break it twice").await.unwrap();
    let source = fixture.client().unwrap().source().await.unwrap();
    assert_eq!(source.state, SourceState::Refused);
    let found = source.refused.unwrap().diagnostics.to_string();
    assert!(found.contains("unknown field `maxUnavailible`"), "{found}");
    assert!(found.contains("did you mean `maxUnavailable`?"), "{found}");
    let after = fixture.client().unwrap().stage(STAGE).await.unwrap();
    assert_eq!((before.units, before.desired), (after.units, after.desired));
}

#[tokio::test]
async fn a_stage_that_is_paused_stays_where_it_is_and_can_be_resumed_or_aborted() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().unwrap();
    fixture.release("r1", "r2").await;
    client.rollout(STAGE, RolloutAction::Pause).await.unwrap();
    let refused = client.rollout(STAGE, RolloutAction::Pause).await.unwrap_err();
    assert!(format!("{refused:#}").contains("is paused already"), "{refused:#}");
    let view = client.stage(STAGE).await.unwrap();
    assert!(
        view.waiting.iter().any(|waiting| waiting.on.contains("denv rollout resume")),
        "{:?}",
        view.waiting
    );
    client.rollout(STAGE, RolloutAction::Resume).await.unwrap();
    client.rollout(STAGE, RolloutAction::Abort).await.unwrap();
    fixture
        .stage_until(STAGE, "the abort", PATIENCE, |view| {
            view.held.as_ref().is_some_and(|held| held.reason == "aborted by admin")
                && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        })
        .await
        .unwrap();
    fixture.ready("r1").await;
    client.rollout(STAGE, RolloutAction::Retry).await.unwrap();
    fixture.ready("r2").await;
}

#[tokio::test]
async fn prices_and_keys_change_without_moving_a_unit() {
    let mut fixture = Fixture::start().await;
    let before = fixture.client().unwrap().stage(STAGE).await.unwrap();
    let key = fixture.key.clone();
    fixture.application().ask("hello", 3).await.unwrap();
    let hash = denv_schema::Digest::of_bytes(key.as_bytes()).to_string();
    let other = denv_schema::Digest::of_bytes(b"sk-denv-another").to_string();
    fixture.repository.edit("commerce.yaml", &hash, &other).unwrap();
    fixture.push("Change the key").await.unwrap();
    denv_tests::until("the old key to be refused", PATIENCE, || async {
        let refused = fixture.application().ask("hello", 3).await;
        Ok(refused.is_err_and(|error| format!("{error:#}").contains("401")).then_some(()))
    })
    .await
    .unwrap();
    let mut application = fixture.application();
    application.key = "sk-denv-another".to_owned();
    application.ask("hello", 3).await.unwrap();
    assert_eq!(before.units, fixture.client().unwrap().stage(STAGE).await.unwrap().units);
}

#[tokio::test]
async fn a_token_for_an_unknown_host_is_refused_with_the_known_ones() {
    let fixture = Fixture::start().await;
    let refused = fixture.client().unwrap().token(JoinRole::Host, "host-z").await.unwrap_err();
    let text = format!("{refused:#}");
    assert!(text.contains("there is no Host `host-z`") && text.contains("`host-a`"), "{text}");
}

#[tokio::test]
async fn an_engine_that_never_becomes_healthy_is_rolled_back_at_its_deadline() {
    let mut fixture = Fixture::start().await;
    fixture.write_release("sick", &["--sim-unhealthy"]);
    let software = fixture.repository.file("software.yaml").unwrap().to_owned();
    let documents: Vec<&str> = software.split("---\n").collect();
    let recipe = documents[1].replace("metadata: {name: simulated}", "metadata: {name: quick}");
    let recipe = recipe.replace("startTimeout: 20s", "startTimeout: 3s");
    fixture.repository.write("quick.yaml", &recipe).unwrap();
    fixture.repository.edit("release-sick.yaml", "recipe: simulated", "recipe: quick").unwrap();
    fixture.release("r1", "sick").await;
    let view = fixture
        .stage_until(STAGE, "the rollback", PATIENCE, |view| {
            view.held.is_some() && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        })
        .await
        .unwrap();
    let reason = view.held.unwrap().reason;
    assert!(reason.contains("not healthy within 3s"), "{reason}");
    fixture.ready("r1").await;
}

#[tokio::test]
async fn a_gateway_with_a_hosts_certificate_is_told_how_to_get_its_own() {
    let mut fixture = Fixture::create();
    fixture.start_reconciler().await.unwrap();
    fixture.start_host("host-a").await.unwrap();
    let joined = fixture.layout.dir.join("host-a/credentials/credentials.pem");
    denv_tests::until("the host to join", PATIENCE, || async { Ok(joined.exists().then_some(())) })
        .await
        .unwrap();
    let state = fixture.layout.dir.join("mistaken");
    std::fs::create_dir_all(state.join("credentials")).unwrap();
    std::fs::copy(&joined, state.join("credentials/credentials.pem")).unwrap();
    let mut gateway = tokio::process::Command::new(denv_tests::programs().unwrap().join("denv-gateway"));
    gateway.args(["--server", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--state-dir"]).arg(&state);
    let ended = tokio::time::timeout(PATIENCE, gateway.kill_on_drop(true).output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success());
    assert!(said.contains("is that of a host") && said.contains("denv gateway token NAME"), "{said}");
}
