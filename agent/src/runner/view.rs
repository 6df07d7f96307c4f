use std::collections::BTreeMap;
use std::sync::Arc;

use denv_schema::MemberId;
use denv_schema::launch::LaunchSpec;
use denv_schema::wire::{CommandId, CommandOutcome, MemberReport, MemberState};

/// What the runner shows of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub members: BTreeMap<MemberId, MemberView>,
    /// What is wrong with the host, for people.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    pub report: MemberReport,
    /// Where its engine serves on loopback, while one runs.
    pub port: Option<u16>,
    /// What it runs, unless it was stopped long ago.
    pub spec: Option<Arc<LaunchSpec>>,
}

/// Stopped members that are still shown: more than end at once on any host, few enough that reports stay small. One
/// that is asked to stop again is shown again.
const SHOWN_STOPPED: usize = 64;

impl View {
    pub(super) fn forget_long_stopped(&mut self) {
        let stopped = |view: &MemberView| view.report.state == MemberState::Stopped;
        let mut ended: Vec<_> = self.members.iter().filter(|(_, view)| stopped(view)).collect();
        ended.sort_by_key(|(_, view)| view.report.since);
        let surplus = ended.len().saturating_sub(SHOWN_STOPPED);
        let forgotten: Vec<MemberId> =
            ended.into_iter().take(surplus).map(|(member, _)| member.clone()).collect();
        for member in forgotten {
            self.members.remove(&member);
        }
    }
}

/// Answers that the control plane has not taken yet. Each has a number, and one that is given again gets a new one,
/// so a stream sends what is above the number it sent last.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    last: u64,
    untaken: BTreeMap<u64, (CommandId, CommandOutcome)>,
}

/// Beyond this the oldest are dropped: their commands are delivered again, and answered again.
const UNTAKEN: usize = 1024;

impl Answers {
    pub(super) fn add(&mut self, id: CommandId, outcome: CommandOutcome) {
        self.take(&id);
        self.last += 1;
        self.untaken.insert(self.last, (id, outcome));
        if self.untaken.len() > UNTAKEN {
            self.untaken.pop_first();
        }
    }

    pub(super) fn take(&mut self, id: &CommandId) {
        self.untaken.retain(|_, (other, _)| other != id);
    }

    /// The first one above `number`.
    pub fn after(&self, number: u64) -> Option<(u64, &CommandId, &CommandOutcome)> {
        let (number, (id, outcome)) = self.untaken.range(number + 1..).next()?;
        Some((*number, id, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_given_again_is_sent_again() {
        let mut answers = Answers::default();
        let (a, b) = (CommandId("a".to_owned()), CommandId("b".to_owned()));
        answers.add(a.clone(), CommandOutcome::Accepted);
        answers.add(b.clone(), CommandOutcome::Accepted);
        assert_eq!(answers.after(0).unwrap().1, &a);
        assert_eq!(answers.after(1).unwrap().1, &b);
        assert!(answers.after(2).is_none());
        answers.add(a.clone(), CommandOutcome::Accepted);
        assert_eq!(answers.after(2).unwrap().1, &a);
        answers.take(&a);
        assert!(answers.after(2).is_none());
    }
}
