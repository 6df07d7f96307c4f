//! A forecast in words: which stages change, in which batches, and what that takes.

use std::collections::BTreeMap;

use denv_planner::Part;
use denv_planner::forecast::{Does, Forecast, MemberPlace, Move};
use denv_schema::StageId;

use super::length;
use crate::plan::Preview;
use crate::text::counted;

/// The moves of one stage, by batch.
pub(super) struct Journey<'a> {
    pub(super) stage: &'a StageId,
    pub(super) batches: Vec<Batch<'a>>,
}

/// Moves that belong to a batch, or to none.
type Batch<'a> = (Option<u32>, Vec<&'a Move>);

pub(super) fn journeys(forecast: &Forecast) -> Vec<Journey<'_>> {
    let mut stages: BTreeMap<&StageId, Vec<Batch<'_>>> =
        forecast.stages.keys().map(|stage| (stage, Vec::new())).collect();
    for step in forecast.moves.iter().filter(|step| !matches!(step.does, Does::Phase { .. })) {
        let batches = stages.entry(&step.stage).or_default();
        match batches.last_mut().filter(|(batch, _)| *batch == step.batch) {
            Some((_, moves)) => moves.push(step),
            None => batches.push((step.batch, vec![step])),
        }
    }
    stages.into_iter().map(|(stage, batches)| Journey { stage, batches }).collect()
}

impl Journey<'_> {
    /// `starts 2, drains 2`.
    pub(super) fn counts(&self) -> String {
        let moves = || self.batches.iter().flat_map(|(_, moves)| moves);
        let count = |wanted: fn(&Does) -> bool| moves().filter(|step| wanted(&step.does)).count();
        let parts = [
            ("starts", count(|does| matches!(does, Does::Start { .. }))),
            ("restarts", count(|does| matches!(does, Does::Restart { .. }))),
            ("drains", count(|does| matches!(does, Does::Drain { .. }))),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(verb, count)| format!("{verb} {}", counted(count, "unit")))
            .collect();
        if parts.is_empty() { "moves no unit".to_owned() } else { parts.join(", ") }
    }

    /// `smollm2-r1 → r2 (succeeds after 5 min)`.
    pub(super) fn title(&self, forecast: &Forecast) -> String {
        let Some(stage) = forecast.stages.get(self.stage) else { return "keeps its release".to_owned() };
        let from = stage.from.as_ref().filter(|from| **from != stage.to);
        let change = from.map_or_else(|| stage.to.to_string(), |from| format!("{from} → {}", stage.to));
        match stage.seconds {
            Some(seconds) if stage.succeeds => format!("{change} (succeeds after {})", length(seconds)),
            Some(seconds) => format!("{change} (ends {} after {})", stage.phase, length(seconds)),
            None => format!("{change} (does not come to its end: {})", stage.phase),
        }
    }
}

/// One move as a line, without its time.
pub(super) fn line(step: &Move) -> String {
    match &step.does {
        Does::Start { unit, release, fleet, members, .. } => {
            format!("start {unit} ({release}) on {} of {fleet}", places(members))
        }
        Does::Restart { unit, reason } => format!("restart {unit}: {reason}"),
        Does::Ready { unit } => format!("{unit} is ready"),
        Does::Drain { unit, host, reason } => format!("drain {unit} on {host}: {reason}"),
        Does::Stop { unit, host } => format!("stop {unit} on {host}"),
        Does::Phase { phase } => phase.clone(),
        Does::Hold { release, reason } => format!("hold, and not try {release} again: {reason}"),
        Does::Test { suite, asked, part: Part::Reference } => {
            format!("put parity suite {suite} to its reference, {asked}")
        }
        Does::Test { suite, asked, .. } => format!("put parity suite {suite} to {asked} (assumed to pass)"),
        Does::Wait { on } => format!("waits: {on}"),
    }
}

/// `host-1, GPUs 0-7`; of several members `r1-h01 and 15 more, 64 GPUs (decode)`, pool by pool.
fn places(members: &[MemberPlace]) -> String {
    if let [only] = members {
        let takes = match (only.gpus.as_slice(), only.cpu_slots) {
            ([], slots) => counted(slots as usize, "CPU slot"),
            ([gpu], _) => format!("GPU {gpu}"),
            (gpus, _) => format!("{} GPUs: {}", gpus.len(), ranges(gpus)),
        };
        return format!("{} with {takes}", only.host);
    }
    let of_pool = |members: &[MemberPlace]| {
        let gpus: usize = members.iter().map(|member| member.gpus.len()).sum();
        let first = &members[0];
        match members.len() {
            1 => format!("{} with {gpus} GPUs ({})", first.host, first.pool),
            count => format!("{} and {} more with {gpus} GPUs ({})", first.host, count - 1, first.pool),
        }
    };
    members.chunk_by(|a, b| a.pool == b.pool).map(of_pool).collect::<Vec<_>>().join(", ")
}

/// `0-7`, `0,2-3`.
fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let part = |(start, end): &(u32, u32)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// `about 5 min; 14 min at the slowest`.
pub(super) fn duration(preview: &Preview) -> Option<String> {
    let expected = preview.forecast.seconds.filter(|seconds| *seconds > 0)?;
    Some(match preview.slowest_seconds {
        Some(slowest) if slowest > expected => {
            format!("about {}; {} at the slowest", length(expected), length(slowest))
        }
        _ => format!("about {}", length(expected)),
    })
}

/// The whole in a few words.
pub(super) fn headline(preview: &Preview) -> String {
    let journeys = journeys(&preview.forecast);
    let moving = journeys.iter().filter(|journey| !journey.batches.is_empty()).count();
    if !preview.forecast.violations.is_empty() {
        "the plan would break an invariant; denv would stop it".to_owned()
    } else if !preview.forecast.waiting.is_empty() {
        let waiting = preview.forecast.waiting.len();
        format!("{} would not go through", counted(waiting, "thing"))
    } else if moving == 0 && preview.diff.is_empty() {
        "nothing to do".to_owned()
    } else if moving == 0 {
        "moves no unit".to_owned()
    } else {
        let units = journeys.iter().map(Journey::counts).collect::<Vec<_>>();
        let what = if units.len() == 1 { units[0].clone() } else { format!("changes {moving} stages") };
        duration(preview).map_or(what.clone(), |duration| format!("{what}, {duration}"))
    }
}
