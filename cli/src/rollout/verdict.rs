//! Whether a rollout has come to its end, by what the stage looks like. It knows no time and no network.

use denv_schema::Name;
use denv_schema::api::StageView;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All that is desired is ready.
    Succeeded,
    /// It is over, and what is desired does not run.
    Failed {
        reason: String,
    },
    UnderWay,
}

/// `release`: what Git must desire before anything is judged.
pub(super) fn judge(stage: &StageView, release: Option<&Name>) -> Verdict {
    if release.is_some_and(|release| stage.desired != *release) {
        return Verdict::UnderWay;
    }
    if stage.deployment.as_ref().is_some_and(|deployment| !deployment.over) {
        return Verdict::UnderWay;
    }
    match &stage.held {
        // A hold that Git has outgrown ends by itself.
        Some(held) if held.release == stage.desired => Verdict::Failed { reason: held.reason.clone() },
        Some(_) => Verdict::UnderWay,
        None if stage.good.as_ref() == Some(&stage.desired) && is_at_rest(stage) => Verdict::Succeeded,
        None => Verdict::UnderWay,
    }
}

/// Everything wanted is ready, and nothing else is left. A unit may carry another release's name: one that means the
/// same is not started anew.
fn is_at_rest(stage: &StageView) -> bool {
    stage.ready == stage.wanted && stage.units.iter().all(|unit| unit.status == "ready")
}

/// Where it stands, on one line.
pub(super) fn standing(stage: &StageView) -> String {
    let units = format!("{} of {} units ready", stage.ready, stage.wanted);
    let id = &stage.stage;
    match (&stage.deployment, &stage.held) {
        (Some(deployment), _) if !deployment.over => {
            let from = deployment.from.as_ref().map(|from| format!("{from} to ")).unwrap_or_default();
            let paused = if deployment.paused { "paused, " } else { "" };
            let (number, to, phase) = (deployment.number, &deployment.to, &deployment.phase);
            format!("{id}: deployment {number}, {from}{to}, is {paused}{phase}; {units}")
        }
        (_, Some(held)) => {
            let at = stage.good.as_ref().map_or_else(|| "nothing".to_owned(), |good| good.to_string());
            format!("{id} is held at {at}, and {} is not tried again; {units}", held.release)
        }
        _ if stage.good.as_ref() == Some(&stage.desired) => format!("{id} runs {}; {units}", stage.desired),
        _ => format!("{id} wants {}, and no deployment has opened yet; {units}", stage.desired),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stage(
        desired: &str,
        good: Value,
        held: Value,
        over: Option<bool>,
        units: &[(&str, &str)],
    ) -> StageView {
        let at = "2026-11-29T12:00:00Z";
        let deployment = over.map(|over| {
            json!({
                "stage": "chat/prod", "number": 2, "from": "r1", "to": "r2", "phase": if over { "rolled-back" } else { "rolling (batch 1)" },
                "paused": false, "over": over, "succeeded": false, "reason": null, "opened": at, "since": at,
            })
        });
        let unit = |(index, (release, status)): (usize, &(&str, &str))| {
            json!({
                    "unit": format!("chat.prod.{index}"), "stage": "chat/prod", "release": release, "fleet": "f", "host": "h",
                    "member": format!("chat.prod.{index}.0"), "chosen": null,
            "members": [{"member": format!("chat.prod.{index}.0"), "pool": "replica", "host": "h", "gpus": [], "cpuSlots": 1, "restarts": 0}],
            "generation": 1, "status": status,
                    "reason": null, "since": at, "restarts": 0, "inflight": 0,
                })
        };
        let ready = units.iter().filter(|(_, status)| *status == "ready").count();
        let held =
            held.as_str().map(|release| json!({"release": release, "reason": "it crashed", "since": at}));
        let units: Vec<Value> = units.iter().enumerate().map(unit).collect();
        serde_json::from_value(json!({
            "stage": "chat/prod", "desired": desired, "good": good, "held": held, "ready": ready, "wanted": 1,
            "deployment": deployment, "waiting": [], "units": units,
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_is_over_only_at_rest() {
        let failed = Verdict::Failed { reason: "it crashed".to_owned() };
        let (none, r1, r2) = (|| json!(null), || json!("r1"), || json!("r2"));
        let cases = [
            ("just committed", stage("r2", r1(), none(), Some(true), &[("r1", "ready")]), Verdict::UnderWay),
            ("the first ever", stage("r2", none(), none(), None, &[]), Verdict::UnderWay),
            ("rolling", stage("r2", r1(), none(), Some(false), &[("r2", "ready")]), Verdict::UnderWay),
            ("rolling back", stage("r2", r1(), r2(), Some(false), &[("r1", "ready")]), Verdict::UnderWay),
            ("rolled back", stage("r2", r1(), r2(), Some(true), &[("r1", "ready")]), failed.clone()),
            ("the first failed", stage("r2", none(), r2(), Some(true), &[]), failed),
            ("reverted", stage("r1", r1(), r2(), Some(true), &[("r1", "ready")]), Verdict::UnderWay),
            ("reverted since", stage("r1", r1(), none(), Some(true), &[("r1", "ready")]), Verdict::Succeeded),
            ("done", stage("r2", r2(), none(), Some(true), &[("r2", "ready")]), Verdict::Succeeded),
            ("one ails", stage("r2", r2(), none(), Some(true), &[("r2", "unhealthy")]), Verdict::UnderWay),
            (
                "the same by another name",
                stage("r2", r2(), none(), Some(true), &[("r1", "ready")]),
                Verdict::Succeeded,
            ),
            ("one too many", stage("r2", r2(), none(), Some(true), &[("r2", "ready"); 2]), Verdict::UnderWay),
            (
                "one leaves",
                stage("r2", r2(), none(), Some(true), &[("r2", "ready"), ("r1", "draining")]),
                Verdict::UnderWay,
            ),
        ];
        for (what, stage, expected) in cases {
            assert_eq!(judge(&stage, None), expected, "{what}");
        }
        let old = stage("r1", r1(), none(), Some(true), &[("r1", "ready")]);
        assert_eq!(judge(&old, Some(&"r2".parse().unwrap())), Verdict::UnderWay);
    }

    #[test]
    fn where_it_stands_is_one_line() {
        let (none, r1, r2) = (|| json!(null), || json!("r1"), || json!("r2"));
        let lines = [
            stage("r2", r1(), none(), Some(false), &[("r1", "ready")]),
            stage("r2", r1(), r2(), Some(true), &[("r1", "ready")]),
            stage("r2", r2(), none(), Some(true), &[("r2", "ready")]),
            stage("r2", none(), none(), None, &[]),
        ]
        .map(|stage| standing(&stage));
        insta::assert_snapshot!(lines.join("\n"), @"
        chat/prod: deployment 2, r1 to r2, is rolling (batch 1); 1 of 1 units ready
        chat/prod is held at r1, and r2 is not tried again; 1 of 1 units ready
        chat/prod runs r2; 1 of 1 units ready
        chat/prod wants r2, and no deployment has opened yet; 0 of 1 units ready
        ");
    }
}
