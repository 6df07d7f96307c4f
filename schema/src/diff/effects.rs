//! What a change does to what runs. A change of a manifest is traced to the stages that it reaches.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, ManifestChange};
use crate::diagnostic::counted;
use crate::manifest::{Kind, StageFleet, StageSpec};
use crate::{Catalog, Name, StageId};

/// What a change does, from what disturbs most to what disturbs nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "does", rename_all = "kebab-case")]
pub enum Effect {
    /// The stage goes away, with all its units.
    RemoveStage {
        stage: StageId,
        units: u32,
    },
    /// Units are replaced by units of another launch spec, as the stage's rollout says.
    RestartUnits {
        stage: StageId,
        units: u32,
        from: Name,
        to: Name,
    },
    /// Units leave one fleet for another.
    MoveUnits {
        stage: StageId,
        units: u32,
        from: Name,
        to: Name,
    },
    StopUnits {
        stage: StageId,
        fleet: Name,
        units: u32,
    },
    StartUnits {
        stage: StageId,
        fleet: Name,
        units: u32,
    },
    /// Whatever runs there is drained and replaced elsewhere.
    LeaveHost {
        host: Name,
    },
    /// What may be placed, or what there is to place on; what runs stays.
    Capacity {
        subject: String,
    },
    /// The release has another name and means the same: nothing restarts.
    RenameRelease {
        stage: StageId,
        to: Name,
    },
    /// Gateways send requests another way, at once; no unit moves.
    ReRoute {
        subject: String,
    },
    /// Who may ask for what, and how much, is other at the gateways, at once; no unit moves.
    Admission {
        subject: String,
    },
    /// What tokens cost is other, from now on; no unit moves.
    RePrice {
        subject: String,
    },
    /// How changes are made and watched is other from the next one on; no unit moves.
    LaterChanges {
        subject: String,
    },
    /// Who may change what, or who is told of changes, is other; no unit moves.
    Operations {
        subject: String,
    },
    /// Nothing that runs has to do with it.
    Nothing {},
}

impl Effect {
    /// The stage whose deployment or units it is about, where it is about one.
    pub fn stage(&self) -> Option<&StageId> {
        match self {
            Effect::RemoveStage { stage, .. }
            | Effect::RestartUnits { stage, .. }
            | Effect::MoveUnits { stage, .. }
            | Effect::StopUnits { stage, .. }
            | Effect::StartUnits { stage, .. }
            | Effect::RenameRelease { stage, .. } => Some(stage),
            _ => None,
        }
    }

    /// Whether units start, stop or move because of it.
    pub fn moves_units(&self) -> bool {
        matches!(
            self,
            Effect::RemoveStage { .. }
                | Effect::RestartUnits { .. }
                | Effect::MoveUnits { .. }
                | Effect::StopUnits { .. }
                | Effect::StartUnits { .. }
                | Effect::LeaveHost { .. }
        )
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = |count: u32| counted(count as usize, "unit");
        match self {
            Effect::RemoveStage { stage, units: count } => {
                write!(f, "removes stage {stage} with its {}", units(*count))
            }
            Effect::RestartUnits { stage, units: count, from, to } if from == to => {
                write!(f, "restarts {} of {stage}, since `{to}` means something else", units(*count))
            }
            Effect::RestartUnits { stage, units: count, from, to } => {
                write!(f, "restarts {} of {stage}: `{from}` to `{to}`", units(*count))
            }
            Effect::MoveUnits { stage, units: count, from, to } => {
                write!(f, "moves {} of {stage} from fleet `{from}` to `{to}`", units(*count))
            }
            Effect::StopUnits { stage, fleet, units: count } => {
                write!(f, "stops {} of {stage} on fleet `{fleet}`", units(*count))
            }
            Effect::StartUnits { stage, fleet, units: count } => {
                write!(f, "starts {} of {stage} on fleet `{fleet}`", units(*count))
            }
            Effect::LeaveHost { host } => write!(f, "moves what runs on host `{host}`"),
            Effect::Capacity { subject } => {
                write!(f, "changes what may be placed: {subject}; what runs stays")
            }
            Effect::RenameRelease { stage, to } => {
                write!(f, "calls what {stage} runs `{to}`, which means the same; nothing restarts")
            }
            Effect::ReRoute { subject } => write!(f, "only re-routes: {subject}"),
            Effect::Admission { subject } => write!(f, "only changes who may ask: {subject}"),
            Effect::RePrice { subject } => write!(f, "only re-prices: {subject}"),
            Effect::LaterChanges { subject } => write!(f, "only changes later rollouts: {subject}"),
            Effect::Operations { subject } => write!(f, "only changes operations: {subject}"),
            Effect::Nothing {} => f.write_str("changes nothing that runs"),
        }
    }
}

