use insta::assert_snapshot;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn unit() -> Value {
    json!({
        "unit": "chat.prod.3", "stage": "chat/prod", "release": "flash-r1", "fleet": "racks", "host": "gpu-1",
        "member": "chat.prod.3.0", "chosen": null,
        "members": [{"member": "chat.prod.3.0", "pool": "replica", "host": "gpu-1", "gpus": [], "cpuSlots": 1, "restarts": 0}],
        "generation": 2, "status": "unhealthy",
        "reason": "exit status 1\nCUDA out of memory", "since": "2026-11-29T11:57:00Z", "restarts": 4, "inflight": 0,
    })
}

fn stage() -> StageView {
    from(json!({
        "stage": "chat/prod", "desired": "flash-r2", "good": "flash-r1", "ready": 1, "wanted": 2,
        "held": {"release": "flash-r2", "reason": "unit `chat.prod.4` on `gpu-1`: exit status 1\nno such model", "since": "2026-11-29T11:00:00Z"},
        "deployment": {
            "stage": "chat/prod", "number": 2, "from": "flash-r1", "to": "flash-r2", "phase": "rolled-back", "paused": false,
            "over": true, "succeeded": false, "reason": "unit `chat.prod.4` failed", "opened": "2026-11-29T10:50:00Z",
            "since": "2026-11-29T11:00:00Z",
        },
        "waiting": [
            {"subject": "stage chat/prod", "on": "held at `flash-r1`"},
            {"subject": "unit chat.prod.3", "on": "unhealthy on `gpu-1`"},
        ],
        "units": [unit()],
    }))
}

fn an_event() -> Vec<EventView> {
    let event = json!({"id": 7, "at": "2026-11-29T11:00:00Z", "subject": "stage chat/prod", "level": "warning", "message": "deployment is rolled-back"});
    vec![from(event)]
}

