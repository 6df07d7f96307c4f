//! What can't be done yet, and why.

use std::fmt;

use denv_schema::manifest::Window;
use denv_schema::wire::FetchedBytes;
use denv_schema::{Name, StageId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why something does not go on, in a form a person can act on when it is displayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitingOn {
    /// No domain of the fleet has what a unit needs.
    Room(Box<NoRoom>),
    /// Hosts and gateways are dialling in, and may run or serve what the records can't say.
    Recovery {
        until: Timestamp,
    },
    /// A host does not have yet what the release's units are started from.
    Prefetch(NotPrepared),
    /// No ports are left for another member there.
    Ports {
        host: Name,
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
    /// The unit's host is silent, and given up at `until`; none: it has been.
    Host {
        host: Name,
        until: Option<Timestamp>,
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
    /// What was planned for it would break an invariant, so none of it is done.
    Unsound {
        said: String,
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
    /// An alarm fires already, before anything new has begun.
    Alarm {
        alarm: Name,
        reason: String,
    },
    /// An alarm has too little to say of the new release yet. At `until` its manifest says what that means.
    Measures {
        alarm: Name,
        reason: String,
        until: Timestamp,
    },
    /// A parity suite's reference is away; it is asked again at `until`, or as soon as it is there.
    Reference {
        suite: Name,
        reason: String,
        until: Option<Timestamp>,
    },
    /// A parity suite is run, or is to be run again at `until`.
    Trial {
        suite: Name,
        reason: String,
        until: Option<Timestamp>,
    },
    /// It is healthy, and takes no requests before its release has passed its gate.
    Gate,
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

/// What a unit needs and no domain of a fleet has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NoRoom {
    pub fleet: Name,
    pub needs: String,
    /// `on one host`, `in one domain` or `in all`.
    pub within: String,
    pub most_free: u32,
    /// The domain where that is.
    pub on: Option<Name>,
    /// How it would have to be free, where as much is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Hosts that can take nothing, by why.
    pub left_out: Vec<String>,
    pub remedy: String,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoRoom { fleet, needs, within, most_free, on, shape, left_out, remedy } = self;
        write!(f, "needs {needs} free {within} of fleet `{fleet}`; ")?;
        match on {
            Some(domain) => write!(f, "the most free is {most_free}, on `{domain}`")?,
            None if *most_free > 0 => write!(f, "{most_free} are free")?,
            None => write!(f, "no host of it can take units")?,
        }
        shape.as_ref().map_or(Ok(()), |shape| write!(f, ", but not as needed: {shape}"))?;
        if !left_out.is_empty() {
            write!(f, " ({})", left_out.join(", "))?;
        }
        write!(f, "; {remedy}")
    }
}

/// How many of the hosts that are to take new units have what those are started from, and one that has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotPrepared {
    pub release: Name,
    pub ready: u32,
    pub of: u32,
    pub host: Name,
    /// Why that host can't prepare it, if it is not just at it.
    pub reason: Option<String>,
    /// How much of it that host has fetched, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<FetchedBytes>,
}

impl fmt::Display for NotPrepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotPrepared { release, ready, of, host, reason, fetched } = self;
        write!(f, "{ready} of {of} hosts have prepared `{release}`, and nothing moves before all have; ")?;
        match (reason, fetched) {
            (Some(reason), _) => write!(
                f,
                "`{host}` cannot: {reason}. Mend it there, it is tried again every few seconds; or cordon the host"
            ),
            (None, Some(fetched)) => write!(f, "`{host}` has fetched {fetched}"),
            (None, None) => write!(f, "`{host}` is at it"),
        }
    }
}

