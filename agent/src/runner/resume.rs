//! From the journal and what runs to members that go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::MemberId;
use denv_schema::launch::LaunchSpec;

use super::member::Member;
use super::{Queue, probe};
use crate::journal::{Desired, Entry};
use crate::runtimes::{self, Engine};
use crate::supervisor::{Action, Event, Policy, Supervised, decide};

/// An adopted engine that answers no check in this time begins as not healthy.
const FIRST_CHECK: Duration = Duration::from_secs(2);

impl Queue {
    /// Adopts engines that run, restarts those that ended, finishes stops.
    pub(super) async fn resume(&mut self) {
        let entries = self.store.journal().members.clone();
        let known =
            |(member, entry): (&MemberId, &Entry)| Some((member.clone(), entry.facts.engine.clone()?));
        let known: Vec<_> = entries.iter().filter_map(known).collect();
        let is_wanted = |member: &MemberId, generation| {
            entries.get(member).is_some_and(|entry| {
                entry.generation == generation
                    && entry.desired == Desired::Running
                    && entry.facts.failed.is_none()
            })
        };
        for (member, record) in &known {
            self.host.ports.remember(member, record.port);
        }
        let podman = self.host.images.as_ref().map(|images| images.podman());
        let engines = runtimes::take_over(&self.host.marks, podman, known, is_wanted).await;
        for (member, engine) in &engines {
            self.host.ports.remember(member, engine.record().port);
        }
        self.resume_members(entries, engines).await;
    }

    async fn resume_members(
        &mut self,
        entries: BTreeMap<MemberId, Entry>,
        mut engines: BTreeMap<MemberId, Engine>,
    ) {
        let host = self.host.clone();
        let checks = entries.iter().filter_map(|(member, entry)| {
            let (engine, probe) = (engines.get(member)?, entry.spec.as_ref()?.probe.as_ref()?);
            let (port, timeout) = (engine.record().port, probe.timeout.get().min(FIRST_CHECK));
            let check = probe::check(port, probe.path.clone(), timeout);
            Some(async move { (member.clone(), check.await) })
        });
        let mut checked: BTreeMap<_, _> = futures::future::join_all(checks).await.into_iter().collect();
        for (member, entry) in entries {
            let engine = engines.remove(&member);
            let Some(spec) = entry.spec.clone() else {
                if let Some(engine) = engine {
                    engine.kill();
                }
                self.show_stopped(&member);
                continue;
            };
            let (generation, desired) = (entry.generation, entry.desired);
            if desired == Desired::Stopped && engine.is_none() {
                self.stop(&member, generation).await;
                continue;
            }
            let checked = checked.remove(&member);
            let (supervised, actions) = resumed(&entry, engine.as_ref(), &spec, checked, host.now());
            let digest = entry.digest;
            let mut task = Member::new(host.clone(), member.clone(), generation, Arc::new(spec), supervised);
            task.resume(engine, digest, entry.facts);
            self.spawn(member, task, actions);
        }
    }
}

/// Where a member stands after denvd was away, and what is to be done first.
fn resumed(
    entry: &Entry,
    engine: Option<&Engine>,
    spec: &LaunchSpec,
    checked: Option<Result<(), String>>,
    now: Duration,
) -> (Supervised, Vec<Action>) {
    let (policy, facts) = (Policy::of(spec), &entry.facts);
    let adopted = || Supervised::adopted(policy.clone(), facts.was_healthy, facts.restarts, now);
    match engine {
        Some(_) if entry.desired == Desired::Stopped => decide(adopted(), Event::Stop, now),
        Some(engine) if engine.record().generation != entry.generation => {
            decide(adopted(), Event::Start(policy.clone()), now)
        }
        Some(engine) => {
            let generation = entry.generation;
            tracing::info!(pid = engine.record().pid, generation, "adopted the engine of `{}`", spec.model);
            // One without a server lives, and that is its health.
            let unasked = || if spec.probe.is_none() { Ok(()) } else { Err("not asked".to_owned()) };
            decide(adopted(), Event::Checked(checked.unwrap_or_else(unasked)), now)
        }
        None => match &facts.failed {
            Some(reason) => {
                (Supervised::failed(policy, facts.was_healthy, facts.restarts, reason.clone()), vec![])
            }
            None if facts.engine.is_none() && !facts.was_healthy => {
                decide(Supervised::stopped(policy.clone()), Event::Start(policy), now)
            }
            None => {
                let member = Supervised::ended_unseen(policy, facts.was_healthy, facts.restarts, now);
                (member, vec![Action::Prepare])
            }
        },
    }
}
