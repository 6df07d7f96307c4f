//! Runs of parity suites, as people read them.

use serde_json::{Value, json};

use crate::run;
use crate::stand_in::StandIn;

fn report(outcome: &str) -> Value {
    json!({
        "stage": "chat/prod", "deployment": 7, "when": "before", "attempt": 1, "release": "r2", "suite": "golden",
        "unit": "chat.prod.3", "host": "gpu-1", "reference": null, "begun": "2026-11-29T12:00:00Z",
        "ended": "2026-11-29T12:00:05Z", "outcome": outcome, "reason": "0 of 1 cases passed, 1 must",
        "cases": [{
            "name": "capital", "verdict": "failed", "prompt": "<The capital?>", "expected": "Paris",
            "comparison": "the words", "answered": "Lyon", "tookMs": 12,
            "differences": [{"at": "character 1", "expected": "Paris", "answered": "Lyon"}],
        }],
    })
}

#[test]
fn a_report_is_read_in_three_forms_and_its_outcome_is_the_status() {
    let control_plane = StandIn::start();
    let failed = report("fail");
    control_plane.with("GET /v1/stages/chat/prod/parity", failed.clone());
    let asked = |line: &str| run(control_plane.denv().args(line.split(' ')));
    let (status, out, err) = asked("parity report chat/prod");
    assert_eq!((status, err.as_str()), (1, ""), "{out}");
    assert!(
        out.contains("Outcome:     failed: 0 of 1") && out.contains("    - Paris\n    + Lyon\n"),
        "{out}"
    );
    let (status, out, _) = asked("parity report chat/prod -o json");
    assert_eq!((status, serde_json::from_str::<Value>(&out).unwrap()), (1, failed));
    let (_, out, _) = asked("parity report chat/prod -o html");
    assert!(out.starts_with("<!doctype html>") && out.contains("&lt;The capital?&gt;"), "{out}");

    control_plane.with("GET /v1/stages/chat/prod/parity", report("pass"));
    assert_eq!(asked("parity report chat/prod --deployment 7 --when before").0, 0);
    let requests = control_plane.scene().requests.clone();
    let last = requests.last().map(String::as_str);
    assert_eq!(last, Some("GET /v1/stages/chat/prod/parity?deployment=7&when=before"));
}
