//! Environments: each stage once, and releases that pass on from one to the next.

use std::collections::BTreeSet;

use super::Report;
use super::stage::no_dot;
use crate::Name;
use crate::diagnostic::{Code, nearest};
use crate::manifest::{EnvironmentSpec, PromotionMode};

pub(super) fn environment(name: &Name, spec: &EnvironmentSpec, report: &mut Report<'_>) {
    no_dot("/metadata/name", name, report);
    let mut seen = BTreeSet::new();
    for (i, stage) in spec.stages.iter().enumerate() {
        if !seen.insert(stage) {
            report.contradict(&format!("/spec/stages/{i}"), format!("stage `{stage}` is listed twice"), None);
        }
    }
    promotion(spec, report);
}

fn promotion(spec: &EnvironmentSpec, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (i, step) in spec.promotion.iter().enumerate() {
        let pointer = format!("/spec/promotion/{i}");
        let place = |name: &Name| spec.stages.iter().position(|stage| stage == name);
        let mut is_known = true;
        for (field, name) in [("from", &step.from), ("to", &step.to)] {
            if place(name).is_none() {
                is_known = false;
                let hint = nearest(name.as_str(), spec.stages.iter().map(Name::as_str));
                let message = format!("`stages` does not list `{name}`");
                report.say(Code::UnknownReference, &format!("{pointer}/{field}"), message, hint.as_deref());
            }
        }
        let follows = place(&step.from).and_then(|at| spec.stages.get(at + 1)) == Some(&step.to);
        if is_known && !follows {
            let after = place(&step.from).and_then(|at| spec.stages.get(at + 1));
            let hint = match after {
                Some(after) => format!("after `{}` comes `{after}`", step.from),
                None => format!("`{}` is the last stage: nothing comes after it", step.from),
            };
            let message = format!("`{}` does not come straight after `{}` in `stages`", step.to, step.from);
            report.say(Code::Order, &format!("{pointer}/to"), message, Some(&hint));
        }
        if !seen.insert(&step.from) {
            report.contradict(&pointer, format!("the step from `{}` is written twice", step.from), None);
        }
        match (step.mode, step.bake) {
            (PromotionMode::Automatic, None) => {
                let message = "the step is automatic and does not say when".to_owned();
                report.contradict(&pointer, message, Some("write `bake`, for example `1h`"));
            }
            (PromotionMode::Manual, Some(_)) => {
                let message = "a person promotes when they like, so `bake` has no meaning".to_owned();
                report.contradict(
                    &format!("{pointer}/bake"),
                    message,
                    Some("leave it out, or use `mode: automatic`"),
                );
            }
            (PromotionMode::Automatic, Some(_)) | (PromotionMode::Manual, None) => {}
        }
    }
}
