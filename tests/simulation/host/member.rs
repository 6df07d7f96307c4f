//! What a simulated denvd knows of a member.

use std::time::Duration;

use denv_agent::journal::{Desired, Entry};
use denv_agent::supervisor::{Event, Policy, Supervised};
use denv_schema::Digest;
use denv_schema::launch::{Claim, LaunchSpec};
use denv_schema::wire::{Generation, MemberReport, MemberState};
use jiff::Timestamp;

use super::{Engine, moment};

pub(super) struct Member {
    pub(super) generation: Generation,
    pub(super) digest: Digest,
    pub(super) spec: Option<LaunchSpec>,
    pub(super) supervised: Supervised,
    pub(super) entered: (Generation, MemberState),
    pub(super) since: Timestamp,
    /// What happens to it in the next second.
    pub(super) coming: Vec<Event>,
}

impl Member {
    pub(super) fn new(
        generation: Generation,
        spec: &LaunchSpec,
        supervised: Supervised,
        now: Timestamp,
    ) -> Self {
        let entered = (generation, supervised.state());
        let (digest, spec) = (spec.digest(), Some(spec.clone()));
        Member { generation, digest, spec, supervised, entered, since: now, coming: Vec::new() }
    }

    /// One of which nothing was here.
    pub(super) fn gone(generation: Generation, now: Timestamp) -> Self {
        let supervised = Supervised::stopped(Policy {
            start_timeout: Duration::ZERO,
            fetch_timeout: Duration::ZERO,
            stop_timeout: Duration::ZERO,
            first_check: Duration::ZERO,
            probe_interval: Duration::from_secs(1),
            probe_failures: 1,
        });
        let entered = (generation, MemberState::Stopped);
        let digest = Digest::from_bytes([0; 32]);
        Member { generation, digest, spec: None, supervised, entered, since: now, coming: Vec::new() }
    }

    fn claim(&self) -> Option<Claim> {
        let spec = self.spec.as_ref().filter(|_| self.entered.1 != MemberState::Stopped)?;
        Some(spec.claim.clone())
    }

    pub(super) fn report(&self) -> MemberReport {
        MemberReport {
            generation: self.generation,
            spec: self.digest,
            state: self.supervised.state(),
            since: self.since,
            claim: self.claim(),
            restarts: self.supervised.restarts(),
            ends_in_a_row: self.supervised.ends_in_a_row(),
            reason: self.supervised.reason().map(str::to_owned),
        }
    }
}

/// Where a member stands after denvd was away, and what happens to it first; as `runner::resume` has it.
pub(super) fn resumed(
    entry: &Entry,
    running: Option<&Engine>,
    spec: &LaunchSpec,
    now: Timestamp,
) -> (Supervised, Option<Event>) {
    let (policy, facts) = (Policy::of(spec), &entry.facts);
    let adopted = Supervised::adopted(policy.clone(), facts.was_healthy, facts.restarts, moment(now));
    match running {
        Some(_) if entry.desired == Desired::Stopped => (adopted, Some(Event::Stop)),
        None if entry.desired == Desired::Stopped => (Supervised::stopped(policy), None),
        Some(engine) if engine.generation != entry.generation => (adopted, Some(Event::Start(policy))),
        Some(engine) => {
            // It is asked before anything is said of it.
            let answer = if engine.serves() { Ok(()) } else { Err("no answer".to_owned()) };
            (adopted, Some(Event::Checked(answer)))
        }
        None => match &facts.failed {
            Some(reason) => {
                let (healthy, restarts) = (facts.was_healthy, facts.restarts);
                (Supervised::failed(policy, healthy, restarts, reason.clone()), None)
            }
            None => (Supervised::stopped(policy.clone()), Some(Event::Start(policy))),
        },
    }
}
