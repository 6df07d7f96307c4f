//! What is to be said of a source's commits. Pure: how things stand in, sayings out.

use denv_forge::State;
use denv_planner::{Records, StageRecord};
use denv_schema::api::{RevisionView, SourceView};
use denv_schema::{Catalog, StageId};

/// What is said of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saying {
    pub(super) commit: String,
    pub(super) state: State,
    pub(super) description: String,
}

/// Of the newest revision, and of the one in force. `planned` is what is in force, once it has been planned.
pub(super) fn sayings(source: &SourceView, planned: Option<(&Catalog, &Records)>) -> Vec<Saying> {
    let saying = |revision: &RevisionView, state, description: String| Saying {
        commit: revision.commit.clone(),
        state,
        description,
    };
    let refused = source
        .refused
        .as_ref()
        .map(|refused| saying(&refused.revision, State::Failure, format!("refused: {}", refused.reason)));
    let awaiting = source.awaiting.as_ref().map(|awaiting| {
        let description = format!("would delete {}; waits for `denv source approve`", awaiting.reason);
        saying(&awaiting.revision, State::Pending, description)
    });
    let accepted = source.accepted.as_ref().map(|accepted| {
        let (state, description) = match planned {
            Some((catalog, records)) => deployed(catalog, records),
            None => (State::Pending, "accepted; it is being planned".to_owned()),
        };
        saying(accepted, state, description)
    });
    [refused, awaiting, accepted].into_iter().flatten().collect()
}

/// How a stage stands to what is desired of it.
enum Stand {
    Settled,
    Moving(String),
    Held(String),
}

fn deployed(catalog: &Catalog, records: &Records) -> (State, String) {
    let (mut moving, mut held) = (Vec::new(), Vec::new());
    for (id, spec) in &catalog.stages {
        let desired = catalog.rendered.get(&spec.release).map(|rendered| rendered.digest);
        match stand(id, records.stages.get(id), |record| {
            record.good.as_ref().map(|good| good.digest) == desired
        }) {
            Stand::Settled => {}
            Stand::Moving(words) => moving.push(words),
            Stand::Held(words) => held.push(words),
        }
    }
    let total = catalog.stages.len();
    // What moves will end; only then is the whole a failure.
    match (moving.as_slice(), held.as_slice()) {
        ([first, ..], _) => (State::Pending, format!("{} of {total} stages move: {first}", moving.len())),
        ([], [first, ..]) => (State::Failure, first.clone()),
        ([], []) => (State::Success, format!("in force; {total} of {total} stages run it")),
    }
}

fn stand(id: &StageId, record: Option<&StageRecord>, is_desired: impl Fn(&StageRecord) -> bool) -> Stand {
    let Some(record) = record else { return Stand::Moving(format!("{id} begins")) };
    let open = record.deployment.as_ref().filter(|deployment| !deployment.phase.is_over());
    match (&record.hold, open) {
        (_, Some(deployment)) if deployment.paused => {
            let why = deployment.reason.as_deref().unwrap_or("a person");
            Stand::Moving(format!("{id} is paused: {why}"))
        }
        (_, Some(deployment)) => Stand::Moving(format!("{id} to {} ({})", deployment.to, deployment.phase)),
        (Some(hold), None) => Stand::Held(format!("{id} was rolled back: {}", hold.reason)),
        (None, None) if is_desired(record) => Stand::Settled,
        (None, None) => Stand::Moving(format!("{id} waits")),
    }
}

#[cfg(test)]
mod tests {
    use denv_planner::{Deployment, Gates, Good, Phase};
    use denv_schema::api::{RefusedView, SourceState};
    use denv_schema::{Diagnostics, Digest};
    use jiff::Timestamp;

    use super::*;