pub(super) fn effects(change: &ManifestChange, before: &Catalog, after: &Catalog) -> Vec<Effect> {
    let subject = || format!("{} `{}`", change.kind, change.name);
    let mut effects = match change.kind {
        Kind::Stage => of_stage(&change.name, before, after),
        Kind::Release | Kind::Recipe | Kind::Engine => of_software(before, after),
        Kind::Host => of_host(change, before, after),
        Kind::Provider | Kind::Fleet | Kind::WeightCache => vec![Effect::Capacity { subject: subject() }],
        Kind::Environment | Kind::ParitySuite | Kind::Alarm => {
            vec![Effect::LaterChanges { subject: subject() }]
        }
        Kind::Endpoint => vec![Effect::ReRoute { subject: subject() }],
        Kind::Customer | Kind::Key => vec![Effect::Admission { subject: subject() }],
        Kind::PriceList => vec![Effect::RePrice { subject: subject() }],
        Kind::Access | Kind::Webhook => vec![Effect::Operations { subject: subject() }],
    };
    // Labels and annotations are people's own.
    let only_words = change.change == Change::Changed
        && change.fields.iter().all(|field| field.field.starts_with("metadata."));
    if effects.is_empty() || only_words {
        effects = vec![Effect::Nothing {}];
    }
    effects.sort();
    effects.dedup();
    effects
}

fn units(stage: &StageSpec) -> BTreeMap<&Name, u32> {
    stage.fleets.iter().map(|fleet| (&fleet.name, fleet.units.min)).collect()
}

fn of_stage(name: &str, before: &Catalog, after: &Catalog) -> Vec<Effect> {
    let Ok(id) = name.parse::<StageId>() else { return Vec::new() };
    match (before.stages.get(&id), after.stages.get(&id)) {
        (None, None) => Vec::new(),
        (Some(was), None) => {
            vec![Effect::RemoveStage { stage: id, units: units(was).values().sum() }]
        }
        (None, Some(is)) => {
            let start = |(fleet, units): (&Name, u32)| Effect::StartUnits {
                stage: id.clone(),
                fleet: fleet.clone(),
                units,
            };
            units(is).into_iter().filter(|(_, units)| *units > 0).map(start).collect()
        }
        (Some(was), Some(is)) => of_changed_stage(&id, (was, before), (is, after)),
    }
}

fn of_changed_stage(
    id: &StageId,
    (was, before): (&StageSpec, &Catalog),
    (is, after): (&StageSpec, &Catalog),
) -> Vec<Effect> {
    let mut effects = shifts(id, &units(was), &units(is));
    if was.release != is.release {
        let restart = restart(id, (was, before), (is, after));
        let rename = || Effect::RenameRelease { stage: id.clone(), to: is.release.clone() };
        effects.push(restart.unwrap_or_else(rename));
    }
    let weights = |stage: &StageSpec| -> BTreeMap<Name, (u32, Option<u32>)> {
        stage.fleets.iter().map(|fleet| (fleet.name.clone(), (fleet.priority, fleet.weight))).collect()
    };
    if was.routing != is.routing || was.residency != is.residency || weights(was) != weights(is) {
        effects.push(Effect::ReRoute { subject: format!("stage {id}") });
    }
    let bounds = |stage: &StageSpec| -> BTreeMap<Name, (u32, u32)> {
        let bounds = |fleet: &StageFleet| (fleet.name.clone(), (fleet.units.most(), fleet.priority));
        stage.fleets.iter().map(bounds).collect()
    };
    // Where the least is other, units come or go, and that says it all.
    if units(was) == units(is) && bounds(was) != bounds(is) {
        effects.push(Effect::Capacity { subject: format!("stage {id}") });
    }
    let watched = was.parity != is.parity || was.alarms != is.alarms;
    if was.rollout != is.rollout || was.lost_after != is.lost_after || watched {
        effects.push(Effect::LaterChanges { subject: format!("stage {id}") });
    }
    effects
}

