//! What follows the control plane: rollouts and events, over watches that break.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::run;
use crate::stand_in::{StandIn, TOKEN, WatchScript, event, stage};

const STAGE: &str = "GET /v1/stages/chat/prod";

fn rolling() -> Value {
    stage("rolling (batch 1)", false, "r1", None, &[("r1", "ready"), ("r2", "starting")])
}

fn watch(events: Vec<Value>, stage: Option<Value>) -> WatchScript {
    WatchScript { status: 200, events, answers: stage.map(|stage| (STAGE, stage)).into_iter().collect() }
}

/// A stage under way, with one event in the past and the watches to come.
fn under_way(watches: Vec<WatchScript>) -> StandIn {
    let control_plane = StandIn::start();
    control_plane.with(STAGE, rolling());
    let mut scene = control_plane.scene();
    scene.events = vec![event(1, "stage chat/prod", "deployment 2 opened: `r1` to `r2`")];
    scene.watches = watches.into();
    drop(scene);
    control_plane
}

#[test]
fn a_rollout_is_followed_to_its_good_end_over_breaks() {
    let done = stage("succeeded", true, "r2", None, &[("r2", "ready")]);
    let control_plane = under_way(vec![
        watch(
            vec![event(2, "unit chat.prod.1", "ready"), event(3, "stage pro/prod", "of no interest")],
            None,
        ),
        WatchScript { status: 503, events: Vec::new(), answers: Vec::new() },
        watch(vec![event(4, "stage chat/prod", "deployment is succeeded")], Some(done)),
    ]);
    let (status, out, err) = run(control_plane.denv().args(["rollout", "status", "chat/prod", "--watch"]));
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    // The break is said at once; that it is over, only where the end did not come first.
    assert!(out.contains("it ended the stream of events; trying again"), "{out}");
    let told: Vec<&str> = out.lines().filter(|line| !line.contains("the control plane")).collect();
    assert_snapshot!(told.join("\n"), @"
    chat/prod: deployment 2, r1 to r2, is rolling (batch 1); 1 of 1 units ready
    12:00:01  stage chat/prod  deployment 2 opened: `r1` to `r2`
    12:00:02  unit chat.prod.1  ready
    12:00:04  stage chat/prod  deployment is succeeded
    succeeded: chat/prod runs r2; 1 of 1 units ready
    ");
    let requests = control_plane.scene().requests.clone();
    let watches: Vec<&String> = requests.iter().filter(|request| request.contains("/v1/watch")).collect();
    assert_eq!(watches, ["GET /v1/watch?after=1", "GET /v1/watch?after=3", "GET /v1/watch?after=3"]);
}

#[test]
fn a_rollback_is_a_failure_with_its_reason() {
    let back =
        stage("rolled-back", true, "r1", Some("unit `chat.prod.1`: exit status 1"), &[("r1", "ready")]);
    let control_plane = under_way(vec![watch(
        vec![event(2, "stage chat/prod", "deployment is rolled-back")],
        Some(back.clone()),
    )]);
    let (status, out, err) = run(control_plane.denv().args(["rollout", "status", "chat/prod", "--watch"]));
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("rolled-back"), "{out}");
    assert!(out.ends_with("failed: chat/prod is held at r1, and r2 is not tried again; 1 of 1 units ready\n  unit `chat.prod.1`: exit status 1\n"), "{out}");
    assert!(err.contains("`denv rollout retry chat/prod`"), "{err}");

    // The same without a watch, and for tools.
    assert_eq!(run(control_plane.denv().args(["rollout", "status", "chat/prod"])).0, 1);
    let (status, out, err) =
        run(control_plane.denv().args(["rollout", "status", "chat/prod", "-w", "-o", "json"]));
    assert_eq!(status, 1);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), back);
    assert!(err.contains("failed: chat/prod"), "{err}");
}

#[test]
fn a_rollout_that_takes_too_long_says_what_it_waits_on() {
    let control_plane = under_way(vec![watch(Vec::new(), None)]);
    let line = ["rollout", "status", "chat/prod", "--watch", "--timeout", "100ms"];
    let (status, out, _) = run(control_plane.denv().args(line));
    assert_eq!(status, 3, "{out}");
    assert!(
        out.contains("not over after 100ms: chat/prod: deployment 2, r1 to r2, is rolling (batch 1)"),
        "{out}"
    );
    assert!(out.contains("stage chat/prod: 0 of 1 units ready"), "{out}");
    let (status, out, _) = run(control_plane.denv().args(["rollout", "status", "chat/prod"]));
    assert_eq!(status, 0, "under way is no failure when nobody waits: {out}");
}

