//! Carries steps out: what they change goes to the store as one transaction, then takes effect.

use std::collections::{BTreeMap, BTreeSet};

use denv_gates::Outcome;
use denv_planner::{HostFaults, Phase, Records, Step};
use denv_schema::Name;
use denv_schema::api::Level;
use denv_schema::wire::CommandId;
use jiff::Timestamp;

use super::Orchestrator;
use crate::store::{Commit, Event, StoreError};

impl Orchestrator {
    /// Writes what steps change as one, and wakes the queues of hosts that they fill.
    pub async fn carry_out(&mut self, steps: &[Step]) -> Result<(), StoreError> {
        let mut after = self.records.clone();
        let mut commit = Commit::default();
        for step in steps {
            after.apply(step);
            note(step, &after, &mut commit);
        }
        commit.host_faults = changed(&self.records.hosts, &after.hosts);
        let ids = |records: &Records| -> BTreeSet<CommandId> {
            let units = commit.units.keys().filter_map(|id| records.units.get(id));
            units.flat_map(|unit| unit.command_ids()).collect()
        };
        // What was withdrawn needs no answer.
        for id in ids(&self.records).difference(&ids(&after)) {
            after.pending.remove(id);
            after.refused.remove(id);
        }
        for (_, _, command) in &commit.commands {
            after.pending.insert(command.id.clone());
            after.refused.remove(&command.id);
        }
        self.doubtful = true;
        self.store.commit(self.term, &commit).await?;
        self.doubtful = false;
        self.records = after;
        for event in &commit.events {
            tracing::info!(subject = %event.subject, "{}", event.message);
        }
        self.wake(commit.commands.into_iter().map(|(host, ..)| host));
        Ok(())
    }
}

/// What is other than it was; none, where nothing is left.
fn changed(
    before: &BTreeMap<Name, HostFaults>,
    after: &BTreeMap<Name, HostFaults>,
) -> BTreeMap<Name, Option<HostFaults>> {
    let gone = before.keys().filter(|host| !after.contains_key(*host)).map(|host| (host.clone(), None));
    let new = after.iter().filter(|(host, faults)| before.get(*host) != Some(*faults));
    gone.chain(new.map(|(host, faults)| (host.clone(), Some(faults.clone())))).collect()
}

/// What a step changes, once it is applied.
fn note(step: &Step, after: &Records, commit: &mut Commit) {
    let subject = step.subject();
    commit.events.push(Event {
        at: Timestamp::now(),
        subject: subject.to_string(),
        level: level(step),
        message: step.to_string(),
    });
    match subject {
        denv_planner::Subject::Stage(stage) => {
            let Some(record) = after.stages.get(&stage) else { return };
            if let Some(deployment) = &record.deployment {
                commit.deployments.push((stage.clone(), deployment.clone()));
            }
            commit.stages.insert(stage, record.clone());
        }
        denv_planner::Subject::Unit(id) => {
            let record = after.units.get(&id);
            if let Some((stage, _)) = id.parts()
                && let Some(record) = after.stages.get(&stage)
            {
                commit.stages.insert(stage, record.clone());
            }
            if let (Some(record), Step::StartUnit { .. } | Step::AdoptUnit { .. }) = (record, step) {
                commit.deployed.insert(record.release.clone(), record.template);
            }
            commit.commands.extend(step.commands(after));
            commit.units.insert(id, record.cloned());
        }
    }
}

fn level(step: &Step) -> Level {
    match step {
        Step::Hold { .. }
        | Step::PauseDeployment { .. }
        | Step::AwaitDecision { .. }
        | Step::EndTrial { outcome: Outcome::Fail | Outcome::Inconclusive, .. }
        | Step::RestartUnit { .. }
        | Step::AdoptUnit { .. }
        | Step::EndStranger { .. } => Level::Warning,
        Step::MoveDeployment { phase: Phase::RollingBack | Phase::RolledBack, .. } => Level::Warning,
        Step::DrainUnit { repair_at: Some(_), .. } | Step::DrainUnit { blame: Some(_), .. } => Level::Warning,
        _ => Level::Normal,
    }
}
