//! What hosts are to have before a deployment moves anything: whatever the new units are started from.

use std::collections::BTreeSet;

use denv_schema::Name;
use denv_schema::diagnostic::counted;
use denv_schema::wire::{Ability, Artifact, ArtifactState, FetchedBytes};
use jiff::SignedDuration;

use super::Stage;
use crate::pass::Pass;
use crate::records::Deployment;
use crate::waiting::{NotPrepared, WaitingOn};
use crate::world::HostObserved;

/// Hosts try again what they failed at. A failure that is older than the deployment may just have been mended.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(12);

/// Why nothing may move yet.
pub(super) enum Unprepared {
    Waiting(WaitingOn),
    /// No host can prepare it, so it is not for the hosts to mend.
    Failed(String),
}

impl Stage<'_> {
    /// Has these hosts prepare the release, and says whether all have.
    pub(super) fn prefetch(
        &self,
        pass: &mut Pass<'_>,
        deployment: &Deployment,
        hosts: &BTreeSet<Name>,
    ) -> Result<(), Unprepared> {
        let wanted: Vec<Artifact> = deployment.template.artifacts().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (mut asked, mut ready, mut lasting) = (0u32, 0, 0);
        let mut failures: Vec<(&Name, String)> = Vec::new();
        // The one that is furthest behind is shown.
        let mut preparing: Option<(u8, &Name, Option<FetchedBytes>)> = None;
        for name in hosts {
            // One whose denvd prepares nothing ahead does so when it starts the engine.
            let prefetches =
                |host: &&HostObserved| host.report.inventory.abilities.contains(&Ability::Prefetch);
            let Some(host) = pass.world.host(name).filter(prefetches) else { continue };
            ask(pass, name, &wanted);
            asked += 1;
            match progress(host, &wanted) {
                ArtifactState::Ready => ready += 1,
                ArtifactState::Failed { reason, passing } => {
                    lasting += u32::from(!passing);
                    failures.push((name, reason));
                }
                ArtifactState::Preparing => {
                    let fetched = fetched(host, &wanted);
                    let percent = fetched.map_or(0, FetchedBytes::percent);
                    if preparing.is_none_or(|(least, ..)| percent < least) {
                        preparing = Some((percent, name, fetched));
                    }
                }
            }
        }
        let (host, reason, fetched) = match (failures.first(), preparing) {
            (Some((host, reason)), _) => {
                let sure = deployment.since + TRIED_AGAIN;
                if lasting == asked && sure <= pass.world.now {
                    let of = counted(asked as usize, "host");
                    return Err(Unprepared::Failed(format!(
                        "none of {of} can prepare it: `{host}`: {reason}"
                    )));
                }
                pass.wake(sure);
                (*host, Some(reason.clone()), None)
            }
            (None, Some((_, host, fetched))) => (host, None, fetched),
            (None, None) => return Ok(()),
        };
        let (release, host) = (deployment.to.clone(), host.clone());
        let not_prepared = NotPrepared { release, ready, of: asked, host, reason, fetched };
        Err(Unprepared::Waiting(WaitingOn::Prefetch(not_prepared)))
    }

    /// While there is no room, for now perhaps, hosts that are at it go on.
    pub(super) fn keep_prefetching(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        let wanted: Vec<Artifact> = deployment.template.artifacts().collect();
        let is_at_it = |host: &HostObserved| {
            host.connected && host.report.artifacts.iter().any(|report| wanted.contains(&report.artifact))
        };
        let hosts = pass.world.observed.hosts.iter().filter(|(_, host)| is_at_it(host));
        for name in hosts.map(|(name, _)| name).collect::<Vec<_>>() {
            ask(pass, name, &wanted);
        }
    }
}

/// Others may have asked for the same.
fn ask(pass: &mut Pass<'_>, host: &Name, wanted: &[Artifact]) {
    let list = pass.plan.prefetch.entry(host.clone()).or_default();
    let new: Vec<Artifact> = wanted.iter().filter(|it| !list.contains(it)).cloned().collect();
    list.extend(new);
}

/// How much a host has fetched of what it fetches.
fn fetched(host: &HostObserved, wanted: &[Artifact]) -> Option<FetchedBytes> {
    let mut reports = host.report.artifacts.iter().filter(|report| wanted.contains(&report.artifact));
    reports.find_map(|report| report.fetched)
}

/// How far a host is with all of it.
pub(crate) fn progress(host: &HostObserved, wanted: &[Artifact]) -> ArtifactState {
    let state = |artifact: &Artifact| {
        let report = host.report.artifacts.iter().find(|report| report.artifact == *artifact);
        report.map_or(&ArtifactState::Preparing, |report| &report.state)
    };
    let failed = wanted.iter().map(state).find(|state| matches!(state, ArtifactState::Failed { .. }));
    let ready = || wanted.iter().all(|artifact| *state(artifact) == ArtifactState::Ready);
    match failed {
        Some(failed) => failed.clone(),
        None if ready() => ArtifactState::Ready,
        None => ArtifactState::Preparing,
    }
}
