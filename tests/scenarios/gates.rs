//! Releases that are judged by their answers before they take traffic, and by their figures while they do.

use std::process::Command;

use denv_schema::api::{RolloutAction, StageView};
use denv_tests::traffic::Traffic;
use denv_tests::until;

use crate::fixture::{Fixture, PATIENCE, STAGE};

const SUITE: &str = "apiVersion: denv.dev/v1
kind: ParitySuite
metadata: {name: golden}
spec:
  reference: {kind: previous-release}
  timeout: 10s
  cases:
    - {name: greeting, messages: [{role: user, content: Greet me.}], maxTokens: 3, expect: {text: hello hello hello}}
    - {name: as-before, messages: [{role: user, content: Say something.}], maxTokens: 5}
";

/// An alarm, with what it is besides `metric: time-to-first-token`.
fn alarm(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: denv.dev/v1
kind: Alarm
metadata: {{name: {name}}}
spec: {{metric: time-to-first-token, {rest}}}
"
    )
}

/// Adds fields to the stage's manifest, and manifests beside it.
fn gated(fixture: &mut Fixture, fields: &str, manifests: &[&str]) {
    let text = manifests.join("---\n");
    fixture.repository.write("gates.yaml", &text).unwrap();
    fixture
        .repository
        .edit("service.yaml", "lostAfter: 15s", &format!("lostAfter: 15s\n  {fields}"))
        .unwrap();
}

fn waits(view: &StageView, words: &str) -> bool {
    view.waiting.iter().any(|waiting| waiting.on.contains(words))
}

async fn until_waiting(fixture: &Fixture, words: &str) -> StageView {
    fixture.stage_until(STAGE, words, PATIENCE, |view| waits(view, words)).await.unwrap()
}

/// What `denv parity report` prints, and its status.
fn report(fixture: &Fixture, form: &str) -> (String, Option<i32>) {
    let done = Command::new(denv_tests::programs().unwrap().join("denv"))
        .args(["parity", "report", STAGE, "--output", form, "--server", &fixture.api_url(), "--token-file"])
        .arg(fixture.admin_token_file())
        .output()
        .unwrap();
    (String::from_utf8(done.stdout).unwrap(), done.status.code())
}

#[tokio::test]
async fn a_release_that_answers_wrongly_never_serves_and_its_report_says_why() {
    let mut fixture = Fixture::create();
    gated(&mut fixture, "parity: {suite: golden, before: true, after: true}", &[SUITE]);
    fixture.repository.commit("Gate releases").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("r1").await;

    let application = fixture.application();
    let traffic = Traffic::start(&application, 3, 4);
    fixture.write_release("wrong", &["--sim-token", "hullo "]);
    fixture.release("r1", "wrong").await;
    let asked = async {
        let mut answers = Vec::new();
        while fixture.client().unwrap().stage(STAGE).await.unwrap().held.is_none() {
            answers.push(application.ask("Greet me.", 4).await.unwrap());
        }
        answers
    };
    let answers = tokio::time::timeout(PATIENCE, asked).await.expect("it is held in time");
    assert!(answers.iter().all(|answer| answer == "hello hello hello hello "), "{answers:?}");
    let (_, failures) = traffic.stop().await;
    assert_eq!(failures, Vec::<String>::new());

    let view = fixture.client().unwrap().stage(STAGE).await.unwrap();
    let why = view.held.unwrap().reason;
    assert!(why.contains("parity suite `golden`: 0 of 2 cases passed, 2 must; `greeting`"), "{why}");
    let gates = view.deployment.unwrap().gates;
    let outcomes: Vec<_> = gates.iter().map(|gate| (gate.part.as_str(), gate.outcome.as_deref())).collect();
    assert_eq!(outcomes, [("reference", Some("pass")), ("before", Some("fail"))]);
    let (text, status) = report(&fixture, "text");
    assert_eq!(status, Some(1));
    for words in
        ["Release:     wrong", "failed       greeting", "    - hello hello hello", "    + hullo hullo hullo"]
    {
        assert!(text.contains(words), "{text}");
    }
    assert!(report(&fixture, "html").0.contains("<del>hello hello hello"));

    // What answers as before goes through, and has its last run after the last batch.
    fixture.release("wrong", "r2").await;
    fixture.ready("r2").await;
    let (text, status) = report(&fixture, "text");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("after its last batch") && text.contains("2 of 2 cases passed"), "{text}");
}

#[tokio::test]
async fn a_release_that_is_slow_fires_an_alarm_under_traffic_and_goes_back() {
    let mut fixture = Fixture::start().await;
    let traffic = Traffic::start(&fixture.application(), 6, 2);
    let ttft = alarm("ttft", "above: 300ms, window: 30s, minSamples: 5");
    gated(&mut fixture, "alarms: [ttft]", &[&ttft]);
    fixture.repository.edit("service.yaml", "bake: 500ms", "bake: 30s").unwrap();
    fixture.repository.edit("service.yaml", "batches: [1, 100%]", "batches: [100%]").unwrap();
    fixture.write_release("slow", &["--sim-token-delay", "600"]);
    fixture.release("r1", "slow").await;
    let view = fixture
        .stage_until(STAGE, "the rollback", PATIENCE, |view| {
            view.held.is_some() && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        })
        .await
        .unwrap();
    let why = view.held.unwrap().reason;
    assert!(why.contains("alarm `ttft` fires: time to first token (p99) is"), "{why}");
    assert!(why.contains("above 300ms"), "{why}");
    fixture.ready("r1").await;
    let (answered, failures) = traffic.stop().await;
    assert_eq!(failures, Vec::<String>::new());
    assert!(answered > 0);
}

