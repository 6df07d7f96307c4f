//! What to do with one member: a pure function of what it is, what just happened and the time. It owns the
//! member's states, bounds and back-off; it refuses to know processes, sockets, files and clocks.

mod state;

use std::time::Duration;

pub use state::{After, Moment, Phase, Policy, Running, Supervised};

/// What happened to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A (newer) generation is desired.
    Start(Policy),
    Stop,
    Prepared(Result<(), String>),
    Launched(Result<(), LaunchFailure>),
    /// The engine ended and nothing of it is left. `how` and the end of its log are for people.
    Exited {
        how: String,
        log: String,
    },
    Checked(Result<(), String>),
    /// The time that [`Supervised::wake_at`] named has come.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailure {
    pub reason: String,
    /// Trying again would end the same way.
    pub permanent: bool,
}

/// What the driver does for a member, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fetch and verify what the engine is started from; answered by [`Event::Prepared`].
    Prepare,
    /// Start the engine; answered by [`Event::Launched`].
    Launch,
    /// Ask the engine's health, if it has a server; answered by [`Event::Checked`].
    Check,
    /// SIGTERM to the engine, all of it: at most once, since a second one ends some engines at once.
    Terminate,
    /// SIGKILL to the engine, all of it; answered by [`Event::Exited`].
    Kill,
}

/// An engine that ends this often before it was ever healthy is given up.
pub const EXITS_TO_GIVE_UP: u32 = 3;
/// This many more failed checks, after those that made it unhealthy, and the engine is taken to hang.
const CHECKS_TO_HANG: u32 = 10;
/// The longest wait between restarts.
const BACKOFF_CAP: Duration = Duration::from_secs(30);
/// Healthy for this long, and earlier crashes are forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// The member after `event`, and what is to be done.
pub fn decide(mut member: Supervised, event: Event, now: Moment) -> (Supervised, Vec<Action>) {
    let actions = match event {
        Event::Start(policy) => start(&mut member, policy, now),
        Event::Stop => stop(&mut member, None, now),
        Event::Prepared(result) => prepared(&mut member, result, now),
        Event::Launched(result) => launched(&mut member, result, now),
        Event::Exited { how, log } => exited(&mut member, &how, &log, now),
        Event::Checked(result) => checked(&mut member, result, now),
        Event::Tick => tick(&mut member, now),
    };
    (member, actions)
}

fn start(member: &mut Supervised, policy: Policy, now: Moment) -> Vec<Action> {
    match member.phase {
        Phase::Running(_) | Phase::Killing { .. } | Phase::Stopping { .. } => stop(member, Some(policy), now),
        Phase::Preparing | Phase::Waiting { .. } | Phase::Failed | Phase::Stopped => {
            *member = Supervised::new(policy, now);
            vec![Action::Prepare]
        }
    }
}

fn stop(member: &mut Supervised, next: Option<Policy>, now: Moment) -> Vec<Action> {
    let (phase, actions) = match &member.phase {
        Phase::Running(_) => {
            let kill_at = Some(now + member.policy.stop_timeout);
            (Phase::Stopping { kill_at, next }, vec![Action::Terminate])
        }
        Phase::Killing { .. } => (Phase::Stopping { kill_at: None, next }, vec![]),
        // SIGTERM was sent: only what follows changes.
        Phase::Stopping { kill_at, .. } => (Phase::Stopping { kill_at: *kill_at, next }, vec![]),
        Phase::Preparing | Phase::Waiting { .. } | Phase::Failed | Phase::Stopped => (Phase::Stopped, vec![]),
    };
    member.reason = None;
    member.phase = phase;
    actions
}

fn prepared(member: &mut Supervised, result: Result<(), String>, now: Moment) -> Vec<Action> {
    match (&member.phase, result) {
        (Phase::Preparing, Ok(())) => {
            if !member.policy.fetch_timeout.is_zero() {
                member.ready_by = member.ready_by.min(now + member.policy.start_timeout);
            }
            vec![Action::Launch]
        }
        (Phase::Preparing, Err(reason)) => fail(member, reason),
        // Stopped meanwhile.
        _ => vec![],
    }
}

fn launched(member: &mut Supervised, result: Result<(), LaunchFailure>, now: Moment) -> Vec<Action> {
    match result {
        Ok(()) => {
            if member.was_launched {
                member.restarts += 1;
            }
            member.was_launched = true;
            let ready_by =
                if member.was_healthy { now + member.policy.start_timeout } else { member.ready_by };
            member.phase = Phase::Running(Running::new(now + member.policy.first_check, ready_by));
            vec![]
        }
        Err(LaunchFailure { reason, permanent: true }) => fail(member, reason),
        Err(LaunchFailure { reason, permanent: false }) => restart(member, &reason, "", now),
    }
}

