//! How differences and forecasts are shown: as text in a terminal, as Markdown in a pull request. Pure.

mod journey;
pub(crate) mod markdown;
mod page;
pub(crate) mod text;

use denv_planner::forecast::HourlyCost;
use denv_schema::diff::{Change, Diff, FieldChange};
use serde_json::Value;

use crate::text::{brief, counted};

/// `2 manifests differ (1 added, 1 changed)`.
fn headline(diff: &Diff) -> String {
    let count = |wanted: Change| diff.changes.iter().filter(|change| change.change == wanted).count();
    let parts = [(Change::Added, "added"), (Change::Changed, "changed"), (Change::Removed, "removed")];
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(change, word)| (count(change), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    match diff.changes.len() {
        0 => "no difference".to_owned(),
        all => format!("{} ({})", counted(all, "manifest"), parts.join(", ")),
    }
}

/// What all changes do together, disturbing ones first; only those, where there are some.
fn consequences(diff: &Diff) -> Vec<String> {
    let effects = diff.effects();
    let moving: Vec<_> = effects.iter().filter(|effect| effect.moves_units()).collect();
    match (moving.is_empty(), effects.is_empty()) {
        (_, true) => Vec::new(),
        (true, false) => vec!["moves no unit".to_owned()],
        (false, false) => moving.into_iter().map(ToString::to_string).collect(),
    }
}

fn mark(change: Change) -> &'static str {
    match change {
        Change::Added => "+",
        Change::Removed => "-",
        Change::Changed => "~",
    }
}

/// `3s → 4s`, or that it changed where the values may be secrets.
fn values(field: &FieldChange) -> String {
    const MOST: usize = 80;
    let value = |value: &Value| match value {
        Value::String(text) => brief(text, MOST),
        other => brief(&other.to_string(), MOST),
    };
    if field.hidden {
        return "changed; the value may be a secret and is not shown".to_owned();
    }
    match (&field.before, &field.after) {
        (Some(before), Some(after)) => format!("{} → {}", value(before), value(after)),
        (None, Some(after)) => value(after),
        (Some(before), None) => format!("{} → (not set)", value(before)),
        (None, None) => "changed".to_owned(),
    }
}

/// `12.5 USD an hour, then 14 USD (16 USD on the way)`.
fn cost(cost: &HourlyCost) -> String {
    let HourlyCost { currency, before, most, after } = cost;
    let on_the_way = if most == before || most == after {
        String::new()
    } else {
        format!(" ({most} {currency} on the way)")
    };
    match before == after {
        true => format!("costs {before} {currency} an hour, as before{on_the_way}"),
        false => format!("costs {before} {currency} an hour now, {after} {currency} after{on_the_way}"),
    }
}

/// A length of time as people say it: `45 s`, `12 min`, `1 h 20 min`.
fn length(seconds: u64) -> String {
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5_399 => format!("{} min", seconds.div_ceil(60)),
        172_800.. => {
            let hours = seconds.div_ceil(3_600);
            match hours % 24 {
                0 => format!("{} d", hours / 24),
                rest => format!("{} d {rest} h", hours / 24),
            }
        }
        _ => {
            let minutes = seconds.div_ceil(60);
            match minutes % 60 {
                0 => format!("{} h", minutes / 60),
                rest => format!("{} h {rest} min", minutes / 60),
            }
        }
    }
}

#[cfg(test)]
mod tests;
