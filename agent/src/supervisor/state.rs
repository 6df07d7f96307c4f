use std::time::Duration;

use denv_schema::launch::LaunchSpec;
use denv_schema::wire::MemberState;

use super::humane;

/// Time since the driver began, from a clock that only goes forward.
pub type Moment = Duration;

/// The bounds of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub start_timeout: Duration,
    /// What preparing may take on top of that, where something is fetched. The engine's own time then begins with its launch.
    pub fetch_timeout: Duration,
    pub stop_timeout: Duration,
    /// From an engine's launch to its first check.
    pub first_check: Duration,
    pub probe_interval: Duration,
    pub probe_failures: u32,
}

/// The first check comes this soon after a launch.
const FIRST_CHECK: Duration = Duration::from_millis(200);
/// An engine without a server is taken to work when it has lived this long: what can't start ends sooner.
const SETTLED: Duration = Duration::from_secs(10);
/// A probe without a pause would be a busy loop.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(20);

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervised {
    pub(super) policy: Policy,
    pub(super) phase: Phase,
    /// A check passed in this generation.
    pub(super) was_healthy: bool,
    /// An engine was launched in this generation: the next launch is a restart.
    pub(super) was_launched: bool,
    pub(super) restarts: u32,
    /// Ends of the engine in a row.
    pub(super) exits: u32,
    /// The first check of the generation must have passed by then.
    pub(super) ready_by: Moment,
    pub(super) reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No engine; what it is started from is fetched and verified.
    Preparing,
    Running(Running),
    /// SIGKILL was sent by denvd's own decision.
    Killing {
        then: After,
    },
    /// No engine; the next is started then.
    Waiting {
        until: Moment,
    },
    Failed,
    /// SIGTERM was sent; SIGKILL follows, or was sent when `kill_at` is none. Then the next generation starts, if
    /// there is one.
    Stopping {
        kill_at: Option<Moment>,
        next: Option<Policy>,
    },
    Stopped,
}

/// What follows when a killed engine is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    Restart(String),
    GiveUp(String),
}

/// An engine process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub(super) next_check: Moment,
    pub(super) checking: bool,
    /// This process passed a check.
    pub(super) passed: bool,
    pub(super) healthy_since: Option<Moment>,
    /// Failed checks in a row.
    pub(super) failed: u32,
    pub(super) last_error: Option<String>,
    /// It must have passed a check by then.
    pub(super) ready_by: Moment,
}

impl Running {
    pub(super) fn new(next_check: Moment, ready_by: Moment) -> Self {
        Running {
            next_check,
            ready_by,
            checking: false,
            passed: false,
            healthy_since: None,
            failed: 0,
            last_error: None,
        }
    }
}

impl Policy {
    pub fn of(spec: &LaunchSpec) -> Self {
        let start_timeout = spec.start_timeout.get();
        let (first_check, probe_interval, probe_failures) = match &spec.probe {
            Some(probe) => (FIRST_CHECK, probe.interval.get().max(SHORTEST_INTERVAL), probe.failures),
            None => (SETTLED.min(start_timeout / 2), SETTLED, 1),
        };
        Policy {
            start_timeout,
            fetch_timeout: spec.fetch_timeout(),
            stop_timeout: spec.stop_timeout.get(),
            first_check,
            probe_interval,
            probe_failures,
        }
    }

    pub(super) fn start_timeout_shown(&self) -> String {
        humane(self.start_timeout)
    }

    pub(super) fn prepare_timeout(&self) -> Duration {
        self.start_timeout + self.fetch_timeout
    }
}

impl Supervised {
    /// A generation that begins: what its engine is started from is to be prepared.
    pub fn new(policy: Policy, now: Moment) -> Self {
        Supervised {
            ready_by: now + policy.prepare_timeout(),
            policy,
            phase: Phase::Preparing,
            was_healthy: false,
            was_launched: false,
            restarts: 0,
            exits: 0,
            reason: None,
        }
    }

    /// A generation whose engine runs since before denvd did. It is asked for its health at once.
    pub fn adopted(policy: Policy, was_healthy: bool, restarts: u32, now: Moment) -> Self {
        let mut member = Supervised::ended_unseen(policy, was_healthy, restarts, now);
        member.ready_by = now + member.policy.start_timeout;
        member.phase = Phase::Running(Running::new(now, member.ready_by));
        member.reason = Some("denvd was restarted and has not checked the engine yet".to_owned());
        member
    }

    /// A generation whose engine ended while denvd was away: it is prepared and started again.
    pub fn ended_unseen(policy: Policy, was_healthy: bool, restarts: u32, now: Moment) -> Self {
        let reason = Some("the engine ended while denvd was away; it is being restarted".to_owned());
        Supervised { was_healthy, restarts, was_launched: true, reason, ..Supervised::new(policy, now) }
    }

    /// A generation that had been given up.
    pub fn failed(policy: Policy, was_healthy: bool, restarts: u32, reason: String) -> Self {
        let member = Supervised::ended_unseen(policy, was_healthy, restarts, Moment::ZERO);
        Supervised { phase: Phase::Failed, reason: Some(reason), ..member }
    }

    /// A generation of which nothing is left.
    pub fn stopped(policy: Policy) -> Self {
        Supervised { phase: Phase::Stopped, ..Supervised::new(policy, Moment::ZERO) }
    }

    pub fn state(&self) -> MemberState {
        match &self.phase {
            Phase::Running(running) if running.healthy_since.is_some() => MemberState::Healthy,
            Phase::Preparing | Phase::Running(_) | Phase::Killing { .. } | Phase::Waiting { .. }
                if self.was_healthy =>
            {
                MemberState::Unhealthy
            }
            Phase::Stopping { next: Some(_), .. } => MemberState::Preparing,
            Phase::Preparing => MemberState::Preparing,
            Phase::Running(_) | Phase::Killing { .. } | Phase::Waiting { .. } => MemberState::Starting,
            Phase::Failed => MemberState::Failed,
            Phase::Stopping { next: None, .. } => MemberState::Stopping,
            Phase::Stopped => MemberState::Stopped,
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match &self.phase {
            Phase::Stopping { next: Some(_), .. } => {
                Some(self.reason.as_deref().unwrap_or("the engine of the generation before is being stopped"))
            }
            _ => self.reason.as_deref(),
        }
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    pub fn restarts(&self) -> u32 {
        match self.phase {
            // The count belongs to the generation before.
            Phase::Stopping { next: Some(_), .. } => 0,
            _ => self.restarts,
        }
    }

    /// Ends of the engine without a longer time of health in between.
    pub fn ends_in_a_row(&self) -> u32 {
        match self.phase {
            Phase::Stopping { next: Some(_), .. } => 0,
            _ => self.exits,
        }
    }

    pub fn was_healthy(&self) -> bool {
        self.was_healthy && !matches!(self.phase, Phase::Stopping { next: Some(_), .. })
    }

    /// When [`super::Event::Tick`] is due, unless something happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        let ready_by = (!self.was_healthy).then_some(self.ready_by);
        match &self.phase {
            Phase::Preparing => ready_by,
            Phase::Waiting { until } => Some(ready_by.map_or(*until, |ready_by| ready_by.min(*until))),
            Phase::Running(running) => {
                let check = (!running.checking).then_some(running.next_check);
                let ready_by = (!running.passed).then_some(running.ready_by);
                check.into_iter().chain(ready_by).min()
            }
            Phase::Stopping { kill_at, .. } => *kill_at,
            Phase::Killing { .. } | Phase::Failed | Phase::Stopped => None,
        }
    }
}
