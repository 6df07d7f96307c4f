use denv_schema::api::{DeletionView, EventView, RevisionView, SourceView, short};
use jiff::Timestamp;

use super::page::Page;
use crate::findings;
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
                page.lines(&findings::render(finding, None));
            });
        }
    }
    if let Some(awaiting) = &source.awaiting {
        page.section("Awaits approval");
        revision(&mut page, &awaiting.revision, now);
        for DeletionView { kind, deleted, of, names } in &awaiting.deletions {
            page.field("  Deletes", format!("{deleted} of {of} {kind}: {}", listed(names)));
        }
        let commit = short(&awaiting.revision.commit);
        page.field("  Accept", format!("denv source approve {} {commit}", source.name));
    }
    if !source.conditions.is_empty() {
        page.section("Conditions");
        for condition in &source.conditions {
            page.field(
                &format!("  {:?}", condition.kind),
                format!(
                    "{:?} {} since {}",
                    condition.status,
                    condition.reason,
                    at(condition.last_transition, now)
                ),
            );
        }
    }
    page.events(events, now).finish()
}

/// More names than these say no more.
const MOST_NAMES: usize = 20;

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn revision(page: &mut Page, revision: &RevisionView, now: Timestamp) {
    page.field("  Commit", &revision.commit)
        .field("  Author", &revision.author)
        .field("  Message", &revision.summary)
        .field("  Judged", at(revision.at, now));
}