#[tokio::test]
async fn an_alarm_without_traffic_does_as_its_manifest_says() {
    let mut fixture = Fixture::start().await;
    let client = fixture.client().unwrap();
    gated(&mut fixture, "alarms: [ttft]", &[&alarm("ttft", "above: 300ms")]);
    fixture.release("r1", "r2").await;
    let view = until_waiting(&fixture, "paused: alarm `ttft` has too little to say").await;
    assert!(view.units.iter().filter(|unit| unit.status == "ready").count() >= 2, "{view:?}");
    // Whoever resumes it decides, batch by batch.
    client.rollout(STAGE, RolloutAction::Resume).await.unwrap();
    let second = |view: &StageView| {
        let deployment = view.deployment.as_ref();
        waits(view, "has too little to say")
            && deployment.is_some_and(|it| it.phase.contains("batch 2") && it.paused)
    };
    fixture.stage_until(STAGE, "the second pause", PATIENCE, second).await.unwrap();
    client.rollout(STAGE, RolloutAction::Resume).await.unwrap();
    fixture.ready("r2").await;

    let strict = alarm("ttft", "above: 300ms, onInconclusive: fail");
    fixture.repository.write("gates.yaml", &strict).unwrap();
    fixture.release("r2", "r1").await;
    let view =
        fixture.stage_until(STAGE, "the rollback", PATIENCE, |view| view.held.is_some()).await.unwrap();
    let why = view.held.unwrap().reason;
    assert!(
        why.contains("alarm `ttft` has too little to say: time to first token (p99): 0 requests"),
        "{why}"
    );
    fixture.ready("r2").await;
}

#[tokio::test]
async fn an_alarm_that_fires_already_stops_a_start() {
    let mut fixture = Fixture::start_with(&["--sim-token-delay", "400"], &[]).await;
    let traffic = Traffic::start(&fixture.application(), 6, 2);
    let ttft = alarm("ttft", "above: 200ms, window: 30s, minSamples: 5");
    gated(&mut fixture, "alarms: [ttft]", &[&ttft]);
    fixture.push("Watch the time to first token").await.unwrap();
    let fires = |view: &StageView| view.alarms.iter().any(|alarm| alarm.outcome == "fail");
    fixture.stage_until(STAGE, "the alarm", PATIENCE, fires).await.unwrap();

    fixture.release("first", "r2").await;
    let view = until_waiting(&fixture, "alarm `ttft` fires already: time to first token (p99) is").await;
    assert!(view.units.iter().all(|unit| unit.release.as_str() == "first"), "{view:?}");
    // The remedy that it names.
    fixture.repository.edit("service.yaml", "alarms: [ttft]", "alarms: []").unwrap();
    fixture.push("Go on all the same").await.unwrap();
    fixture.ready("r2").await;
    assert_eq!(traffic.stop().await.1, Vec::<String>::new());
}

#[tokio::test]
async fn a_reference_that_is_away_is_what_a_deployment_waits_on_and_moves_nothing() {
    let mut fixture = Fixture::start().await;
    let api = "reference: {kind: api, url: 'https://127.0.0.1:1/v1', model: m, key: 'env:NOT_ALLOWED'}";
    let suite = SUITE.replace("reference: {kind: previous-release}", api);
    gated(&mut fixture, "parity: {suite: golden}", &[&suite]);
    fixture.release("r1", "r2").await;
    let view = until_waiting(&fixture, "the reference of parity suite `golden` is away").await;
    assert!(waits(&view, "--manifest-secret env:NOT_ALLOWED"), "{view:?}");
    assert!(view.units.iter().all(|unit| unit.release.as_str() == "r1"), "{view:?}");
    assert_eq!(view.deployment.unwrap().phase, "gating");

    let open = suite.replace(", key: 'env:NOT_ALLOWED'", "");
    fixture.repository.write("gates.yaml", &open).unwrap();
    fixture.push("Ask without a key").await.unwrap();
    until_waiting(&fixture, "is away: error").await;

    fixture.repository.write("gates.yaml", SUITE).unwrap();
    fixture.push("Ask the release before").await.unwrap();
    fixture.ready("r2").await;
}

#[tokio::test]
async fn a_gate_outlives_the_control_plane_and_the_host_that_it_asks() {
    let mut fixture = Fixture::create();
    // Each prompt takes two seconds.
    fixture.write_release("first", &["--sim-token-delay", "1"]);
    fixture.write_release("slow", &["--sim-token-delay", "400"]);
    fixture.repository.edit("service.yaml", "release: r1\n", "release: first\n").unwrap();
    gated(&mut fixture, "parity: {suite: golden}", &[SUITE]);
    fixture.repository.commit("Gate releases").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("first").await;

    fixture.release("first", "slow").await;
    let begun = |view: &StageView| {
        let deployment = view.deployment.as_ref();
        deployment
            .is_some_and(|it| it.to.as_str() == "slow" && it.gates.iter().any(|gate| gate.part == "before"))
    };
    let view = fixture.stage_until(STAGE, "the gate", PATIENCE, begun).await.unwrap();
    let withheld = view.units.iter().find(|unit| unit.release.as_str() == "slow").unwrap();
    assert_eq!(withheld.status, "withheld", "{view:?}");
    fixture.reconciler = None;
    fixture.start_reconciler().await.unwrap();
    fixture.ready("slow").await;
    let events = until("the events", PATIENCE, || async { Ok(Some(fixture.client()?.events(0).await?)) });
    let events = events.await.unwrap();
    let said: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    assert!(said.contains(&"takes traffic: its release has passed its gate"), "{said:?}");
    assert!(!said.iter().any(|message| message.contains("rolling back")), "{said:?}");
}
