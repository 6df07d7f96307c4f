//! What asks the control plane once.

use std::net::TcpListener;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stand_in::{StandIn, TOKEN, event, stage};
use crate::{denv, run};

#[test]
fn lists_come_in_every_form() {
    let control_plane = StandIn::start();
    let view = stage("succeeded", true, "r2", None, &[("r2", "ready")]);
    let units = json!({"items": view["units"]});
    control_plane.with("GET /v1/stages", json!({"items": [view]})).with("GET /v1/units", units.clone());
    let get = |line: &str| run(control_plane.denv().args(line.split(' ')));
    let (status, out, err) = get("get stages");
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("STAGE       READY   DESIRED   GOOD   STATUS"), "{out}");
    assert!(lines[1].starts_with("chat/prod   1/1     r2        r2     succeeded"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colour in a pipe");

    // JSON is what the server said, with what this version does not know.
    let (_, out, _) = get("get stages -o json");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!({"items": [view]}));
    assert!(out.find("\"stage\"") < out.find("\"desired\""), "in the server's order");
    let (_, out, _) = get("get unit chat.prod.0 -o json");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), view["units"][0]);
    let (_, out, _) = get("get units -o name");
    assert_eq!(out, "chat.prod.0\n");
    let (_, out, _) = get("get units -o wide");
    assert!(out.contains("GENERATION"), "{out}");
    let (_, out, _) = get("get units -o yaml");
    assert!(out.starts_with("items:\n"), "{out}");
    get("get units --stage chat/prod");
    assert!(control_plane.scene().requests.contains(&"GET /v1/units?stage=chat%2Fprod".to_owned()));
}

#[test]
fn nothing_and_nobody_are_said_so() {
    let control_plane = StandIn::start();
    control_plane
        .with("GET /v1/units", json!({"items": []}))
        .with("GET /v1/hosts", json!({"items": [host("gpu-1")]}));
    let (status, out, err) = run(control_plane.denv().args(["get", "units"]));
    assert_eq!((status, out.as_str(), err.as_str()), (0, "", "no units\n"));
    let (_, out, _) = run(control_plane.denv().args(["get", "units", "-o", "json"]));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!({"items": []}));
    let (status, _, err) = run(control_plane.denv().args(["get", "host", "gpu-2"]));
    assert_eq!((status, err.as_str()), (1, "error: there is no host `gpu-2`\nhint: did you mean `gpu-1`?\n"));
    let (status, _, err) = run(control_plane.denv().args(["get", "hots"]));
    assert_eq!(status, 2);
    assert!(err.contains("did you mean `host`?"), "{err}");
    let (status, _, err) = run(control_plane.denv().args(["get", "hosts", "--stage", "chat/prod"]));
    assert_eq!((status, err.as_str()), (2, "error: hosts can't be listed with --stage\n"));
    let (status, _, err) = run(control_plane.denv().args(["describe", "release", "r1"]));
    assert_eq!(status, 2);
    assert!(err.contains("denv get release r1 -o yaml"), "{err}");
}

fn host(name: &str) -> Value {
    json!({
        "host": name, "fleet": "racks", "state": "connected", "lastSeen": "2026-11-29T12:00:00Z", "version": "0.1.0",
        "ingress": "gpu-1:7443", "cordoned": false, "used": "1/8 GPUs", "units": ["chat.prod.0"], "problems": [],
    })
}

#[test]
fn descriptions_gather_what_is_known() {
    let control_plane = StandIn::start();
    let view = stage("rolled-back", true, "r1", Some("it crashed"), &[("r1", "ready")]);
    control_plane
        .with("GET /v1/stages/chat/prod", view.clone())
        .with("GET /v1/units", json!({"items": view["units"]}))
        .with("GET /v1/hosts", json!({"items": [host("gpu-1")]}))
        .with("GET /v1/deployments", json!({"items": [view["deployment"]]}));
    control_plane.scene().events.push(event(5, "stage chat/prod", "deployment is rolled-back: it crashed"));
    for line in [
        "describe stage chat/prod",
        "describe deployment chat/prod",
        "describe deployment chat/prod#2",
        "describe unit chat.prod.0",
        "describe host gpu-1",
    ] {
        let (status, out, err) = run(control_plane.denv().args(line.split(' ')));
        assert_eq!((status, err.as_str()), (0, ""), "{line}");
        assert!(out.contains("chat.prod.0") && out.contains("Events\n"), "{line}\n{out}");
    }
    let (_, out, _) = run(control_plane.denv().args(["describe", "stage", "chat/prod", "-o", "json"]));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), view);
    let (status, _, err) = run(control_plane.denv().args(["describe", "deployment", "chat/prod#9"]));
    assert_eq!(status, 1);
    assert!(err.starts_with("error: there is no deployment `chat/prod#9`\n"), "{err}");
}