#[test]
fn a_stage() {
    assert_snapshot!(plain(&stage::render(&stage(), &an_event(), now())), @"
    Stage:        chat/prod
    Desired:      flash-r2, by Git
    Good:         flash-r1
    Status:       held
    Units ready:  1 of 2

    Held
      flash-r2 is not tried again by itself; the stage stays at flash-r1.
      Since:      2026-11-29 11:00:00Z (60m ago)
      Why:        unit `chat.prod.4` on `gpu-1`: exit status 1
                  no such model
      Commit another release, or try again with `denv rollout retry chat/prod`.

    Deployment 2
      From:       flash-r1
      To:         flash-r2
      Phase:      rolled-back
      Opened:     2026-11-29 10:50:00Z (70m ago)
      Since:      2026-11-29 11:00:00Z (60m ago)
      Reason:     unit `chat.prod.4` failed

    Waiting
      unit chat.prod.3: unhealthy on `gpu-1`

    Units
      UNIT          STATUS      RELEASE    HOST    INFLIGHT   RESTARTS   SINCE   REASON
      chat.prod.3   unhealthy   flash-r1   gpu-1   0          4          3m      exit status 1…

    Events
      AGE   SUBJECT           MESSAGE
      60m   stage chat/prod   deployment is rolled-back
    ");
}

#[test]
fn a_deployment_and_a_unit() {
    let stage = stage();
    let last = stage.deployment.clone().unwrap();
    let text = plain(&deployment::render(&last, &stage, &[], now()));
    assert!(text.contains("Waiting\n") && text.contains("Units\n"), "{text}");
    let approved =
        denv_schema::api::ApprovedView { by: "ada".to_owned(), at: "2026-11-29T10:51:00Z".parse().unwrap() };
    let older = DeploymentView { number: 1, approved: Some(approved), ..last };
    assert_snapshot!(plain(&deployment::render(&older, &stage, &[], now())), @"
    Deployment:   chat/prod#1
    From:         flash-r1
    To:           flash-r2
    Phase:        rolled-back
    Opened:       2026-11-29 10:50:00Z (70m ago)
    Since:        2026-11-29 11:00:00Z (60m ago)
    Approved:     by ada, 2026-11-29 10:51:00Z (69m ago)
    Reason:       unit `chat.prod.4` failed

    Events
      none
    ");
    assert_snapshot!(plain(&unit::render(&stage.units[0], &stage, &[], now())), @"
    Unit:         chat.prod.3
    Stage:        chat/prod
    Release:      flash-r1
    Status:       unhealthy
    Reason:       exit status 1
                  CUDA out of memory
    Since:        2026-11-29 11:57:00Z (3m ago)
    Host:         gpu-1, of fleet racks
    On:           1 CPU slot
    Member:       chat.prod.3.0
    Generation:   2
    Restarts:     4
    In flight:    0

    Waiting
      unit chat.prod.3: unhealthy on `gpu-1`

    Events
      none
    ");
}

#[test]
fn a_host() {
    let host = from(json!({
        "host": "gpu-2", "fleet": "racks", "state": "never-joined", "lastSeen": null, "version": null, "ingress": null,
        "cordoned": false, "used": "0/8 GPUs", "units": [], "problems": ["the clock is 90s off"],
        "abilities": ["images", "fetch-weights"],
    }));
    assert_snapshot!(plain(&host::render(&host, &[], &[], now())), @"
    Host:         gpu-2
    Fleet:        racks
    State:        never-joined
    Seen:         never
    Used:         0/8 GPUs
    Can:          start engines from images, fetch weights
    Next:         `denv host token gpu-2` makes the token by which it joins

    Problems
      the clock is 90s off

    Units
      none

    Events
      none
    ");
}

#[test]
fn a_refused_source() {
    let revision = |commit: &str, summary: &str| json!({"commit": commit, "author": "Ada", "summary": summary, "at": "2026-11-29T11:00:00Z"});
    let source = from(json!({
        "name": "main", "url": "https://git.example/llm.git", "branch": "main", "state": "refused",
        "accepted": revision("0123456789abcdef", "More units"), "problem": null, "fetchedAt": "2026-11-29T11:59:50Z",
        "refused": {
            "revision": revision("fedcba9876543210", "Even more units"), "reason": "1 fault in its manifests",
            "diagnostics": [{
                "file": "stages/prod.yaml", "line": 12, "column": 5, "code": "unknown-reference",
                "message": "there is no Release `r22`", "hint": "did you mean `r2`?",
            }],
        },
    }));
    assert_snapshot!(plain(&source::render(&source, &[], now())), @"
    Source:       main
    Remote:       https://git.example/llm.git
    Branch:       main
    State:        refused
    Fetched:      2026-11-29 11:59:50Z (10s ago)

    In force
      Commit:     0123456789abcdef
      Author:     Ada
      Message:    More units
      Judged:     2026-11-29 11:00:00Z (60m ago)

    Refused
      Commit:     fedcba9876543210
      Author:     Ada
      Message:    Even more units
      Judged:     2026-11-29 11:00:00Z (60m ago)
      Why:        1 fault in its manifests

    1 fault
      stages/prod.yaml:12:5: error[unknown-reference]: there is no Release `r22`
        hint: did you mean `r2`?

    Events
      none
    ");
}

#[test]
fn gates_and_alarms_show_their_figures() {
    let mut stage = stage();
    stage.alarms = from(json!([
        {"alarm": "errors", "outcome": "pass", "reason": "share of failed requests is 0% over 400 requests in 5m, not above 1%"},
        {"alarm": "ttft", "outcome": "inconclusive", "reason": "time to first token (p99): 3 requests in 5m, and 100 are needed"},
    ]));
    let last = stage.deployment.as_mut().unwrap();
    last.gates = from(json!([
        {"part": "reference", "suite": "golden", "attempt": 1, "asked": "unit `chat.prod.1` on `gpu-1`",
         "since": "2026-11-29T10:51:00Z", "outcome": "pass", "reason": "2 answers"},
        {"part": "before", "suite": "golden", "attempt": 2, "asked": "unit `chat.prod.4` on `gpu-2`",
         "since": "2026-11-29T10:52:00Z"},
    ]));
    let last = last.clone();
    let text = plain(&deployment::render(&last, &stage, &[], now()));
    let shown: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Gate")).take(7).collect();
    assert_snapshot!(shown.join("\n"), @"
    Gate:         reference passed; golden asked unit `chat.prod.1` on `gpu-1`: 2 answers
    Gate:         before under way; golden asked unit `chat.prod.4` on `gpu-2`

    Alarms
      errors quiet: share of failed requests is 0% over 400 requests in 5m, not above 1%
      ttft inconclusive: time to first token (p99): 3 requests in 5m, and 100 are needed
    ");
}