/// Fewer units here and more there are the same units, moved.
fn shifts(id: &StageId, was: &BTreeMap<&Name, u32>, is: &BTreeMap<&Name, u32>) -> Vec<Effect> {
    let count = |among: &BTreeMap<&Name, u32>, name: &Name| among.get(name).copied().unwrap_or(0);
    let mut fewer: Vec<(&Name, u32)> = Vec::new();
    for (name, units) in was {
        let less = units.saturating_sub(count(is, name));
        fewer.extend((less > 0).then_some((*name, less)));
    }
    let mut effects = Vec::new();
    for (name, units) in is {
        let mut more = units.saturating_sub(count(was, name));
        for (from, less) in &mut fewer {
            let moved = more.min(*less);
            if moved > 0 {
                let (from, to) = ((*from).clone(), (*name).clone());
                effects.push(Effect::MoveUnits { stage: id.clone(), units: moved, from, to });
            }
            (more, *less) = (more - moved, *less - moved);
        }
        if more > 0 {
            effects.push(Effect::StartUnits { stage: id.clone(), fleet: (*name).clone(), units: more });
        }
    }
    let stopped = fewer.into_iter().filter(|(_, less)| *less > 0);
    effects.extend(stopped.map(|(fleet, units)| Effect::StopUnits {
        stage: id.clone(),
        fleet: fleet.clone(),
        units,
    }));
    effects
}

/// The stage's units are started anew, if what it runs means something else than before.
fn restart(
    id: &StageId,
    (was, before): (&StageSpec, &Catalog),
    (is, after): (&StageSpec, &Catalog),
) -> Option<Effect> {
    let digest = |catalog: &Catalog, stage: &StageSpec| {
        catalog.rendered.get(&stage.release).map(|rendered| rendered.digest)
    };
    let (old, new) = (units(was), units(is));
    let stay = old.iter().map(|(name, count)| (*count).min(new.get(name).copied().unwrap_or(0))).sum();
    (digest(before, was) != digest(after, is)).then(|| Effect::RestartUnits {
        stage: id.clone(),
        units: stay,
        from: was.release.clone(),
        to: is.release.clone(),
    })
}

/// A release, recipe or engine that reads otherwise restarts what runs it; a stage that moves to another release is its
/// own change.
fn of_software(before: &Catalog, after: &Catalog) -> Vec<Effect> {
    let both = after.stages.iter().filter_map(|(id, is)| Some((id, before.stages.get(id)?, is)));
    both.filter(|(_, was, is)| was.release == is.release)
        .filter_map(|(id, was, is)| restart(id, (was, before), (is, after)))
        .collect()
}

fn of_host(change: &ManifestChange, before: &Catalog, after: &Catalog) -> Vec<Effect> {
    let host = before.hosts.iter().chain(&after.hosts).find(|(name, _)| name.as_str() == change.name);
    let Some((name, _)) = host else { return Vec::new() };
    match (before.hosts.get(name), after.hosts.get(name)) {
        (Some(was), Some(is)) if was.fleet == is.fleet => {
            vec![Effect::Capacity { subject: format!("host `{name}`") }]
        }
        (None, _) => vec![Effect::Capacity { subject: format!("host `{name}`") }],
        (Some(_), _) => vec![Effect::LeaveHost { host: name.clone() }],
    }
}
