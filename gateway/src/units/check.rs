use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_link::dial::DialError;
use http_body_util::BodyExt as _;

use super::transport::ConnectError;
use super::unit::{Connection, Unit};

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
            Err(error) => {
                if failures == 0 {
                    let error = &error as &dyn Error;
                    tracing::warn!(unit = %unit.route.unit, error, "not in rotation: the unit fails its check");
                }
                // It failed before, or it would be in rotation.
                if error.is_of_the_host() {
                    unit.lose();
                }
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
    // A kept connection spares both sides a handshake. That it fails says little, so a new one has the last word;
    // and an engine may be too busy to answer in time, which is no reason to make its neighbours busier.
    let first = match unit.kept() {
        Some(kept) => ask(unit, kept).await,
        None => check(unit).await,
    };
    let error = match first {
        Ok(()) => return,
        Err(error @ CheckError::Unhealthy(_)) => error,
        Err(_) => match check(unit).await {
            Ok(()) => return,
            Err(error) => error,
        },
    };
    if in_rotation && unit.is_wanted() && unit.is_healthy() {
        tracing::warn!(unit = %unit.route.unit, error = &error as &dyn Error, "left rotation");
    }
    if in_rotation {
        unit.eject();
    }
    if error.is_of_the_host() {
        unit.lose();
    }
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

impl CheckError {
    /// The host can't be reached, so what was asked of it may never be answered.
    fn is_of_the_host(&self) -> bool {
        matches!(
            self,
            CheckError::Connect(ConnectError::Dial(DialError::Connect { .. } | DialError::TimedOut { .. }))
        )
    }
}

/// Goes the whole way to the engine, on a connection of its own, which then is the first that requests use.
async fn check(unit: &Unit) -> Result<(), CheckError> {
    ask(unit, unit.connect().await?).await
}

async fn ask(unit: &Unit, mut connection: Connection) -> Result<(), CheckError> {
    let attempt = async {
        let response = unit.get_health(&mut connection).await?;
        let status = response.status();
        response.into_body().collect().await?;
        if status == http::StatusCode::OK { Ok(()) } else { Err(CheckError::Unhealthy(status)) }
    };
    tokio::time::timeout(CHECK_TIMEOUT, attempt).await.unwrap_or(Err(CheckError::TimedOut))?;
    unit.keep(connection);
    Ok(())
}
