//! What can't be done yet, and why.

use std::fmt;

use denv_schema::manifest::Window;
use denv_schema::{Name, StageId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why something does not go on, in a form a person can act on when it is displayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitingOn {
    /// No host of the fleet has what a unit needs.
    Room {
        fleet: Name,
        needs: String,
        most_free: u32,
        on: Option<Name>,
        left_out: Vec<String>,
        remedy: String,
    },
    /// denv can't start what the release asks for, there.
    Unsupported {
        release: Name,
        fleet: Name,
        what: String,
    },
    /// So many hosts are silent that denv suspects itself.
    SilentHosts {
        silent: u32,
        known: u32,
    },
    /// No gateway is heard, so nobody can say what serves. At `until` they count as taken away.
    SilentGateways {
        gateways: Vec<Name>,
        until: Timestamp,
    },
    /// The unit's host is silent; it is replaced at `until`.
    Host {
        host: Name,
        until: Timestamp,
    },
    /// The engine is not healthy yet.
    Start {
        host: Name,
        doing: String,
        until: Timestamp,
    },
    /// Healthy, but these gateways do not route to it yet.
    Gateways {
        gateways: Vec<Name>,
        until: Timestamp,
    },
    /// Requests in flight, by gateway; those that have not confirmed are counted as one.
    Drain {
        inflight: u32,
        unconfirmed: Vec<Name>,
        until: Timestamp,
    },
    Stop {
        host: Name,
    },
    Bake {
        until: Timestamp,
    },
    Units {
        ready: u32,
        of: u32,
    },
    Paused {
        reason: String,
    },
    Held {
        release: Name,
        at: Option<Name>,
        reason: String,
    },
    /// Units failed; the next try waits.
    Repair {
        failures: u32,
        until: Timestamp,
    },
    Unhealthy {
        host: Name,
        reason: String,
    },
    /// A person is to approve the deployment.
    Approval {
        stage: StageId,
        to: Name,
    },
    /// The stage's windows are closed; this one is the next to be open, at `until`.
    Window {
        window: Window,
        until: Timestamp,
    },
    /// A freeze is on and ends at `ends`. Where no window is open then, `window` is the next to be, at `until`.
    Freeze {
        reason: Option<String>,
        ends: Timestamp,
        window: Option<Window>,
        until: Timestamp,
    },
}

impl WaitingOn {
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            WaitingOn::Host { until, .. }
            | WaitingOn::SilentGateways { until, .. }
            | WaitingOn::Start { until, .. }
            | WaitingOn::Gateways { until, .. }
            | WaitingOn::Drain { until, .. }
            | WaitingOn::Bake { until }
            | WaitingOn::Repair { until, .. }
            | WaitingOn::Window { until, .. }
            | WaitingOn::Freeze { until, .. } => Some(*until),
            WaitingOn::Room { .. }
            | WaitingOn::Approval { .. }
            | WaitingOn::Unsupported { .. }
            | WaitingOn::SilentHosts { .. }
            | WaitingOn::Stop { .. }
            | WaitingOn::Units { .. }
            | WaitingOn::Paused { .. }
            | WaitingOn::Held { .. }
            | WaitingOn::Unhealthy { .. } => None,
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |names: &[Name]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match self {
            WaitingOn::Room { fleet, needs, most_free, on, left_out, remedy } => {
                write!(f, "needs {needs} free on one host of fleet `{fleet}`; ")?;
                match on {
                    Some(host) => write!(f, "the most free is {most_free}, on `{host}`")?,
                    None => write!(f, "no host of it can take units")?,
                }
                if !left_out.is_empty() {
                    write!(f, " ({})", left_out.join(", "))?;
                }
                write!(f, "; {remedy}")
            }
            WaitingOn::Unsupported { release, fleet, what } => {
                write!(f, "release `{release}` can't run on fleet `{fleet}`: {what}")
            }
            WaitingOn::SilentHosts { silent, known } => write!(
                f,
                "{silent} of {known} hosts are silent at once, so denv suspects its own network and replaces nothing; \
                 bring them back, or remove the Host manifests of those that are gone"
            ),
            WaitingOn::SilentGateways { gateways, until } => write!(
                f,
                "no gateway is connected, so nobody can say what serves, and nothing that may be serving leaves; \
                 bring {} back (at {until} they count as taken away)",
                names(gateways)
            ),
            WaitingOn::Host { host, until } => {
                write!(f, "host `{host}` is silent; the unit is replaced at {until}")
            }
            WaitingOn::Start { host, doing, until } => {
                write!(f, "{doing} on `{host}`, until {until} at the latest")
            }
            WaitingOn::Gateways { gateways, .. } if gateways.is_empty() => {
                write!(f, "healthy; no gateway is connected to route to it")
            }
            WaitingOn::Gateways { gateways, .. } => {
                write!(f, "healthy; gateway {} does not route to it yet", names(gateways))
            }
            WaitingOn::Drain { inflight, unconfirmed, until } => {
                write!(f, "{inflight} requests in flight, until {until} at the latest")?;
                if unconfirmed.is_empty() {
                    return Ok(());
                }
                write!(f, "; gateway {} has not confirmed that it left rotation", names(unconfirmed))
            }
            WaitingOn::Stop { host } => write!(f, "the engine is ending on `{host}`"),
            WaitingOn::Bake { until } => write!(f, "watching it stay healthy until {until}"),
            WaitingOn::Units { ready, of } => write!(f, "{ready} of {of} units ready"),
            WaitingOn::Paused { reason } => {
                write!(
                    f,
                    "paused: {reason}; go on with `denv rollout resume`, go back with `denv rollout abort`"
                )
            }
            WaitingOn::Held { release, at: Some(at), reason } => write!(
                f,
                "held at `{at}`, because `{release}` failed: {reason}; commit another release, or `denv rollout retry`"
            ),
            WaitingOn::Held { release, at: None, reason } => write!(
                f,
                "held with nothing running, because `{release}` failed and no release succeeded before it: {reason}; \
                 commit another release, or `denv rollout retry`"
            ),
            WaitingOn::Repair { failures, until } => {
                write!(f, "{failures} units failed in a row; the next is tried at {until}")
            }
            WaitingOn::Unhealthy { host, reason } => write!(f, "unhealthy on `{host}`: {reason}"),
            WaitingOn::Approval { stage, to } => write!(
                f,
                "there is room for `{to}`, and a person is to approve it: `denv rollout approve {stage} --release {to}`"
            ),
            WaitingOn::Window { window, until } => {
                write!(f, "outside its windows until {until}, when `{window}` is open")
            }
            WaitingOn::Freeze { reason, ends, window, until } => {
                write!(f, "frozen until {ends}")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))?;
                let Some(window) = window else { return Ok(()) };
                write!(f, "; then outside its windows until {until}, when `{window}` is open")
            }
        }
    }
}
