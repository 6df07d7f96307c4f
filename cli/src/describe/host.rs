use denv_schema::api::{EventView, HostView, UnitView};
use jiff::Timestamp;

use super::page::Page;
use crate::time::at;
use crate::views::host_state;

fn abilities(host: &HostView) -> Option<String> {
    let can: Vec<String> = host.abilities.iter().map(ToString::to_string).collect();
    (!can.is_empty()).then(|| can.join(", "))
}

pub(super) fn render(host: &HostView, units: &[UnitView], events: &[EventView], now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("Host", &host.host)
        .field("Fleet", &host.fleet)
        .cell("State", &host_state(host))
        .field("Seen", host.last_seen.map_or_else(|| "never".to_owned(), |seen| at(seen, now)))
        .maybe("Version", host.version.as_ref())
        .maybe("Ingress", host.ingress.as_ref())
        .field("Used", &host.used)
        .maybe("Can", abilities(host).as_ref());
    if host.state == "never-joined" {
        page.field("Next", format!("`denv host token {}` makes the token by which it joins", host.host));
    }
    if !host.problems.is_empty() {
        page.section("Problems").lines(&crate::text::printable(&host.problems.join("\n")));
    }
    page.units(units, now).events(events, now).finish()
}
