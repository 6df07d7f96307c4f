//! How a source stands, in the words that Kubernetes' tools know. Pure.

use denv_schema::api::{Condition, ConditionKind, ConditionStatus, SourceState, short};
use jiff::Timestamp;

use super::HeldBack;
use crate::store::{Revision, Verdict};

/// What is known of a source.
#[derive(Clone, Copy)]
pub(super) struct Standing<'a> {
    pub(super) accepted: Option<&'a Revision>,
    /// The newest revision, where it is not in force.
    pub(super) held_back: Option<&'a HeldBack>,
    /// Why the remote can't be read.
    pub(super) problem: Option<&'a str>,
}

impl Standing<'_> {
    pub(super) fn state(&self) -> SourceState {
        match (self.problem, self.held_back, self.accepted) {
            (Some(_), ..) => SourceState::Unreachable,
            (None, Some(held), _) if held.verdict == Verdict::Awaiting => SourceState::AwaitingApproval,
            (None, Some(_), _) => SourceState::Refused,
            (None, None, Some(_)) => SourceState::Ready,
            (None, None, None) => SourceState::Starting,
        }
    }

    /// The conditions, where `before` are the ones that stood: a status that stays keeps its time.
    pub(super) fn conditions(&self, before: &[Condition], now: Timestamp) -> Vec<Condition> {
        use ConditionKind::{Ready, Reconciling, Stalled};
        use ConditionStatus::{False, True, Unknown};
        let newest = self.held_back.map(|held| &held.revision).or(self.accepted);
        let commit = newest.map(|revision| revision.view.commit.clone());
        let (reason, message) = self.words();
        let state = self.state();
        let (ready, reconciling, stalled) = match state {
            SourceState::Ready => (True, False, False),
            SourceState::Starting => (Unknown, True, False),
            SourceState::Refused | SourceState::AwaitingApproval => (False, False, True),
            SourceState::Unreachable => (False, True, False),
        };
        let condition = |kind, status, idle: &str| {
            let stood = before.iter().find(|condition| condition.kind == kind && condition.status == status);
            // After a restart nothing stood: what it rests on was judged at a time that is known.
            let judged = newest.filter(|_| self.problem.is_none()).map(|revision| revision.view.at);
            let first = if before.is_empty() { judged } else { None };
            Condition {
                kind,
                status,
                reason: if status == False && kind != Ready { idle.to_owned() } else { reason.to_owned() },
                message: if status == False && kind != Ready { String::new() } else { message.clone() },
                observed_revision: commit.clone(),
                last_transition: stood.map_or_else(|| first.unwrap_or(now), |stood| stood.last_transition),
            }
        };
        vec![
            condition(Ready, ready, ""),
            condition(Reconciling, reconciling, "Idle"),
            condition(Stalled, stalled, "NotStalled"),
        ]
    }

    fn words(&self) -> (&'static str, String) {
        let short = |revision: &Revision| short(&revision.view.commit).to_owned();
        match (self.state(), self.held_back) {
            (SourceState::Unreachable, _) => {
                ("Unreachable", format!("{}; it is tried again", self.problem.unwrap_or_default()))
            }
            (SourceState::AwaitingApproval, Some(held)) => (
                "AwaitingApproval",
                format!("{} would delete {}", short(&held.revision), held.revision.reason),
            ),
            (_, Some(held)) => {
                ("Refused", format!("{} was refused: {}", short(&held.revision), held.revision.reason))
            }
            (SourceState::Starting, None) => ("Starting", "the remote is being read".to_owned()),
            (_, None) => {
                ("Accepted", self.accepted.map(|it| format!("{} is in force", short(it))).unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use denv_schema::Diagnostics;
    use denv_schema::api::RevisionView;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn revision(commit: &str, judged: i64, reason: &str) -> Revision {
        let view = RevisionView {
            commit: commit.repeat(40),
            author: "Ada".to_owned(),
            summary: "change".to_owned(),
            at: at(judged),
        };
        Revision {
            view,
            reason: reason.to_owned(),
            diagnostics: Diagnostics::default(),
            deletions: Vec::new(),
        }
    }

    fn shown(standing: Standing<'_>, before: &[Condition], now: i64) -> (Vec<Condition>, Vec<String>) {
        let conditions = standing.conditions(before, at(now));
        let line = |it: &Condition| {
            format!(
                "{:?} {:?} {} {:?} {}",
                it.kind,
                it.status,
                it.reason,
                it.message,
                it.last_transition.as_second()
            )
        };
        let lines = conditions.iter().map(line).collect();
        (conditions, lines)
    }

    #[test]
    fn each_state_has_its_conditions_and_a_status_that_stays_keeps_its_time() {
        let nothing = Standing { accepted: None, held_back: None, problem: None };
        let (conditions, lines) = shown(nothing, &[], 10);
        assert_eq!(
            lines,
            [
                "Ready Unknown Starting \"the remote is being read\" 10",
                "Reconciling True Starting \"the remote is being read\" 10",
                "Stalled False NotStalled \"\" 10",
            ]
        );
        let first = revision("a", 20, "");
        let accepted = Standing { accepted: Some(&first), ..nothing };
        let (conditions, lines) = shown(accepted, &conditions, 21);
        assert_eq!(
            lines,
            [
                "Ready True Accepted \"aaaaaaaaaa is in force\" 21",
                "Reconciling False Idle \"\" 21",
                "Stalled False NotStalled \"\" 10",
            ]
        );
        assert_eq!(conditions[0].observed_revision, Some("a".repeat(40)));
        let away = Standing { problem: Some("no route"), ..accepted };
        let (conditions, lines) = shown(away, &conditions, 30);
        assert_eq!(
            lines,
            [
                "Ready False Unreachable \"no route; it is tried again\" 30",
                "Reconciling True Unreachable \"no route; it is tried again\" 30",
                "Stalled False NotStalled \"\" 10",
            ]
        );
        let held = HeldBack { verdict: Verdict::Awaiting, revision: revision("b", 40, "4 of 6 hosts") };
        let waiting = Standing { held_back: Some(&held), ..accepted };
        let (conditions, lines) = shown(waiting, &conditions, 40);
        assert_eq!(
            lines,
            [
                "Ready False AwaitingApproval \"bbbbbbbbbb would delete 4 of 6 hosts\" 30",
                "Reconciling False Idle \"\" 40",
                "Stalled True AwaitingApproval \"bbbbbbbbbb would delete 4 of 6 hosts\" 40",
            ]
        );
        assert_eq!(conditions[2].observed_revision, Some("b".repeat(40)));
        let held = HeldBack { verdict: Verdict::Refused, revision: revision("c", 50, "1 fault") };
        let (_, lines) = shown(Standing { held_back: Some(&held), ..accepted }, &conditions, 50);
        assert_eq!(lines[2], "Stalled True Refused \"cccccccccc was refused: 1 fault\" 40");
    }

    #[test]
    fn after_a_restart_what_was_judged_keeps_its_time() {
        let first = revision("a", 20, "");
        let accepted = Standing { accepted: Some(&first), held_back: None, problem: None };
        assert_eq!(shown(accepted, &[], 90).0[0].last_transition, at(20));
    }
}