#[test]
fn a_status_right_after_a_push_waits_for_what_was_pushed() {
    let mut before = stage("succeeded", true, "r1", None, &[("r1", "ready")]);
    before["desired"] = json!("r1");
    let done = stage("succeeded", true, "r2", None, &[("r2", "ready")]);
    let control_plane = under_way(vec![
        watch(vec![event(2, "source main", "accepted")], Some(rolling())),
        watch(vec![event(3, "stage chat/prod", "deployment is succeeded")], Some(done)),
    ]);
    control_plane.with(STAGE, before);
    let line = ["rollout", "status", "chat/prod", "--watch", "--release", "r2"];
    let (status, out, _) = run(control_plane.denv().args(line));
    assert_eq!(status, 0, "{out}");
    assert!(out.ends_with("succeeded: chat/prod runs r2; 1 of 1 units ready\n"), "{out}");
}

#[test]
fn a_control_plane_that_restarts_may_know_no_stage_for_a_moment() {
    let done = stage("succeeded", true, "r2", None, &[("r2", "ready")]);
    let control_plane = under_way(vec![
        watch(vec![event(2, "unit chat.prod.1", "ready")], Some(Value::Null)),
        watch(vec![event(3, "stage chat/prod", "deployment is succeeded")], Some(done)),
    ]);
    let (status, out, err) = run(control_plane.denv().args(["rollout", "status", "chat/prod", "--watch"]));
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
}

#[test]
fn a_stage_that_was_never_there_is_no_wait() {
    let control_plane = under_way(Vec::new());
    control_plane.scene().answers.clear();
    let (status, _, err) = run(control_plane.denv().args(["rollout", "status", "chat/prod", "--watch"]));
    assert_eq!((status, err.as_str()), (1, "error: there is nothing here\n"));
}

#[test]
fn what_is_asked_of_a_rollout_is_sent_and_confirmed() {
    let control_plane = StandIn::start();
    control_plane.with("POST /v1/stages/chat/prod/rollout", rolling());
    for (verb, said) in [
        ("pause", "chat/prod is paused"),
        ("resume", "chat/prod goes on to r2"),
        ("abort", "chat/prod goes back to r1"),
        ("retry", "chat/prod tries r2 again"),
    ] {
        let (status, out, _) = run(control_plane.denv().args(["rollout", verb, "chat/prod"]));
        assert!(status == 0 && out.starts_with(said), "{out}");
        let sent = control_plane.scene().requests.pop().unwrap();
        assert_eq!(sent, format!("POST /v1/stages/chat/prod/rollout {{\"action\":\"{verb}\"}}"));
    }
    let refusal =
        json!({"error": {"message": "stage `chat/prod` is not held; there is nothing to try again"}});
    control_plane.scene().answers.insert("POST /v1/stages/chat/prod/rollout".to_owned(), (409, refusal));
    let (status, _, err) = run(control_plane.denv().args(["rollout", "retry", "chat/prod"]));
    assert_eq!(
        (status, err.as_str()),
        (1, "error: stage `chat/prod` is not held; there is nothing to try again\n")
    );
    let (status, _, err) = run(control_plane.denv().args(["rollout", "pause", "prod"]));
    assert_eq!(status, 2, "{err}");
}

#[test]
fn events_are_listed_and_streamed() {
    let control_plane = under_way(vec![
        watch(
            vec![event(2, "unit chat.prod.1", "ready"), event(3, "stage pro/prod", "of no interest")],
            None,
        ),
        watch(vec![event(4, "stage chat/prod", "the last")], None),
    ]);
    let (status, out, _) = run(control_plane.denv().args(["events", "chat/prod"]));
    assert!(status == 0 && out.contains("deployment 2 opened"), "{out}");
    assert!(control_plane.scene().requests[0].ends_with("/v1/events?subject=chat%2Fprod&limit=50"));
    // A stream has no end of its own.
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("denv"))
        .args(["events", "chat/prod", "--watch", "-o", "json", "--server", &control_plane.url])
        .env("DENV_TOKEN", TOKEN)
        .env_remove("DENV_TOKEN_FILE")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    let ids: Vec<Value> =
        lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["id"].clone()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ids, [1, 2, 4]);
}
