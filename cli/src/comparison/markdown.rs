//! For a comment on a pull request. The same change gives the same text, so that a bot can tell whether to update it.

use denv_schema::diff::Diff;

use super::journey;
use super::page::{Page, code, escaped, row};
use super::{consequences, headline, length, mark, values};
use crate::plan::Preview;

/// By this line a bot finds its comment again.
pub(crate) const PLAN_MARKER: &str = "<!-- denv-plan -->";
const DIFF_MARKER: &str = "<!-- denv-diff -->";

pub(crate) fn diff(from: &str, to: &str, diff: &Diff) -> String {
    let mut page = Page::default();
    page.section(&format!("{DIFF_MARKER}\n### denv: {}", escaped(&headline(diff))));
    page.section(&format!("{} → {}", escaped(from), escaped(to)));
    differences(&mut page, diff);
    page.finish()
}

/// The effects, and folded the fields.
pub(super) fn differences(page: &mut Page, diff: &Diff) {
    if diff.is_empty() {
        return;
    }
    let consequences: Vec<String> =
        consequences(diff).iter().map(|line| format!("- **{}**", escaped(line))).collect();
    page.section(&consequences.join("\n"));
    let effects: Vec<String> = diff
        .changes
        .iter()
        .map(|change| {
            let effects = change.effects.iter().map(|effect| escaped(&effect.to_string()));
            row(&[
                code(&format!("{} {} {}", mark(change.change), change.kind, change.name)),
                effects.collect::<Vec<_>>().join("<br>"),
                code(&format!("{}:{}", change.file, change.line)),
            ])
        })
        .collect();
    let head = "| manifest | what it does | where |\n| --- | --- | --- |\n";
    page.folded(&headline(diff), head, &effects);
    let fields: Vec<String> = diff
        .changes
        .iter()
        .flat_map(|change| {
            let manifest = code(&format!("{} {}", change.kind, change.name));
            change
                .fields
                .iter()
                .map(move |field| row(&[manifest.clone(), code(&field.field), escaped(&values(field))]))
        })
        .collect();
    page.folded("fields", "| manifest | field | change |\n| --- | --- | --- |\n", &fields);
}

pub(crate) fn preview(preview: &Preview) -> String {
    let mut page = Page::default();
    page.section(&format!("{PLAN_MARKER}\n### denv: {}", escaped(&journey::headline(preview))));
    page.section(&format!("{} → {}", escaped(&preview.from), escaped(&preview.to)));
    let forecast = &preview.forecast;
    let warnings =
        forecast.violations.iter().map(|it| format!("- ❌ denv would stop this plan: {}", escaped(it)));
    let waits = forecast.waiting.iter().map(|wait| {
        let (subject, since, on) = (escaped(&wait.subject), length(wait.since), escaped(&wait.on));
        format!("- ⚠️ **{subject}** waits after {since}: {on}")
    });
    let asks = forecast
        .approvals
        .iter()
        .map(|stage| format!("- ✋ {} waits for a person's approval first", code(&stage.to_string())));
    let warnings: Vec<String> = warnings.chain(waits).chain(asks).collect();
    if !warnings.is_empty() {
        page.section(&warnings.join("\n"));
    }
    let journeys = journey::journeys(forecast);
    if !journeys.is_empty() {
        let stages: Vec<String> = journeys
            .iter()
            .map(|journey| {
                let title = escaped(&journey.title(forecast));
                row(&[code(&journey.stage.to_string()), title, journey.counts()])
            })
            .collect();
        page.section(&format!("| stage | change | units |\n| --- | --- | --- |\n{}", stages.join("\n")));
    }
    let rooms: Vec<String> = forecast
        .fleets
        .iter()
        .filter(|(_, room)| room.free_before != room.free_least || room.free_before != room.free_after)
        .map(|(fleet, room)| {
            let numbers = [room.free_before, room.free_least, room.free_after, room.total];
            let cells = [code(fleet.as_str()), room.of.clone()].into_iter();
            row(&cells.chain(numbers.iter().map(ToString::to_string)).collect::<Vec<_>>())
        })
        .collect();
    if !rooms.is_empty() {
        let head =
            "| fleet | of | free now | at least | after | total |\n| --- | --- | ---: | ---: | ---: | ---: |";
        page.section(&format!("{head}\n{}", rooms.join("\n")));
    }
    let costs: Vec<String> = forecast.cost.iter().map(|cost| format!("- {}", super::cost(cost))).collect();
    if !costs.is_empty() {
        page.section(&costs.join("\n"));
    }
    differences(&mut page, &preview.diff);
    for journey in journeys.iter().filter(|journey| !journey.batches.is_empty()) {
        let steps: Vec<String> = journey
            .batches
            .iter()
            .flat_map(|(batch, moves)| {
                let batch = batch.map_or(String::new(), |batch| batch.to_string());
                moves
                    .iter()
                    .map(move |step| row(&[batch.clone(), length(step.after), escaped(&journey::line(step))]))
            })
            .collect();
        let head = "| batch | after | step |\n| ---: | ---: | --- |\n";
        page.folded(&format!("steps of {}", journey.stage), head, &steps);
    }
    page.finish()
}
