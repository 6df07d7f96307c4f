//! What of a plan may be carried out. A stage whose part of it would break an invariant stands still, and says so: that is
//! a fault of this crate's own, and no reason for the other stages to stand still with it.

use std::collections::BTreeMap;

use crate::checker::{Violation, check};
use crate::plan::{Plan, Step, Subject};
use crate::waiting::WaitingOn;
use crate::world::World;

/// The plan without the steps of the stages that would break an invariant; these wait on [`WaitingOn::Unsound`].
pub fn vet(world: &World<'_>, mut plan: Plan) -> Plan {
    let found = check(world, &plan);
    if found.is_empty() {
        return plan;
    }
    let mut parts: BTreeMap<Subject, Vec<Step>> = BTreeMap::new();
    for step in std::mem::take(&mut plan.steps) {
        parts.entry(whose(&step)).or_default().push(step);
    }
    let mut stopped = BTreeMap::new();
    for (subject, steps) in parts {
        let part = Plan { steps, ..Plan::default() };
        let found = check(world, &part);
        if found.is_empty() {
            plan.steps.extend(part.steps);
        } else {
            stopped.insert(subject, words(&found));
        }
    }
    // Parts that are sound by themselves may not be so together: then none of them is trusted.
    let together = check(world, &plan);
    if !together.is_empty() {
        for step in plan.steps.drain(..) {
            stopped.entry(whose(&step)).or_insert_with(|| words(&together));
        }
    }
    for (subject, said) in stopped {
        plan.waiting.insert(subject, WaitingOn::Unsound { said });
    }
    plan
}

/// The stage that a step is of, as far as it is of one.
fn whose(step: &Step) -> Subject {
    match step.subject() {
        Subject::Unit(unit) => unit.parts().map_or(Subject::Unit(unit), |(stage, _)| Subject::Stage(stage)),
        stage @ Subject::Stage(_) => stage,
    }
}

fn words(found: &[Violation]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
