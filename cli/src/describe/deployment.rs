use denv_schema::api::{DeploymentView, EventView, StageView};
use jiff::Timestamp;

use super::page::Page;
use crate::table::{Cell, Tone};
use crate::time::at;
use crate::views::phase;

pub(super) fn render(
    deployment: &DeploymentView,
    stage: &StageView,
    events: &[EventView],
    now: Timestamp,
) -> String {
    let mut page = Page::default();
    page.field("Deployment", format!("{}#{}", deployment.stage, deployment.number));
    fields(&mut page, deployment, "", now);
    // An older deployment says nothing of what runs now.
    if stage.deployment.as_ref().is_some_and(|last| last.number == deployment.number) {
        page.alarms(&stage.alarms);
        page.waiting(&stage.waiting.iter().collect::<Vec<_>>()).units(&stage.units, now);
    }
    page.events(events, now).finish()
}

pub(super) fn fields(page: &mut Page, deployment: &DeploymentView, indent: &str, now: Timestamp) {
    let approved = deployment.approved.as_ref().map(|it| format!("by {}, {}", it.by, at(it.at, now)));
    let name = |name: &str| format!("{indent}{name}");
    page.field(&name("From"), deployment.from.as_ref().map_or("nothing", |from| from.as_str()))
        .field(&name("To"), &deployment.to)
        .cell(&name("Phase"), &phase(deployment))
        .field(&name("Opened"), at(deployment.opened, now))
        .field(&name("Since"), at(deployment.since, now))
        .maybe(&name("Approved"), approved)
        .maybe(&name("Reason"), deployment.reason.as_ref());
    for gate in &deployment.gates {
        let (label, tone) = match gate.outcome.as_deref() {
            Some("pass") => ("passed", Tone::Good),
            Some("fail") => ("failed", Tone::Bad),
            Some(_) => ("inconclusive", Tone::Change),
            None => ("under way", Tone::Change),
        };
        let reason = gate.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        let text = format!("{} {label}; {} asked {}{reason}", gate.part, gate.suite, gate.asked);
        page.cell(&name("Gate"), &Cell::toned(text, tone));
    }
    if deployment.gates.iter().any(|gate| gate.part != "reference" && gate.outcome.is_some()) {
        let (stage, number) = (&deployment.stage, deployment.number);
        page.field(&name("Report"), format!("denv parity report {stage} --deployment {number}"));
    }
}
