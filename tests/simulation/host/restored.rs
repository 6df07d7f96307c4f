//! A host as somebody else's control plane last heard of it: its journal and what runs there, such that it reports the
//! same again.

use std::collections::BTreeMap;

use denv_agent::journal::{Desired, Entry, Facts};
use denv_schema::MemberId;
use denv_schema::launch::LaunchSpec;
use denv_schema::wire::{Action, Command, HostReport, MemberReport, MemberState};
use jiff::Timestamp;

use super::{Engine, Host, release};

/// Older than any engine is that does not serve yet.
const SERVING: u32 = 60;

impl Host {
    /// `specs` are those of the members that are on record. What else it reports runs something of which nothing is
    /// known, and takes no accelerators here.
    pub fn restore(&mut self, report: &HostReport, specs: &BTreeMap<&MemberId, &LaunchSpec>, now: Timestamp) {
        self.reclaim = report.reclaim;
        for (id, reported) in &report.members {
            self.restore_member(id, reported, specs.get(id).copied(), specs.values().next().copied());
        }
        self.resume(now);
        for (id, reported) in &report.members {
            let starts = matches!(reported.state, MemberState::Preparing | MemberState::Starting);
            if let Some(spec) = specs.get(id).filter(|_| starts) {
                let start = Action::Start((*spec).clone());
                self.take_up(Command::new(0, id.clone(), reported.generation, start), now);
            }
            *self.starts.entry((id.clone(), reported.generation)).or_default() = 1;
            if let Some(member) = self.members.get_mut(id) {
                (member.digest, member.since) = (reported.spec, reported.since);
            }
        }
        // Whoever asked for these has its answers.
        self.answers.clear();
    }

    fn restore_member(
        &mut self,
        id: &MemberId,
        reported: &MemberReport,
        known: Option<&LaunchSpec>,
        any: Option<&LaunchSpec>,
    ) {
        let stopped = matches!(reported.state, MemberState::Stopping | MemberState::Stopped);
        let runs = match reported.state {
            MemberState::Healthy | MemberState::Stopping => Some(SERVING),
            MemberState::Unhealthy => Some(0),
            MemberState::Preparing | MemberState::Starting if known.is_none() => Some(0),
            MemberState::Preparing | MemberState::Starting | MemberState::Failed | MemberState::Stopped => {
                None
            }
        };
        let starts = matches!(reported.state, MemberState::Preparing | MemberState::Starting);
        if starts && known.is_some() {
            return;
        }
        let spec = known.or(any).filter(|_| reported.state != MemberState::Stopped);
        let was_healthy = matches!(reported.state, MemberState::Healthy | MemberState::Unhealthy);
        let reason = || reported.reason.clone().unwrap_or_default();
        let facts = Facts {
            engine: runs.map(|_| super::record(reported.generation)),
            was_healthy,
            restarts: reported.restarts,
            failed: (reported.state == MemberState::Failed).then(reason),
            stopped_at: (reported.state == MemberState::Stopped).then_some(reported.since),
        };
        let entry = Entry {
            generation: reported.generation,
            desired: if stopped { Desired::Stopped } else { Desired::Running },
            digest: Some(reported.spec),
            spec: spec.cloned(),
            facts,
        };
        self.journal.members.insert(id.clone(), entry);
        if let (Some(age), Some(spec)) = (runs, spec) {
            self.engines.push(Engine {
                member: id.clone(),
                generation: reported.generation,
                gpus: known.map_or_else(Vec::new, |spec| spec.claim.gpus.clone()),
                age,
                ending: None,
                release: release(&spec.argv),
            });
        }
    }
}