#[test]
fn a_refused_source_says_why() {
    let control_plane = StandIn::start();
    let revision = |commit: &str| json!({"commit": commit, "author": "Ada", "summary": "Change", "at": "2026-11-29T12:00:00Z"});
    let fault =
        json!({"file": "a.yaml", "line": 2, "column": 3, "code": "bad-value", "message": "it is wrong"});
    let source = json!({
        "name": "main", "url": "/srv/llm.git", "branch": "main", "state": "refused", "accepted": revision("aaaa"),
        "refused": {"revision": revision("bbbb"), "reason": "1 fault in its manifests", "diagnostics": [fault]},
        "problem": null, "fetchedAt": null,
    });
    control_plane
        .with("GET /v1/sources", json!({"items": [source]}))
        .with("POST /v1/sources/main/refresh", source.clone());
    let (status, out, _) = run(control_plane.denv().args(["describe", "source", "main"]));
    assert_eq!(status, 0);
    assert!(out.contains("  a.yaml:2:3: error[bad-value]: it is wrong\n"), "{out}");
    let (status, out, err) = run(control_plane.denv().args(["source", "refresh", "main"]));
    assert_eq!((status, out.as_str()), (1, "in force: aaaa Change (Ada)\n"));
    assert!(err.contains("a.yaml:2:3") && err.contains("refused: bbbb Change (Ada): 1 fault"), "{err}");
}

#[test]
fn a_source_that_awaits_approval_shows_what_would_go_and_is_approved() {
    let control_plane = StandIn::start();
    let revision = |commit: &str| json!({"commit": commit, "author": "Ada", "summary": "Clean up", "at": "2026-11-29T12:00:00Z"});
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "observedRevision": "bbbb", "lastTransition": "2026-11-29T12:00:00Z"});
    let source = json!({
        "name": "main", "url": "/srv/llm.git", "branch": "main", "state": "awaiting-approval", "accepted": revision("aaaa"),
        "refused": null, "problem": null, "fetchedAt": null,
        "awaiting": {"revision": revision("bbbbbbbbbbbb"), "reason": "2 of 3 hosts", "deletions": [
            {"kind": "hosts", "deleted": 2, "of": 3, "names": ["gpu-1", "gpu-2"]},
        ]},
        "conditions": [
            condition("Ready", "False", "AwaitingApproval"),
            condition("Reconciling", "False", "Idle"),
            condition("Stalled", "True", "AwaitingApproval"),
        ],
    });
    let mut approved = source.clone();
    approved["state"] = json!("ready");
    approved["accepted"] = revision("bbbbbbbbbbbb");
    approved["awaiting"] = json!(null);
    control_plane
        .with("GET /v1/sources", json!({"items": [source]}))
        .with("POST /v1/sources/main/refresh", source.clone())
        .with("POST /v1/sources/main/approve", approved);
    let (_, out, _) = run(control_plane.denv().args(["get", "sources", "-o", "wide"]));
    assert!(
        out.contains("awaiting approval") && out.contains("bbbbbbbbbb would delete 2 of 3 hosts"),
        "{out}"
    );
    assert!(out.contains("Stalled"), "{out}");
    let (_, out, _) = run(control_plane.denv().args(["describe", "source", "main"]));
    assert!(out.contains("2 of 3 hosts: gpu-1, gpu-2"), "{out}");
    assert!(out.contains("denv source approve main bbbbbbbbbb"), "{out}");
    assert!(out.contains("True AwaitingApproval since"), "{out}");
    let (status, _, err) = run(control_plane.denv().args(["source", "refresh", "main"]));
    assert_eq!(status, 1);
    assert!(err.contains("accept it with `denv source approve main bbbbbbbbbb`"), "{err}");
    let (status, out, _) = run(control_plane.denv().args(["source", "approve", "main", "bbbbbbbbbb"]));
    assert_eq!((status, out.as_str()), (0, "in force: bbbbbbbbbb Clean up (Ada)\n"));
}