impl WaitingOn {
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            WaitingOn::Recovery { until }
            | WaitingOn::SilentGateways { until, .. }
            | WaitingOn::Start { until, .. }
            | WaitingOn::Gateways { until, .. }
            | WaitingOn::Drain { until, .. }
            | WaitingOn::Bake { until }
            | WaitingOn::Measures { until, .. }
            | WaitingOn::Repair { until, .. }
            | WaitingOn::Window { until, .. }
            | WaitingOn::Freeze { until, .. } => Some(*until),
            WaitingOn::Host { until, .. }
            | WaitingOn::Reference { until, .. }
            | WaitingOn::Trial { until, .. } => *until,
            WaitingOn::Alarm { .. } | WaitingOn::Gate => None,
            WaitingOn::Room(_)
            | WaitingOn::Prefetch(_)
            | WaitingOn::Ports { .. }
            | WaitingOn::Approval { .. }
            | WaitingOn::Unsupported { .. }
            | WaitingOn::SilentHosts { .. }
            | WaitingOn::Stop { .. }
            | WaitingOn::Units { .. }
            | WaitingOn::Paused { .. }
            | WaitingOn::Unsound { .. }
            | WaitingOn::Held { .. }
            | WaitingOn::Unhealthy { .. } => None,
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitingOn::Room(missing) => missing.fmt(f),
            WaitingOn::Prefetch(not_prepared) => not_prepared.fmt(f),
            WaitingOn::Recovery { until } => {
                write!(
                    f,
                    "hosts that may run it already, and gateways that may send to it, are heard until {until}"
                )
            }
            WaitingOn::Ports { host } => {
                write!(f, "all ports for members are taken on `{host}`; move units away from it")
            }
            WaitingOn::Unsupported { release, fleet, what } => {
                write!(f, "release `{release}` can't run on fleet `{fleet}`: {what}")
            }
            WaitingOn::SilentHosts { silent, known } => write!(
                f,
                "{silent} of {known} hosts are silent at once, so denv suspects its own network and replaces nothing; \
                 bring them back, or remove the Host manifests of those that are gone"
            ),
            WaitingOn::SilentGateways { gateways, until } => deaf(f, gateways, *until),
            WaitingOn::Host { host, until } => silent(f, host, *until),
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
            WaitingOn::Unsound { said } => write!(
                f,
                "stands still, because what was planned would break an invariant: {said}. The fault is denv's own: report it \
                 with what `denv snapshot` says"
            ),
            WaitingOn::Held { release, at, reason } => held(f, release, at.as_ref(), reason),
            WaitingOn::Repair { failures, until } => {
                write!(f, "{failures} units failed in a row; the next is tried at {until}")
            }
            WaitingOn::Unhealthy { host, reason } => write!(f, "unhealthy on `{host}`: {reason}"),
            WaitingOn::Approval { stage, to } => write!(
                f,
                "there is room for `{to}`, and a person is to approve it: `denv rollout approve {stage} --release {to}`"
            ),
            WaitingOn::Alarm { alarm, reason } => write!(
                f,
                "alarm `{alarm}` fires already: {reason}; nothing new begins until it is quiet, or the stage leaves it out"
            ),
            WaitingOn::Measures { alarm, reason, until } => {
                write!(f, "alarm `{alarm}` has too little to say: {reason}; more is waited for until {until}")
            }
            WaitingOn::Reference { suite, reason, until } => {
                write!(f, "the reference of parity suite `{suite}` is away: {reason}")?;
                match until {
                    Some(until) => write!(f, "; it is asked again at {until}")?,
                    None => f.write_str("; it is asked as soon as it is there")?,
                }
                f.write_str(". Bring it back, or name another in the suite")
            }
            WaitingOn::Trial { suite, reason, until: Some(until) } => {
                write!(f, "parity suite `{suite}` says nothing yet: {reason}; it is run again at {until}")
            }
            WaitingOn::Trial { suite, reason, until: None } => {
                write!(f, "parity suite `{suite}` is run: {reason}")
            }
            WaitingOn::Gate => f.write_str("healthy; takes requests once its release has passed its gate"),
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

fn deaf(f: &mut fmt::Formatter<'_>, gateways: &[Name], until: Timestamp) -> fmt::Result {
    let bring = match gateways.is_empty() {
        true => "connect those there are".to_owned(),
        false => format!("bring {} back", names(gateways)),
    };
    write!(
        f,
        "no gateway is connected, so nobody can say what serves, and nothing that may be serving leaves; {bring} (at {until} \
         they count as taken away)"
    )
}

fn names(names: &[Name]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn silent(f: &mut fmt::Formatter<'_>, host: &Name, until: Option<Timestamp>) -> fmt::Result {
    match until {
        Some(until) => write!(f, "host `{host}` is silent; the unit is replaced at {until}"),
        None => write!(
            f,
            "host `{host}` was silent for too long; the unit is replaced where there is room, and what is too many \
             leaves when the host is back"
        ),
    }
}

fn held(f: &mut fmt::Formatter<'_>, release: &Name, at: Option<&Name>, reason: &str) -> fmt::Result {
    match at {
        Some(at) => write!(f, "held at `{at}`, because `{release}` failed: {reason}")?,
        None => write!(
            f,
            "held with nothing running, because `{release}` failed and no release succeeded before it: {reason}"
        )?,
    }
    f.write_str("; commit another release, or `denv rollout retry`")
}
