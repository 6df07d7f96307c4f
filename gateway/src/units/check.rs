use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_link::dial::DialError;
use http_body_util::BodyExt as _;

use super::member::{Connection, Member};
use super::transport::ConnectError;
use super::unit::Unit;

/// Puts the unit into rotation whenever the control plane wants it there and it passes a check, and takes it out
/// when it fails one. It is asked again and again, and at once when it was doubted: a host that stops without a
/// word breaks no connection, and an engine that says it is unwell may still take requests.
pub(super) async fn keep_checked(unit: Arc<Unit>) {
    let mut passed_at: Option<Instant> = None;
    loop {
        if unit.is_wanted() && !unit.is_healthy() {
            if passed_at.is_some_and(|at| at.elapsed() < STEADY) {
                // It passes checks but fails requests: no faster than this in and out.
                tokio::time::sleep(RECHECK_INTERVAL).await;
            }
            recover(&unit).await;
            passed_at = Some(Instant::now());
            continue;
        }
        tokio::select! {
            () = unit.doubted.notified() => {}
            () = tokio::time::sleep(CHECK_INTERVAL) => unit.prune(),
        }
        watch(&unit).await;
    }
}

/// Asks until it passes, or nobody wants it any more.
async fn recover(unit: &Unit) {
    let mut failures = 0u32;
    while unit.is_wanted() && !unit.is_healthy() {
        match check(unit).await {
            Ok(()) => {
                tracing::info!(unit = %unit.route.unit, generation = unit.route.generation, "in rotation");
                unit.passed();
            }
            Err(failed) => {
                if failures == 0 {
                    failed.tell("not in rotation");
                }
                // It failed before, or it would be in rotation.
                failed.tell_the_lost();
                let pause = (FIRST_RECHECK * 2u32.saturating_pow(failures)).min(RECHECK_INTERVAL);
                tokio::time::sleep(pause).await;
                failures = (failures + 1).min(8);
            }
        }
    }
}

/// Asks one that is in rotation, or that left it and has requests to finish.
async fn watch(unit: &Unit) {
    let in_rotation = unit.in_rotation();
    if !in_rotation && unit.inflight() == 0 {
        return;
    }
    let Err(failed) = check_quickly(unit).await else { return };
    if in_rotation && unit.is_wanted() && unit.is_healthy() {
        failed.tell("left rotation");
    }
    if in_rotation {
        unit.eject();
    }
    failed.tell_the_lost();
}

const CHECK_INTERVAL: Duration = Duration::from_secs(2);
const FIRST_RECHECK: Duration = Duration::from_millis(100);
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
const STEADY: Duration = Duration::from_secs(5);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the ingress did not answer")]
    Exchange(#[from] hyper::Error),
    #[error("its health check answered {0}")]
    Unhealthy(http::StatusCode),
    #[error("its health check did not answer within 5 s")]
    TimedOut,
}

/// A member that fails its check.
struct Failed<'a> {
    member: &'a Arc<Member>,
    error: CheckError,
}

impl Failed<'_> {
    fn tell(&self, what: &str) {
        let error = &self.error as &dyn Error;
        tracing::warn!(member = %self.member.route.member, error, "{what}: a member of the unit fails its check");
    }

    /// Where the host can't be reached, what was asked of the member may never be answered.
    fn tell_the_lost(&self) {
        if let CheckError::Connect(ConnectError::Dial(
            DialError::Connect { .. } | DialError::TimedOut { .. },
        )) = self.error
        {
            self.member.lose();
        }
    }
}

/// Goes the whole way to each member's engine, on connections of its own, which then are the first that requests use.
async fn check(unit: &Unit) -> Result<(), Failed<'_>> {
    for member in unit.members() {
        ask_anew(unit, member).await.map_err(|error| Failed { member, error })?;
    }
    Ok(())
}

/// The same on kept connections, which spare both sides a handshake. That one fails says little, so a new one has the last
/// word; and an engine may be too busy to answer in time, which is no reason to make its neighbours busier.
async fn check_quickly(unit: &Unit) -> Result<(), Failed<'_>> {
    for member in unit.members() {
        let first = match member.kept() {
            Some(kept) => ask(unit, kept).await,
            None => ask_anew(unit, member).await,
        };
        let checked = match first {
            Ok(()) | Err(CheckError::Unhealthy(_)) => first,
            Err(_) => ask_anew(unit, member).await,
        };
        checked.map_err(|error| Failed { member, error })?;
    }
    Ok(())
}

async fn ask_anew(unit: &Unit, member: &Arc<Member>) -> Result<(), CheckError> {
    ask(unit, member.connect().await?).await
}

async fn ask(unit: &Unit, mut connection: Connection) -> Result<(), CheckError> {
    let attempt = async {
        let response = connection.get_health().await?;
        let status = response.status();
        response.into_body().collect().await?;
        if status == http::StatusCode::OK { Ok(()) } else { Err(CheckError::Unhealthy(status)) }
    };
    tokio::time::timeout(CHECK_TIMEOUT, attempt).await.unwrap_or(Err(CheckError::TimedOut))?;
    unit.keep(connection);
    Ok(())
}