#[test]
fn a_tenant_is_asked_about_where_one_is_named() {
    let control_plane = StandIn::start();
    control_plane.with("GET /v1/units", json!({"items": []}));
    assert_eq!(run(control_plane.denv().args(["get", "units", "--tenant", "acme"])).0, 0);
    let of_stage = ["get", "units", "--stage", "chat/prod"];
    assert_eq!(run(control_plane.denv().env("DENV_TENANT", "lab").args(of_stage)).0, 0);
    assert_eq!(
        control_plane.scene().requests,
        ["GET /v1/units?tenant=acme", "GET /v1/units?tenant=lab&stage=chat%2Fprod"]
    );
    let (status, _, err) = run(control_plane.denv().args(["get", "units", "--tenant", "a b"]));
    assert_eq!(status, 2);
    assert!(err.contains("--tenant"), "{err}");
}

#[test]
fn tokens_go_to_standard_output_alone() {
    let control_plane = StandIn::start();
    let answer = json!({"token": "denv-join.abc", "expires": "2100-01-01T00:00:00Z"});
    control_plane.with("POST /v1/tokens", answer.clone());
    let (status, out, err) = run(control_plane.denv().args(["host", "token", "gpu-1"]));
    assert_eq!((status, out.as_str()), (0, "denv-join.abc\n"));
    assert!(err.contains("denvd --server") && !err.contains("abc"), "{err}");
    let (_, out, err) = run(control_plane.denv().args(["gateway", "token", "gw-1", "-o", "json"]));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), answer);
    assert_eq!(err, "");
    let requests = control_plane.scene().requests.clone();
    assert_eq!(requests[0], r#"POST /v1/tokens {"role":"host","name":"gpu-1"}"#);
    assert_eq!(requests[1], r#"POST /v1/tokens {"role":"gateway","name":"gw-1"}"#);
}

#[test]
fn usage_is_asked_for_since_a_time() {
    let control_plane = StandIn::start();
    let row = json!({"customer": "demo", "model": "smollm2", "requests": 1200, "input": 1, "cachedInput": 2, "output": 3, "reasoning": 4});
    control_plane.with("GET /v1/usage", json!({"items": [row]}));
    let line = ["usage", "--customer", "demo", "--since", "2026-11-01T00:00:00Z"];
    let (status, out, _) = run(control_plane.denv().args(line));
    assert_eq!(status, 0);
    assert_snapshot!(out, @"
    CUSTOMER   MODEL     REQUESTS   INPUT   CACHED   OUTPUT   REASONING
    demo       smollm2      1,200       1        2        3           4
    ");
    let asked = control_plane.scene().requests[0].clone();
    assert_eq!(asked, "GET /v1/usage?since=2026-11-01T00%3A00%3A00Z&customer=demo");
}

#[test]
fn a_control_plane_that_is_not_there_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (status, out, err) = run(denv().args(["get", "units", "--server", &format!("http://{closed}")]));
    assert_eq!((status, out.as_str()), (2, ""));
    let err = err.replace(&closed.to_string(), "ADDRESS");
    assert_snapshot!(err, @"
    error: cannot reach the control plane at http://ADDRESS: Connection refused (os error 111)
    hint: is `denv-reconciler` running there? Another address is given with --server or DENV_SERVER
    ");
    let (status, _, err) = run(denv().args(["get", "units", "--server", "localhost:7440"]));
    assert_eq!(status, 2);
    assert!(err.contains("`localhost:7440` is not an address of a control plane"), "{err}");
}

#[test]
fn a_wrong_token_is_named_by_where_it_is_from() {
    let control_plane = StandIn::start();
    let (status, _, err) = run(control_plane.denv().env_remove("DENV_TOKEN").args(["get", "units"]));
    assert_eq!(status, 2);
    assert_snapshot!(err.replace(&control_plane.url, "URL"), @"
    error: the control plane at URL does not accept requests without a token, and none was given
    hint: give an API token with --token-file FILE, DENV_TOKEN_FILE or DENV_TOKEN, or write it to ~/.config/denv/token
    ");
    let (status, _, err) = run(control_plane.denv().env("DENV_TOKEN", "planted").args(["get", "units"]));
    assert_eq!(status, 2);
    assert!(err.contains("the token in DENV_TOKEN") && !err.contains("planted"), "{err}");

    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".config/denv/token");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "planted\n").unwrap();
    let at_home = |command: &mut assert_cmd::Command| {
        run(command.env_remove("DENV_TOKEN").env("HOME", home.path()).args(["get", "units"]))
    };
    let (status, _, err) = at_home(&mut control_plane.denv());
    assert_eq!(status, 2);
    assert!(err.contains(&format!("the token in `{}`", file.display())) && !err.contains("planted"), "{err}");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    control_plane.with("GET /v1/units", json!({"items": []}));
    assert_eq!(at_home(&mut control_plane.denv()).0, 0);
    let (status, _, err) = run(control_plane.denv().args(["get", "units", "--token-file", "/nonexistent"]));
    assert_eq!(status, 2);
    assert!(err.starts_with("error: cannot read the API token from `/nonexistent`"), "{err}");
}

#[test]
fn refusals_are_passed_on_and_nonsense_is_called_so() {
    let control_plane = StandIn::start();
    let refusal =
        json!({"error": {"message": "there is no stage `chat/prd`", "hint": "there are `chat/prod`"}});
    control_plane.scene().answers.insert("GET /v1/stages/chat/prd".to_owned(), (404, refusal));
    let (status, _, err) = run(control_plane.denv().args(["get", "stage", "chat/prd"]));
    assert_eq!(
        (status, err.as_str()),
        (1, "error: there is no stage `chat/prd`\nhint: there are `chat/prod`\n")
    );
    control_plane.scene().answers.insert("GET /v1/hosts".to_owned(), (502, json!("gone")));
    let (status, _, err) = run(control_plane.denv().args(["get", "hosts"]));
    assert_eq!(status, 2);
    assert!(err.contains("answered 502 Bad Gateway, and not as a control plane does"), "{err}");
    control_plane.with("GET /v1/units", json!({"items": [{"unit": 7}]}));
    let (status, _, err) = run(control_plane.denv().args(["get", "units"]));
    assert_eq!(status, 2);
    assert!(err.contains("is this `denv` older than the control plane?"), "{err}");
    assert_eq!(run(control_plane.denv().args(["get", "units", "-o", "json"])).0, 0);
}

#[test]
fn how_many_units_run_is_said_and_confirmed() {
    let control_plane = StandIn::start();
    control_plane
        .with("POST /v1/stages/chat/prod/scale", stage("succeeded", true, "r2", None, &[("r2", "ready")]));
    let (status, out, err) = run(control_plane.denv().args(["scale", "chat/prod", "1"]));
    assert_eq!(
        (status, out.as_str(), err.as_str()),
        (0, "chat/prod is to have 1 unit, and 1 are ready\n", "")
    );
    let (status, _, err) = run(control_plane.denv().args(["scale", "chat/prod"]));
    assert_eq!(status, 2, "{err}");
    assert_eq!(run(control_plane.denv().args(["scale", "chat/prod", "--reset"])).0, 0);
}

#[test]
fn why_is_said_in_the_planners_words() {
    let control_plane = StandIn::start();
    let view = stage("rolling (batch 1)", false, "r2", None, &[("r1", "ready")]);
    let domain = |name: &str, free: u32, takes_it: bool, why: &str| json!({"domain": name, "hosts": 18, "free": free, "takesIt": takes_it, "why": why});
    let fleet = json!({
        "fleet": "racks", "takes": "68 GPUs", "waiting": null, "leftOut": 2,
        "domains": [domain("rack-1", 72, true, "the next unit would go here"), domain("rack-2", 60, false, "too little is free: 60 of 68")],
    });
    control_plane
        .with("GET /v1/units", json!({"items": view["units"]}))
        .with("GET /v1/stages/chat/prod", view)
        .with("GET /v1/stages/chat/prod/placement", json!({"items": [fleet]}));
    let (status, out, err) = run(control_plane.denv().args(["why", "stage", "chat/prod"]));
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    for said in [
        "The next unit, in fleet racks: 68 GPUs",
        "rack-1      18     72   the next unit would go here",
        "rack-2      18     60   too little is free: 60 of 68",
        "and 2 domains, which are no better",
    ] {
        assert!(out.contains(said), "{out}");
    }
    let (status, out, _) = run(control_plane.denv().args(["why", "unit", "chat.prod.0"]));
    assert!(status == 0 && out.contains("Unit:") && out.contains("gpu-1"), "{out}");
    let (status, _, err) = run(control_plane.denv().args(["why", "host", "gpu-1"]));
    assert_eq!(
        (status, err.as_str()),
        (2, "error: only a stage or a unit has a why\nhint: write `denv why stage chat/prod`\n")
    );
}