fn exited(member: &mut Supervised, how: &str, log: &str, now: Moment) -> Vec<Action> {
    match &member.phase {
        Phase::Running(running) => {
            if running.healthy_since.is_some_and(|since| now.saturating_sub(since) >= FORGIVEN_AFTER) {
                member.exits = 0;
            }
            restart(member, how, log, now)
        }
        Phase::Killing { then: After::Restart(why) } => {
            let why = why.clone();
            restart(member, &why, log, now)
        }
        Phase::Killing { then: After::GiveUp(why) } => {
            let why = with_log(why, log);
            fail(member, why)
        }
        Phase::Stopping { next: Some(policy), .. } => {
            *member = Supervised::new(policy.clone(), now);
            vec![Action::Prepare]
        }
        Phase::Stopping { next: None, .. } => {
            member.phase = Phase::Stopped;
            member.reason = None;
            vec![]
        }
        Phase::Preparing | Phase::Waiting { .. } | Phase::Failed | Phase::Stopped => vec![],
    }
}

/// The engine ended by itself, or was killed because it hung.
fn restart(member: &mut Supervised, how: &str, log: &str, now: Moment) -> Vec<Action> {
    member.exits += 1;
    if !member.was_healthy && member.exits >= EXITS_TO_GIVE_UP {
        return fail(member, with_log(how, log));
    }
    let wait = backoff(member.was_healthy, member.exits);
    member.reason = Some(with_log(&format!("{how}; restarted in {:.1} s", wait.as_secs_f64()), log));
    member.phase = Phase::Waiting { until: now + wait };
    vec![]
}

/// An engine that served comes back soon; one that never did is given time to find what it waits for.
fn backoff(was_healthy: bool, exits: u32) -> Duration {
    let first = Duration::from_millis(if was_healthy { 500 } else { 1000 });
    first.saturating_mul(1 << exits.saturating_sub(1).min(16)).min(BACKOFF_CAP)
}

fn checked(member: &mut Supervised, result: Result<(), String>, now: Moment) -> Vec<Action> {
    let (interval, failures) = (member.policy.probe_interval, member.policy.probe_failures.max(1));
    let was_healthy = member.was_healthy;
    let Phase::Running(running) = &mut member.phase else { return vec![] };
    running.checking = false;
    running.next_check = now + interval;
    match result {
        Ok(()) => {
            running.failed = 0;
            running.passed = true;
            running.healthy_since.get_or_insert(now);
            if !member.was_healthy {
                member.was_healthy = true;
                member.exits = 0;
            }
            member.reason = None;
            vec![]
        }
        Err(error) => {
            running.failed = running.failed.saturating_add(1);
            let failed = running.failed;
            if !running.passed {
                if !was_healthy {
                    member.reason = Some(format!("no check passed yet: {error}"));
                }
                running.last_error = Some(error);
                return vec![];
            }
            if failed >= failures {
                running.healthy_since = None;
                member.reason = Some(format!("{failed} checks in a row failed: {error}"));
            }
            if failed >= failures.saturating_add(CHECKS_TO_HANG) {
                let why = format!("killed: {failed} checks in a row failed ({error})");
                return kill(member, After::Restart(why));
            }
            vec![]
        }
    }
}

fn tick(member: &mut Supervised, now: Moment) -> Vec<Action> {
    let late = !member.was_healthy && now >= member.ready_by;
    match &mut member.phase {
        Phase::Preparing if late => {
            let why = format!("not prepared within {}", humane(member.policy.prepare_timeout()));
            fail(member, why)
        }
        Phase::Waiting { .. } if late => {
            let why = not_healthy(member, member.reason.as_deref());
            fail(member, why)
        }
        Phase::Waiting { until } if now >= *until => {
            member.phase = Phase::Preparing;
            vec![Action::Prepare]
        }
        Phase::Running(running) if !running.passed && now >= running.ready_by => {
            let error = running.last_error.clone();
            let why = not_healthy(member, error.as_deref());
            kill(member, if member.was_healthy { After::Restart(why) } else { After::GiveUp(why) })
        }
        Phase::Running(running) if !running.checking && now >= running.next_check => {
            running.checking = true;
            vec![Action::Check]
        }
        Phase::Stopping { kill_at, .. } if kill_at.is_some_and(|at| now >= at) => {
            *kill_at = None;
            let waited = humane(member.policy.stop_timeout);
            member.reason = Some(format!("still ran {waited} after SIGTERM; sent SIGKILL"));
            vec![Action::Kill]
        }
        _ => vec![],
    }
}

fn kill(member: &mut Supervised, then: After) -> Vec<Action> {
    let (After::Restart(why) | After::GiveUp(why)) = &then;
    member.reason = Some(why.clone());
    member.phase = Phase::Killing { then };
    vec![Action::Kill]
}

fn fail(member: &mut Supervised, reason: String) -> Vec<Action> {
    member.phase = Phase::Failed;
    member.reason = Some(reason);
    vec![]
}

fn not_healthy(member: &Supervised, last: Option<&str>) -> String {
    let bound = member.policy.start_timeout_shown();
    format!("not healthy within {bound}: {}", last.unwrap_or("no check was answered"))
}

fn with_log(reason: &str, log: &str) -> String {
    if log.is_empty() { reason.to_owned() } else { format!("{reason}: {log}") }
}

fn humane(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    denv_schema::quantity::Period::from_millis(ms).to_string()
}

#[cfg(test)]
mod tests;
