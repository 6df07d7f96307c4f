use denv_schema::api::{EventView, StageView, UnitView};
use jiff::Timestamp;

use super::page::Page;
use crate::time::at;
use crate::views::{devices, hosts_shown, unit_status};

pub(super) fn render(unit: &UnitView, stage: &StageView, events: &[EventView], now: Timestamp) -> String {
    let subject = format!("unit {}", unit.unit);
    let waiting: Vec<_> = stage.waiting.iter().filter(|waiting| waiting.subject == subject).collect();
    let mut page = Page::default();
    page.field("Unit", &unit.unit)
        .field("Stage", &unit.stage)
        .field("Release", &unit.release)
        .cell("Status", &unit_status(unit))
        .maybe("Reason", unit.reason.as_ref())
        .field("Since", at(unit.since, now))
        .field("Host", format!("{}, of fleet {}", hosts_shown(unit), unit.fleet))
        .maybe("Chosen", unit.chosen.as_ref())
        .field("On", devices(unit))
        .field("Member", &unit.member)
        .field("Generation", unit.generation)
        .field("Restarts", unit.restarts)
        .field("In flight", unit.inflight);
    page.waiting(&waiting).events(events, now).finish()
}
