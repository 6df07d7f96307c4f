//! Whether a release's answers let it go on: its suite is put to the reference before anything moves, to the first new
//! unit before that takes traffic, and to a unit of the whole after the last batch.

use std::sync::Arc;
use std::time::Duration;

use denv_gates::Outcome;
use denv_schema::manifest::{Parity, ParitySuiteSpec, ReferenceKind};
use denv_schema::{Digest, Name, StageId};

use super::{Stage, deadline};
use crate::converge::{Goal, converge};
use crate::pass::{Pass, Unit};
use crate::placement::Release;
use crate::plan::Step;
use crate::records::{Deployment, Phase};
use crate::status::{UnitStatus, status};
use crate::trial::{Asked, AskedUnit, Part, Trial, TrialObserved, is_admitted, needs_reference};
use crate::waiting::WaitingOn;
use crate::world::signed;

/// What says nothing is tried again after this.
const RETRY: Duration = Duration::from_secs(30);
/// A gate that says nothing for this long, and has no deadline, is left to a person.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a trial has come to.
enum Verdict {
    Passed,
    Failed(String),
    /// Nothing is known yet; `said` is what the last attempt came to, if it says nothing of the release.
    Open {
        said: Option<String>,
    },
}

impl Stage<'_> {
    /// The phase that follows on `pending`: a gate, where there is something to ask before the first batch.
    pub(super) fn first_phase(&self, pass: &Pass<'_>) -> Phase {
        let needs = |parity: &Parity| parity.before || self.has_reference(self.suite(pass, parity).1);
        match &self.spec.parity {
            Some(parity) if self.total() > 0 && !self.means_good() && needs(parity) => Phase::Gating,
            Some(_) | None => Phase::Rolling { batch: 0 },
        }
    }

    pub(super) fn gating(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        let Some(parity) = &self.spec.parity else { return self.admit(pass, deployment) };
        let (name, suite) = self.suite(pass, parity);
        if self.has_reference(suite) {
            let asked = self.reference(pass, name, suite);
            let verdict = self.trial(pass, deployment, Part::Reference, (name, suite), asked);
            if !matches!(verdict, Verdict::Passed) && deployment.gates.waived != Some(Phase::Gating) {
                self.keep(pass, false);
                return self.unless_overdue(pass, deployment, verdict);
            }
        }
        if is_admitted(self.spec, self.record, deployment) {
            return self.admit(pass, deployment);
        }
        self.first_unit(pass, deployment);
        let is_new = |unit: &&Unit<'_>| unit.record.template == deployment.digest && unit.record.is_active();
        let answers = |unit: &&Unit<'_>| matches!(unit.status, UnitStatus::Withheld | UnitStatus::Ready);
        let first = self.units.iter().filter(is_new).find(answers);
        let asked = first.map(|unit| Asked::unit(unit.id, unit.record));
        let verdict = match asked.ok_or(WaitingOn::Units { ready: 0, of: 1 }) {
            Err(waiting) if deployment.gates.ended(Part::Before).is_none() => {
                self.wait_unless_said(pass, waiting);
                self.lapse(pass, deployment, Part::Before);
                Verdict::Open { said: None }
            }
            asked => self.trial(pass, deployment, Part::Before, (name, suite), asked),
        };
        self.unless_overdue(pass, deployment, verdict);
    }

    /// The gate after the last batch. Whether it is passed, or there is none.
    pub(super) fn passes_after(&self, pass: &mut Pass<'_>, deployment: &Deployment) -> bool {
        let Some(parity) = self.spec.parity.as_ref().filter(|parity| parity.after && self.total() > 0) else {
            return true;
        };
        if deployment.gates.waived == Some(Phase::Verifying) || self.means_good() {
            return true;
        }
        let before = deployment.gates.trials.get(&Part::Before).map(|trial| &trial.asked);
        let was_asked =
            |unit: &Unit<'_>| matches!(before, Some(Asked::Unit(asked)) if asked.unit == *unit.id);
        let mut ready: Vec<&Unit<'_>> = self
            .units
            .iter()
            .filter(|unit| unit.record.template == deployment.digest && unit.is_ready())
            .collect();
        // One that has not been asked yet tells more.
        ready.sort_by_key(|unit| was_asked(unit));
        let asked = ready.first().map(|unit| Asked::unit(unit.id, unit.record));
        let suite = self.suite(pass, parity);
        let asked = asked.ok_or(WaitingOn::Units { ready: 0, of: self.total() });
        let verdict = self.trial(pass, deployment, Part::After, suite, asked);
        if matches!(verdict, Verdict::Passed) {
            return true;
        }
        self.unless_overdue(pass, deployment, verdict);
        false
    }

    /// Only the name is another than the good release's: nothing moves.
    fn means_good(&self) -> bool {
        self.record.good.as_ref().is_some_and(|good| good.digest == self.release.digest)
    }

    fn suite<'p>(&self, pass: &Pass<'p>, parity: &'p Parity) -> (&'p Name, &'p ParitySuiteSpec) {
        let suite = pass.world.catalog.parity_suites.get(&parity.suite);
        (&parity.suite, suite.expect("the catalog has each suite that its stages name"))
    }

    /// Whether there is a reference to ask: the first release ever has none before it.
    fn has_reference(&self, suite: &ParitySuiteSpec) -> bool {
        let kind = suite.reference.as_ref().map(|reference| reference.kind);
        let exists =
            kind.is_some_and(|kind| kind != ReferenceKind::PreviousRelease || self.record.good.is_some());
        exists && needs_reference(suite)
    }

    fn reference(&self, pass: &Pass<'_>, name: &Name, suite: &ParitySuiteSpec) -> Result<Asked, WaitingOn> {
        let away = |reason: String| WaitingOn::Reference { suite: name.clone(), reason, until: None };
        let Some(reference) = &suite.reference else { return Ok(Asked::Api) };
        let (of, whose): (&StageId, String) = match reference.kind {
            ReferenceKind::Api => return Ok(Asked::Api),
            ReferenceKind::PreviousRelease => {
                let release = self.record.good.as_ref().map_or("", |good| good.release.as_str());
                (self.id, format!("`{release}`, the release before,"))
            }
            ReferenceKind::Endpoint => {
                let endpoint =
                    reference.endpoint.as_ref().and_then(|name| pass.world.catalog.endpoints.get(name));
                let models = endpoint.into_iter().flat_map(|endpoint| &endpoint.models);
                let model = models.into_iter().find(|model| Some(&model.name) == reference.model.as_ref());
                let model = model.ok_or_else(|| away("no endpoint offers its model any more".to_owned()))?;
                (&model.stage, format!("stage `{}`", model.stage))
            }
        };
        let new = self.release.digest;
        let is_ready = |(id, unit): &(&denv_schema::UnitId, &Arc<crate::UnitRecord>)| {
            unit.stage == *of && unit.template != new && status(pass.world, id, unit).is_ready()
        };
        let found = pass.world.records.units.iter().find(is_ready);
        found
            .map(|(id, unit)| Asked::unit(id, unit))
            .ok_or_else(|| away(format!("no unit of {whose} is ready")))
    }

    /// Puts a suite to somebody, and looks at what has come of it.
    fn trial(
        &self,
        pass: &mut Pass<'_>,
        deployment: &Deployment,
        part: Part,
        (name, suite): (&Name, &ParitySuiteSpec),
        asked: Result<Asked, WaitingOn>,
    ) -> Verdict {
        let (now, digest) = (pass.world.now, Digest::of(suite));
        let trial = deployment.gates.trials.get(&part);
        let ended = trial.and_then(|trial| trial.ended.as_ref());
        let mut said = None;
        if let Some(ended) = ended {
            match ended.outcome {
                // What has passed is not asked again, whatever becomes of the suite. A reference has answered that one
                // suite only.
                Outcome::Pass
                    if part != Part::Reference || trial.is_some_and(|trial| trial.digest == digest) =>
                {
                    return Verdict::Passed;
                }
                Outcome::Pass => {}
                Outcome::Fail => return Verdict::Failed(format!("parity suite `{name}`: {}", ended.reason)),
                Outcome::Inconclusive => said = Some(ended.reason.clone()),
            }
            let until = ended.at + signed(RETRY);
            let is_same = trial.is_some_and(|trial| trial.digest == digest);
            if said.is_some() && is_same && now < until {
                let (suite, reason) = (name.clone(), ended.reason.clone());
                let until = Some(until);
                self.wait(
                    pass,
                    match part {
                        Part::Reference => WaitingOn::Reference { suite, reason, until },
                        Part::Before | Part::After => WaitingOn::Trial { suite, reason, until },
                    },
                );
                return Verdict::Open { said };
            }
        } else if let Some(trial) = trial.filter(|trial| trial.digest == digest) {
            said.clone_from(&trial.last);
            if !self.end(pass, deployment, part, trial) {
                self.wait(pass, under_way(name, part, trial));
            }
            return Verdict::Open { said };
        }
        match asked {
            Ok(asked) => {
                let attempt = trial.map_or(1, |trial| trial.attempt + 1);
                let (suite, last) = (name.clone(), said.clone());
                let first = trial.map_or(now, |trial| trial.first);
                let trial = Trial { suite, digest, attempt, asked, since: now, first, last, ended: None };
                pass.step(Step::BeginTrial { stage: self.id.clone(), part, trial });
            }
            Err(waiting) => self.wait_unless_said(pass, waiting),
        }
        Verdict::Open { said }
    }

    /// Ends a trial that has come to something, or whose unit is no longer as it was.
    fn end(&self, pass: &mut Pass<'_>, deployment: &Deployment, part: Part, trial: &Trial) -> bool {
        let is_of = |seen: &&TrialObserved| {
            (seen.deployment, seen.part, seen.attempt) == (deployment.number, part, trial.attempt)
        };
        let seen = pass.world.observed.trials.get(self.id).filter(is_of);
        let ended = match (seen, &trial.asked) {
            (Some(seen), _) => Some((seen.outcome, seen.reason.clone())),
            (None, Asked::Unit(asked)) => gone(pass, asked).map(|reason| (Outcome::Inconclusive, reason)),
            (None, Asked::Api) => None,
        };
        let Some((outcome, reason)) = ended else { return false };
        let (stage, at) = (self.id.clone(), pass.world.now);
        pass.step(Step::EndTrial { stage, part, outcome, reason, at });
        true
    }

    /// Ends a trial whose unit is gone, where there is no other to ask yet.
    fn lapse(&self, pass: &mut Pass<'_>, deployment: &Deployment, part: Part) {
        if let Some(trial) = deployment.gates.trials.get(&part).filter(|trial| trial.ended.is_none()) {
            self.end(pass, deployment, part, trial);
        }
    }

    /// Starts the first unit, which takes no traffic yet, and keeps the others.
    fn first_unit(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        let release =
            Release { name: &deployment.to, template: &deployment.template, digest: deployment.digest };
        let (release, rest, units) = (Some(release), self.good(), self.counts.clone());
        let goal = Goal { release, rest, size: 1, units, back: false, withheld: true };
        converge(pass, self.id, self.spec, self.record, self.units, &goal);
    }

    /// The gate is passed: the first unit takes traffic, and the first batch goes on.
    fn admit(&self, pass: &mut Pass<'_>, deployment: &Deployment) {
        let at = pass.world.now;
        let is_new = |unit: &&Unit<'_>| unit.record.withheld && unit.record.template == deployment.digest;
        for unit in self.units.iter().filter(is_new) {
            pass.step(Step::AdmitUnit { unit: unit.id.clone(), at });
        }
        self.move_to(pass, Phase::Rolling { batch: 0 }, None);
    }

    /// Fails what has failed; and what has taken too long without saying anything, as the stage says.
    fn unless_overdue(&self, pass: &mut Pass<'_>, deployment: &Deployment, verdict: Verdict) {
        let said = match verdict {
            Verdict::Passed => return,
            Verdict::Failed(reason) => return self.fail_by_gate(pass, deployment, reason),
            Verdict::Open { said } => said,
        };
        let words = said.clone().map_or_else(String::new, |said| format!("; last: {said}"));
        // A unit that is long in starting takes nothing from the time in which it may be asked.
        let first = deployment.gates.trials.values().map(|trial| trial.first).max();
        let patience = first.max(Some(deployment.since)).unwrap_or(deployment.since) + signed(PATIENCE);
        if self.is_overdue(pass, deployment) {
            self.fail_by_gate(pass, deployment, format!("the gate did not say enough in time{words}"));
        } else if deadline(&self.spec.rollout, deployment).is_some() {
            // That time is what counts.
        } else if said.is_some() && pass.world.now >= patience {
            self.ask_a_person(pass, format!("the gate says nothing of the release{words}"));
        } else {
            pass.wake(patience);
        }
    }

    /// What is said already tells more.
    fn wait_unless_said(&self, pass: &mut Pass<'_>, on: WaitingOn) {
        if !pass.plan.waiting.contains_key(&crate::plan::Subject::Stage(self.id.clone())) {
            self.wait(pass, on);
        }
    }
}

/// What a trial that is under way is waited for as.
fn under_way(name: &Name, part: Part, trial: &Trial) -> WaitingOn {
    let suite = name.clone();
    match (part, &trial.last) {
        (Part::Reference, Some(last)) => WaitingOn::Reference { suite, reason: last.clone(), until: None },
        (_, last) => {
            let last = last.as_ref().map_or_else(String::new, |last| format!(" again, after: {last}"));
            WaitingOn::Trial { suite, reason: format!("asking {}{last}", trial.asked), until: None }
        }
    }
}

/// Why the unit can't answer any more, if it can't. That is not the release's failure: what that would be is seen by
/// the unit's own state.
fn gone(pass: &Pass<'_>, asked: &AskedUnit) -> Option<String> {
    let unit = pass.world.records.units.get(&asked.unit);
    let unit = unit.filter(|unit| unit.generation == asked.generation && unit.is_active());
    match unit.map(|unit| status(pass.world, &asked.unit, unit)) {
        Some(UnitStatus::Silent { .. }) => {
            Some(format!("host `{}` fell silent while it was asked", asked.host))
        }
        Some(_) => None,
        None => Some(format!("unit `{}` left while it was asked", asked.unit)),
    }
}
