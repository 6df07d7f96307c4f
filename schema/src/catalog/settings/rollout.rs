//! Rollouts: batches that grow to all, budgets that allow what the strategy does, times that come.

use jiff::tz::TimeZoneDatabase;

use super::{Report, listed_once};
use crate::catalog::Catalog;
use crate::diagnostic::nearest;
use crate::manifest::{Rollout, StageFleet, StageSpec, Strategy};
use crate::quantity::Amount;

pub(super) fn rollout(spec: &StageSpec, catalog: &Catalog, report: &mut Report<'_>) {
    batches(spec, report);
    deadlines(spec, catalog, report);
    times(&spec.rollout, report);
}

fn batches(spec: &StageSpec, report: &mut Report<'_>) {
    let total = spec.fleets.iter().fold(0u32, |sum, fleet| sum.saturating_add(fleet.units.min));
    let rollout = &spec.rollout;
    let most = |fleet: &StageFleet| fleet.units.max.unwrap_or(fleet.units.min);
    let most = spec.fleets.iter().fold(0u32, |sum, fleet| sum.saturating_add(most(fleet)));
    let too_large = |batch: &Amount| matches!(batch, Amount::Count(count) if *count > most);
    if let Some(i) = rollout.batches.iter().position(too_large).filter(|_| most > 0) {
        let batch = rollout.batches[i];
        let message = format!("batch {} is {batch} units, and the stage has {most} at most", i + 1);
        let hint = "write fewer, a share such as `25%`, or `100%` for all";
        report.contradict(&format!("/spec/rollout/batches/{i}"), message, Some(hint));
        return;
    }
    // Shares are compared where they differ: at a hundred units, and at what this stage has.
    for among in [100, total] {
        let sizes: Vec<u32> = rollout.batches.iter().map(|batch| batch.of(among)).collect();
        if let Some(i) = (1..sizes.len()).find(|i| sizes[*i] < sizes[*i - 1]) {
            let message = format!("batch {} is smaller than the one before it", i + 1);
            report.contradict(
                &format!("/spec/rollout/batches/{i}"),
                message,
                Some("batches are totals: write them ascending"),
            );
            return;
        }
    }
    if rollout.batches.last().is_some_and(|last| last.of(total) < total) {
        let message = format!("the last batch leaves units on the old release: the stage has {total}");
        report.contradict("/spec/rollout/batches", message, Some("end the batches with `100%`"));
    }
    if rollout.strategy == Strategy::Replace
        && total > 0
        && rollout.max_unavailable.of_rounded_down(total) == 0
    {
        let message = format!(
            "`replace` stops a unit first, and `maxUnavailable: {}` allows none",
            rollout.max_unavailable
        );
        report.contradict(
            "/spec/rollout/maxUnavailable",
            message,
            Some("allow at least 1, or use `strategy: surge`"),
        );
    }
}

fn deadlines(spec: &StageSpec, catalog: &Catalog, report: &mut Report<'_>) {
    let release = catalog.releases.get(&spec.release);
    let Some(recipe) = release.and_then(|release| catalog.recipes.get(&release.recipe)) else { return };
    if let Some(batch) = spec.rollout.deadlines.batch
        && batch < recipe.start_timeout
    {
        let message =
            format!("a batch may take {batch}, and the start of one unit alone {}", recipe.start_timeout);
        let hint = "raise it, or lower the recipe's `startTimeout`";
        report.contradict("/spec/rollout/deadlines/batch", message, Some(hint));
    }
}

fn times(rollout: &Rollout, report: &mut Report<'_>) {
    for (i, window) in rollout.windows.iter().enumerate() {
        let pointer = format!("/spec/rollout/windows/{i}");
        listed_once(&format!("{pointer}/days"), &window.days, "day", report);
        if window.from == window.to {
            let message = format!("the window opens and closes at {}", window.from);
            let hint = "for whole days, leave the window out or write `from: \"00:00\"` and `to: \"23:59\"`";
            report.contradict(&format!("{pointer}/to"), message, Some(hint));
        }
        // The bundled one: what is valid does not depend on the machine.
        let zones = TimeZoneDatabase::bundled();
        if zones.get(&window.time_zone).is_err() {
            let names: Vec<String> = zones.available().map(|name| name.to_string()).collect();
            let hint = nearest(&window.time_zone, names.iter().map(String::as_str));
            let message = format!("there is no time zone `{}`", window.time_zone);
            let hint = hint.unwrap_or_else(|| "write it like `Europe/Berlin` or `UTC`".to_owned());
            report.contradict(&format!("{pointer}/timeZone"), message, Some(&hint));
        }
    }
    for (i, freeze) in rollout.freezes.iter().enumerate() {
        if freeze.until <= freeze.from {
            let message = "the freeze ends before it begins".to_owned();
            report.contradict(&format!("/spec/rollout/freezes/{i}/until"), message, None);
        }
    }
}
