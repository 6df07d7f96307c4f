use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use denv_gates::Outcome;
use denv_gates::parity::{Reference, Report, Verdict, When, judge};
use denv_planner::{Asked, AskedUnit, Part, TrialObserved};
use denv_schema::manifest::{ParityReference, ParitySuiteSpec, ReferenceKind};
use denv_schema::secret::SecretReference;
use denv_schema::wire::{CaseAnswer, Prompt, Said};
use denv_schema::{Catalog, Name};
use jiff::Timestamp;

use super::ask::Ask;
use super::{Open, reference};
use crate::link::Engines;
use crate::observation::Observation;
use crate::store::{Store, StoreError};

/// Runs one trial.
pub(super) struct Runner {
    pub(super) store: Store,
    pub(super) observation: Arc<Observation>,
    pub(super) engines: Arc<Engines>,
    pub(super) secrets: Arc<BTreeSet<SecretReference>>,
    pub(super) catalog: Arc<Catalog>,
}

type Answers = BTreeMap<Name, CaseAnswer>;

const STORE_RETRY: Duration = Duration::from_secs(2);

impl Runner {
    /// Asks, judges, and tells the world what came of it, once that is kept.
    pub(super) async fn run(self, open: Open) {
        let Some(suite) = self.catalog.parity_suites.get(&open.trial.suite) else { return };
        loop {
            match self.outcome(&open, suite).await {
                Ok((outcome, reason)) => {
                    let (deployment, part, attempt) = (open.deployment, open.part, open.trial.attempt);
                    let seen = TrialObserved { deployment, part, attempt, outcome, reason };
                    return self.observation.trial_ended(&open.stage, seen);
                }
                Err(error) => {
                    let error = crate::chain(&error);
                    tracing::error!(error, stage = %open.stage, "what a gate came to cannot be kept; it is run again");
                    tokio::time::sleep(STORE_RETRY).await;
                }
            }
        }
    }

    async fn outcome(&self, open: &Open, suite: &ParitySuiteSpec) -> Result<(Outcome, String), StoreError> {
        match (open.part, &open.trial.asked) {
            (Part::Reference, _) => self.reference(open, suite).await,
            (Part::Before, Asked::Unit(asked)) => self.judge(open, suite, asked, When::Before).await,
            (Part::After, Asked::Unit(asked)) => self.judge(open, suite, asked, When::After).await,
            (Part::Before | Part::After, Asked::Api) => {
                Ok((Outcome::Inconclusive, "an API can't be asked in a unit's place".to_owned()))
            }
        }
    }

    /// What the reference answers to the cases that go by it. One that is away is asked again.
    async fn reference(&self, open: &Open, suite: &ParitySuiteSpec) -> Result<(Outcome, String), StoreError> {
        let cases = suite.cases.iter().filter(|case| case.expect.is_none());
        let prompts: Vec<Prompt> = cases.map(Prompt::from).collect();
        let away = |reason: String| Ok((Outcome::Inconclusive, reason));
        let answers = match (&open.trial.asked, &suite.reference) {
            (Asked::Unit(asked), _) => self.ask(open, suite, asked, prompts).await,
            (Asked::Api, Some(api)) => {
                match reference::api(api, &self.secrets, suite.timeout, prompts).await {
                    Ok(answers) => answers,
                    Err(error) => return away(crate::chain(&error)),
                }
            }
            (Asked::Api, None) => return away("the suite names no reference any more".to_owned()),
        };
        let is_away = |answer: &CaseAnswer| match &answer.said {
            Said::Away { reason } => Some(reason.clone()),
            Said::Answer(_) | Said::Error { .. } | Said::Unreadable { .. } | Said::TimedOut => None,
        };
        if let Some(reason) = answers.values().find_map(is_away) {
            return away(reason);
        }
        self.store.keep_answers(&open.stage, open.deployment, &answers).await?;
        Ok((Outcome::Pass, format!("{} answers", answers.len())))
    }

    async fn judge(
        &self,
        open: &Open,
        suite: &ParitySuiteSpec,
        asked: &AskedUnit,
        when: When,
    ) -> Result<(Outcome, String), StoreError> {
        let kept = self.store.report(&open.stage, Some(open.deployment), Some(when)).await?;
        // What was kept before a restart stands.
        if let Some(report) = kept.filter(|report| report.attempt == open.trial.attempt) {
            return Ok((report.outcome, report.reason));
        }
        let (begun, prompts) = (Timestamp::now(), suite.cases.iter().map(Prompt::from).collect());
        let answers = self.ask(open, suite, asked, prompts).await;
        // What a reference answered and is not there any more is no reason to pass.
        let known = match open.has_reference {
            true => Some(self.store.answers(&open.stage, open.deployment).await?.unwrap_or_default()),
            false => None,
        };
        let reference = known.as_ref().map_or(Reference::Nothing, Reference::Answers);
        let Verdict { outcome, reason, cases } = judge(suite, &answers, reference);
        let report = Report {
            stage: open.stage.clone(),
            deployment: open.deployment,
            when,
            attempt: open.trial.attempt,
            release: asked.release.clone(),
            suite: open.trial.suite.clone(),
            unit: asked.unit.clone(),
            host: asked.host.clone(),
            reference: suite.reference.as_ref().map(words),
            begun,
            ended: Timestamp::now(),
            outcome,
            reason: reason.clone(),
            cases,
        };
        self.store.keep_report(&report).await?;
        Ok((outcome, reason))
    }

    async fn ask(
        &self,
        open: &Open,
        suite: &ParitySuiteSpec,
        asked: &AskedUnit,
        prompts: Vec<Prompt>,
    ) -> Answers {
        let Open { stage, deployment, part, trial, .. } = open;
        let name = format!("{stage}/{deployment}/{}/{}", part.as_str(), trial.attempt);
        let ask = Ask { engines: &self.engines, name: &name, unit: asked, timeout: suite.timeout };
        ask.put(&prompts).await
    }
}

/// Whose answers are held to be right, for a report. Without the key, even without where it is.
fn words(reference: &ParityReference) -> String {
    let of = |what: &str, name: String, model: Option<&String>| match model {
        Some(model) => format!("{what} {name}, model {model}"),
        None => format!("{what} {name}"),
    };
    let model = reference.model.as_ref();
    match reference.kind {
        ReferenceKind::PreviousRelease => "the release before".to_owned(),
        ReferenceKind::Endpoint => {
            of("Endpoint", reference.endpoint.as_ref().map(ToString::to_string).unwrap_or_default(), model)
        }
        ReferenceKind::Api => of("API", reference.url.clone().unwrap_or_default(), model),
    }
}