    fn catalog() -> Catalog {
        let files = [
            ("capacity.yaml", include_str!("../../../examples/manifests/quickstart/capacity.yaml")),
            ("software.yaml", include_str!("../../../examples/manifests/quickstart/software.yaml")),
            ("service.yaml", include_str!("../../../examples/manifests/quickstart/service.yaml")),
            ("commerce.yaml", include_str!("../../../examples/manifests/quickstart/commerce.yaml")),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        Catalog::from_files(&files.into()).unwrap()
    }

    fn revision(commit: &str) -> RevisionView {
        RevisionView {
            commit: commit.to_owned(),
            author: "Ada".to_owned(),
            summary: "change".to_owned(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn source() -> SourceView {
        SourceView {
            name: "main".to_owned(),
            url: String::new(),
            branch: "main".to_owned(),
            state: SourceState::Ready,
            accepted: Some(revision("aaaa")),
            refused: None,
            awaiting: None,
            conditions: Vec::new(),
            problem: None,
            fetched_at: None,
        }
    }

    /// Of a stage whose deployment is in this phase, paused or not, with what it has desired as good or not.
    fn records(catalog: &Catalog, phase: Phase, good: bool) -> Records {
        let (id, spec) = catalog.stages.iter().next().unwrap();
        let rendered = &catalog.rendered[&spec.release];
        let deployment = Deployment {
            number: 1,
            from: None,
            to: spec.release.clone(),
            template: rendered.template.clone(),
            digest: rendered.digest,
            inputs: Digest::of_bytes(b""),
            phase,
            opened: Timestamp::UNIX_EPOCH,
            since: Timestamp::UNIX_EPOCH,
            reason: None,
            paused: false,
            approved: None,
            gates: Gates::default(),
        };
        let kept = Good {
            release: spec.release.clone(),
            template: rendered.template.clone(),
            digest: rendered.digest,
        };
        let record = StageRecord {
            deployment: Some(deployment),
            good: good.then_some(kept),
            ..StageRecord::default()
        };
        Records { stages: [(id.clone(), record)].into(), ..Records::default() }
    }

    fn said(source: &SourceView, planned: Option<(&Catalog, &Records)>) -> Vec<String> {
        let line = |it: Saying| format!("{} {:?} {}", it.commit, it.state, it.description);
        sayings(source, planned).into_iter().map(line).collect()
    }

    #[test]
    fn a_commit_goes_from_accepted_through_its_deployments_to_its_end() {
        let (source, catalog) = (source(), catalog());
        assert_eq!(said(&source, None), ["aaaa Pending accepted; it is being planned"]);
        let empty = Records::default();
        assert_eq!(
            said(&source, Some((&catalog, &empty))),
            ["aaaa Pending 1 of 1 stages move: chat/prod begins"]
        );
        let rolling = records(&catalog, Phase::Baking { batch: 0 }, false);
        let words = said(&source, Some((&catalog, &rolling)));
        assert!(
            words[0].starts_with("aaaa Pending 1 of 1 stages move: chat/prod to smollm2-r1 (baking"),
            "{words:?}"
        );
        let done = records(&catalog, Phase::Succeeded, true);
        assert_eq!(said(&source, Some((&catalog, &done))), ["aaaa Success in force; 1 of 1 stages run it"]);
        let mut back = records(&catalog, Phase::RolledBack, false);
        assert_eq!(
            said(&source, Some((&catalog, &back))),
            ["aaaa Pending 1 of 1 stages move: chat/prod waits"]
        );
        back.stages.values_mut().for_each(|record| {
            record.hold = Some(denv_planner::Hold {
                release: "smollm2-r1".parse().unwrap(),
                inputs: Digest::of_bytes(b""),
                reason: "it did not start".to_owned(),
                since: Timestamp::UNIX_EPOCH,
            });
        });
        assert_eq!(
            said(&source, Some((&catalog, &back))),
            ["aaaa Failure chat/prod was rolled back: it did not start"]
        );
    }

    #[test]
    fn what_is_held_back_is_said_beside_what_is_in_force() {
        let catalog = catalog();
        let done = records(&catalog, Phase::Succeeded, true);
        let refused = RefusedView {
            revision: revision("bbbb"),
            reason: "2 faults".to_owned(),
            diagnostics: Diagnostics::default(),
        };
        let source = SourceView { refused: Some(refused), ..source() };
        assert_eq!(
            said(&source, Some((&catalog, &done))),
            ["bbbb Failure refused: 2 faults", "aaaa Success in force; 1 of 1 stages run it"]
        );
    }
}
