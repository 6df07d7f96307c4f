//! What denvd must not forget: the highest term, and per member the newest generation, what is desired of it and
//! which engine process was started for it. It decides which commands are taken up; it refuses to know processes,
//! sockets and clocks.
//!
//! [`judge`] and [`Journal::take_up`] are pure; [`store`] keeps the value on disk.

pub mod store;

use std::collections::BTreeMap;

use denv_schema::launch::LaunchSpec;
use denv_schema::wire::{Action, Command, Generation, Term};
use denv_schema::{Digest, MemberId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a command is to this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is to be recorded, then done.
    New,
    /// It was taken up before: the answer is the same, and nothing is done.
    Again,
    /// It is fenced, for this reason.
    Refused(String),
}

/// Whether `command` is taken up. Taking up the same command twice is one effect, whichever leader repeats it; what
/// a deposed leader adds, or what comes late, is refused.
pub fn judge(journal: &Journal, command: &Command) -> Verdict {
    let Command { member, generation, action, .. } = command;
    if !is_file_name(member.as_str()) {
        return Verdict::Refused(format!("`{member}` is not a member's id"));
    }
    let entry = journal.members.get(member).filter(|entry| entry.generation >= *generation);
    if entry.is_some_and(|entry| entry.has_taken_up(*generation, action)) {
        return Verdict::Again;
    }
    if command.term < journal.term {
        return Verdict::Refused(format!(
            "term {} is over: this host has seen term {}; the sender leads no more",
            command.term, journal.term
        ));
    }
    let Some(entry) = entry else { return Verdict::New };
    if entry.generation > *generation {
        return Verdict::Refused(format!(
            "generation {generation} of `{member}` is over: this host has seen generation {}",
            entry.generation
        ));
    }
    match action {
        Action::Stop {} => Verdict::New,
        Action::Start(_) if entry.desired == Desired::Stopped => Verdict::Refused(format!(
            "generation {generation} of `{member}` was stopped; start a new generation"
        )),
        Action::Start(spec) => Verdict::Refused(format!(
            "generation {generation} of `{member}` was started with another launch spec ({}, now {})",
            entry.digest.map_or_else(|| "none".to_owned(), |digest| digest.short()),
            spec.digest().short()
        )),
    }
}

/// Fences of members that are gone, kept at least this many: a command that comes later than that many others
/// have ended is not expected.
pub const FENCES: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Journal {
    /// The highest term seen.
    pub term: Term,
    pub members: BTreeMap<MemberId, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The highest generation seen.
    pub generation: Generation,
    pub desired: Desired,
    /// The digest of the launch spec that this generation was started with, if it was.
    pub digest: Option<Digest>,
    /// Kept while it is needed: until the member is stopped.
    pub spec: Option<LaunchSpec>,
    pub facts: Facts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Desired {
    Running,
    /// For ever: a stopped generation is not started again.
    Stopped,
}

/// What became of a member, as far as a restart of denvd needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Facts {
    /// The engine that runs, or ran when this was written. It may be of an older generation that is being stopped.
    pub engine: Option<EngineRecord>,
    /// The engine passed a check in this generation.
    pub was_healthy: bool,
    pub restarts: u32,
    /// denvd gave this generation up, for this reason.
    pub failed: Option<String>,
    /// Nothing is left of it since then.
    pub stopped_at: Option<Timestamp>,
}

/// An engine, so that its process can be told from another that got its pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineRecord {
    pub generation: Generation,
    /// The process, and its process group; of a container its first process. 0: it had ended before it could be seen.
    pub pid: i32,
    /// When it began, in the kernel's ticks since the boot.
    pub started_ticks: u64,
    pub boot: String,
    /// The loopback port it serves on.
    pub port: u16,
    /// How long its log was when it began.
    pub log_offset: u64,
    /// The name of the container that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl Entry {
    fn has_taken_up(&self, generation: Generation, action: &Action) -> bool {
        self.generation == generation
            && match action {
                Action::Start(spec) => self.digest == Some(spec.digest()),
                Action::Stop {} => self.desired == Desired::Stopped,
            }
    }
}

impl Journal {
    /// The journal after `command`, which [`judge`] found to be new.
    pub fn take_up(&self, command: &Command) -> Journal {
        let mut next = self.clone();
        next.see_term(command.term);
        let old = next.members.remove(&command.member);
        // A process of an older generation still has to be stopped.
        let engine = old.as_ref().and_then(|entry| entry.facts.engine.clone());
        let entry = match &command.action {
            Action::Start(spec) => Entry {
                generation: command.generation,
                desired: Desired::Running,
                digest: Some(spec.digest()),
                spec: Some(spec.clone()),
                facts: Facts { engine, ..Facts::default() },
            },
            Action::Stop {} => match old {
                Some(entry) if entry.generation == command.generation => {
                    Entry { desired: Desired::Stopped, ..entry }
                }
                old => Entry {
                    generation: command.generation,
                    desired: Desired::Stopped,
                    digest: None,
                    spec: old.and_then(|entry| entry.spec),
                    facts: Facts { engine, ..Facts::default() },
                },
            },
        };
        next.members.insert(command.member.clone(), entry);
        next.forget_old_fences();
        next
    }

    pub fn see_term(&mut self, term: Term) {
        self.term = self.term.max(term);
    }

    /// Records what became of `member` in `generation`. What is said of an older generation only tells which
    /// process there is.
    pub fn note(&mut self, member: &MemberId, generation: Generation, facts: Facts) {
        let Some(entry) = self.members.get_mut(member) else { return };
        if entry.generation != generation {
            entry.facts.engine = facts.engine;
            return;
        }
        if facts.stopped_at.is_some() {
            entry.spec = None;
        }
        entry.facts = facts;
    }

    fn forget_old_fences(&mut self) {
        let ended =
            |entry: &Entry| (entry.desired == Desired::Stopped).then_some(entry.facts.stopped_at).flatten();
        let mut fences: Vec<_> =
            self.members.iter().filter_map(|(member, entry)| Some((ended(entry)?, member.clone()))).collect();
        fences.sort();
        let surplus = fences.len().saturating_sub(FENCES);
        for (_, member) in fences.into_iter().take(surplus) {
            self.members.remove(&member);
        }
    }
}

/// Members name log files, so an id that is no file name must never get that far.
fn is_file_name(text: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && text.bytes().all(safe)
}

#[cfg(test)]
mod tests;
