use denv_schema::api::{EventView, RevisionView, SourceView};
use jiff::Timestamp;

use super::page::Page;
use crate::excerpt;
use crate::text::counted;
use crate::time::at;
use crate::views::source_state;

pub(super) fn render(source: &SourceView, events: &[EventView], now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("Source", &source.name)
        .field("Remote", &source.url)
        .field("Branch", &source.branch)
        .cell("State", &source_state(source))
        .maybe("Problem", source.problem.as_ref())
        .field("Fetched", source.fetched_at.map_or_else(|| "never".to_owned(), |fetched| at(fetched, now)));
    page.section("In force");
    match &source.accepted {
        Some(accepted) => revision(&mut page, accepted, now),
        None => {
            page.lines("nothing yet");
        }
    }
    if let Some(refused) = &source.refused {
        page.section("Refused");
        revision(&mut page, &refused.revision, now);
        page.field("  Why", &refused.reason);
        if !refused.diagnostics.is_empty() {
            page.section(&counted(refused.diagnostics.len(), "fault"));
            refused.diagnostics.iter().for_each(|finding| {
                page.lines(&excerpt::render(finding, None));
            });
        }
    }
    page.events(events, now).finish()
}

fn revision(page: &mut Page, revision: &RevisionView, now: Timestamp) {
    page.field("  Commit", &revision.commit)
        .field("  Author", &revision.author)
        .field("  Message", &revision.summary)
        .field("  Judged", at(revision.at, now));
}
