use insta::assert_snapshot;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::table::render;

fn table<T: DeserializeOwned>(columns: &[Column<T>], rows: Value, wide: bool) -> String {
    let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
    let rows: Vec<T> = serde_json::from_value(rows).unwrap();
    anstream::adapter::strip_str(&render(columns, &rows, wide, now)).to_string()
}

fn unit(ordinal: u32, status: &str, reason: Option<&str>) -> Value {
    json!({
        "unit": format!("chat.prod.{ordinal}"), "stage": "chat/prod", "release": "flash-r2", "fleet": "racks", "host": "gpu-1",
        "member": format!("chat.prod.{ordinal}.0"), "chosen": null,
        "members": [{"member": format!("chat.prod.{ordinal}.0"), "pool": "replica", "host": "gpu-1", "gpus": [0, 1], "cpuSlots": 0, "restarts": 0}],
        "generation": 1, "status": status,
        "reason": reason, "since": "2026-11-29T11:57:00Z", "restarts": 2, "inflight": 7,
    })
}

fn deployment() -> Value {
    json!({
        "stage": "chat/prod", "number": 2, "from": "flash-r1", "to": "flash-r2", "phase": "rolling (batch 1)", "paused": false,
        "over": false, "succeeded": false, "reason": null, "opened": "2026-11-29T11:50:00Z", "since": "2026-11-29T11:59:30Z",
    })
}

#[test]
fn units() {
    let rows = json!([unit(3, "ready", None), unit(12, "failed", Some("exit status 1\nCUDA out of memory"))]);
    assert_snapshot!(table(UNITS, rows.clone(), false), @"
    UNIT           STATUS   RELEASE    HOST    INFLIGHT   RESTARTS   SINCE   REASON
    chat.prod.3    ready    flash-r2   gpu-1   7          2          3m      -
    chat.prod.12   failed   flash-r2   gpu-1   7          2          3m      exit status 1…
    ");
    assert_snapshot!(table(UNITS, rows, true), @"
    UNIT           STATUS   RELEASE    HOST    FLEET   ON        GENERATION   INFLIGHT   RESTARTS   SINCE   REASON
    chat.prod.3    ready    flash-r2   gpu-1   racks   GPU 0,1   1            7          2          3m      -
    chat.prod.12   failed   flash-r2   gpu-1   racks   GPU 0,1   1            7          2          3m      exit status 1…
    ");
}

#[test]
fn stages() {
    let stage = |name: &str, held: Value, deployment: Value, waiting: Value| {
        json!({
            "stage": name, "desired": "flash-r2", "good": "flash-r1", "held": held, "ready": 1, "wanted": 2,
            "deployment": deployment, "waiting": waiting, "units": [],
        })
    };
    let held = json!({"release": "flash-r2", "reason": "unit `chat.test.1` on `gpu-1`: exit status 1", "since": "2026-11-29T11:00:00Z"});
    let waiting = json!([{"subject": "unit chat.prod.3", "on": "draining"}, {"subject": "stage chat/prod", "on": "1 of 2 units ready"}]);
    let mut over = deployment();
    over["over"] = json!(true);
    let mut paused = deployment();
    paused["paused"] = json!(true);
    let rows = json!([
        stage("chat/prod", json!(null), deployment(), waiting),
        stage("chat/test", held, over, json!([])),
        stage("pro/prod", json!(null), paused, json!([])),
        stage("pro/test", json!(null), json!(null), json!([])),
    ]);
    assert_snapshot!(table(STAGES, rows, false), @"
    STAGE       READY   DESIRED    GOOD       STATUS                      SINCE   WHY
    chat/prod   1/2     flash-r2   flash-r1   rolling (batch 1)           30s     1 of 2 units ready
    chat/test   1/2     flash-r2   flash-r1   held                        60m     unit `chat.test.1` on `gpu-1`: exit status 1
    pro/prod    1/2     flash-r2   flash-r1   paused, rolling (batch 1)   30s     -
    pro/test    1/2     flash-r2   flash-r1   -                           -       -
    ");
}

#[test]
fn deployments_and_events() {
    assert_snapshot!(table(DEPLOYMENTS, json!([deployment()]), true), @"
    DEPLOYMENT    FROM       TO         PHASE               OPENED   SINCE   REASON
    chat/prod#2   flash-r1   flash-r2   rolling (batch 1)   10m      30s     -
    ");
    let events = json!([
        {"id": 7, "at": "2026-11-29T11:59:00Z", "subject": "stage chat/prod", "level": "normal", "message": "deployment 2 opened"},
        {"id": 8, "at": "2026-11-29T11:59:59Z", "subject": "unit chat.prod.3", "level": "warning", "message": "start again"},
    ]);
    assert_snapshot!(table(EVENTS, events, false), @"
    AGE   SUBJECT            MESSAGE
    60s   stage chat/prod    deployment 2 opened
    1s    unit chat.prod.3   start again
    ");
}

#[test]
fn hosts_and_gateways() {
    let host = |name: &str, state: &str, seen: Value, cordoned: bool| {
        json!({
            "host": name, "fleet": "racks", "state": state, "lastSeen": seen, "version": null, "ingress": null, "cordoned": cordoned,
            "used": "2/8 GPUs", "units": ["chat.prod.3"], "problems": [],
        })
    };
    let hosts = json!([
        host("gpu-1", "connected", json!("2026-11-29T11:59:58Z"), true),
        host("gpu-2", "never-joined", json!(null), false),
    ]);
    assert_snapshot!(table(HOSTS, hosts, false), @"
    HOST    FLEET   STATE                 USED       UNITS   SEEN    VERSION   PROBLEMS
    gpu-1   racks   connected, cordoned   2/8 GPUs   1       2s      -         -
    gpu-2   racks   never-joined          2/8 GPUs   1       never   -         -
    ");
    let gateways = json!([{
        "gateway": "gw-1", "state": "connected", "lastSeen": "2026-11-29T11:59:58Z", "version": "0.1.0",
        "inRotation": ["chat.prod.3"], "upToDate": false,
    }]);
    assert_snapshot!(table(GATEWAYS, gateways, true), @"
    GATEWAY   STATE       CONFIGURATION   UNITS   SEEN   VERSION   IN ROTATION
    gw-1      connected   behind          1       2s     0.1.0     chat.prod.3
    ");
}

#[test]
fn sources() {
    let revision = |commit: &str| json!({"commit": commit, "author": "Ada", "summary": "More units", "at": "2026-11-29T10:00:00Z"});
    let source = json!({
        "name": "main", "url": "https://git.example/llm.git", "branch": "main", "state": "refused",
        "accepted": revision("0123456789abcdef"), "problem": null, "fetchedAt": "2026-11-29T11:59:50Z",
        "refused": {"revision": revision("fedcba9876543210"), "reason": "2 faults in its manifests", "diagnostics": []},
    });
    assert_snapshot!(table(SOURCES, json!([source]), false), @"
    SOURCE   BRANCH   STATE     REVISION     ACCEPTED   FETCHED   MESSAGE
    main     main     refused   0123456789   120m       10s       fedcba9876 refused: 2 faults in its manifests
    ");
}
