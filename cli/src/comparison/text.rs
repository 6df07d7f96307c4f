//! For a terminal.

use std::fmt::Write as _;

use denv_schema::diff::{Change, Diff, ManifestChange};
use owo_colors::OwoColorize as _;

use super::journey::{self, Journey};
use super::{consequences, headline, length, mark, values};
use crate::plan::Preview;
use crate::table::{self, Cell};
use crate::text::printable;

pub(crate) fn diff(from: &str, to: &str, diff: &Diff) -> String {
    let mut text = format!("{} {}\n{} {}\n\n", "---".red(), printable(from), "+++".green(), printable(to));
    for change in &diff.changes {
        text.push_str(&manifest(change, true));
    }
    text.push_str(&conclusion(diff));
    text
}

/// The same, without what changed in each manifest.
fn outline(from: &str, to: &str, diff: &Diff) -> String {
    let mut text = format!("{} {}\n{} {}\n\n", "---".red(), printable(from), "+++".green(), printable(to));
    for change in &diff.changes {
        text.push_str(manifest(change, false).trim_end());
        text.push('\n');
    }
    if !diff.is_empty() {
        text.push('\n');
    }
    text.push_str(&conclusion(diff));
    text
}

fn conclusion(diff: &Diff) -> String {
    let headline = headline(diff);
    let mut text = format!("{}\n", headline.bold());
    for line in consequences(diff) {
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn manifest(change: &ManifestChange, with_fields: bool) -> String {
    let title = format!("{} {} {}", mark(change.change), change.kind, change.name);
    let title = match change.change {
        Change::Added => title.green().to_string(),
        Change::Removed => title.red().to_string(),
        Change::Changed => title.yellow().to_string(),
    };
    let place = format!("{}:{}", change.file, change.line);
    let mut text = format!("{}  {}\n", title.bold(), place.dimmed());
    // What goes is known by its name.
    if with_fields && change.change != Change::Removed {
        let width = change.fields.iter().map(|field| field.field.chars().count()).max().unwrap_or(0).min(48);
        for field in &change.fields {
            let line = if field.line == 0 { String::new() } else { format!(":{}", field.line) };
            let padding = " ".repeat(width.saturating_sub(field.field.chars().count()));
            let (name, values) = (printable(&field.field), values(field));
            let _ = writeln!(text, "    {name}{padding}  {values}  {}", line.dimmed());
        }
    }
    for effect in &change.effects {
        let _ = writeln!(text, "  {} {effect}", "=>".cyan());
    }
    text.push('\n');
    text
}

pub(crate) fn preview(preview: &Preview) -> String {
    let mut text = outline(&preview.from, &preview.to, &preview.diff);
    for journey in journey::journeys(&preview.forecast) {
        text.push('\n');
        text.push_str(&stage(preview, &journey));
    }
    text.push('\n');
    text.push_str(&rooms(preview));
    for cost in &preview.forecast.cost {
        let _ = writeln!(text, "{}", super::cost(cost));
    }
    for stage in &preview.forecast.approvals {
        let _ = writeln!(text, "{} {stage} waits for a person's approval first", "asks:".yellow().bold());
    }
    for violation in &preview.forecast.violations {
        let _ = writeln!(text, "{} denv would stop this plan: {violation}", "fault:".red().bold());
    }
    for wait in &preview.forecast.waiting {
        let (subject, on) = (printable(&wait.subject), printable(&wait.on));
        let _ = writeln!(text, "{} {subject}, after {}: {on}", "waits:".yellow().bold(), length(wait.since));
    }
    let _ = writeln!(text, "{}", journey::headline(preview).bold());
    text
}

fn stage(preview: &Preview, journey: &Journey<'_>) -> String {
    let title = printable(&journey.title(&preview.forecast));
    let mut text = format!("{} {title}\n", format!("{}:", journey.stage).bold());
    for (batch, moves) in &journey.batches {
        let name = batch.map_or("  beside".to_owned(), |batch| format!("  batch {batch}"));
        let _ = writeln!(text, "{}", name.cyan());
        for step in moves {
            let after = format!("+{}", length(step.after));
            let _ = writeln!(text, "    {after:>9}  {}", printable(&journey::line(step)));
        }
    }
    text
}

fn rooms(preview: &Preview) -> String {
    let head = ["FLEET", "OF", "TOTAL", "FREE NOW", "AT LEAST", "AFTER"].map(str::to_owned).to_vec();
    let row = |(fleet, room): (&denv_schema::Name, &denv_planner::forecast::Room)| {
        let numbers = [room.total, room.free_before, room.free_least, room.free_after];
        let words = [Cell::plain(fleet), Cell::plain(&room.of)];
        words.into_iter().chain(numbers.into_iter().map(Cell::number)).collect()
    };
    let rows: Vec<_> = preview.forecast.fleets.iter().map(row).collect();
    if rows.is_empty() { String::new() } else { format!("{}\n", table::lines(head, rows)) }
}
