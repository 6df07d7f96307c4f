use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;

use super::transport::ConnectError;
use super::unit::Unit;

/// Puts the unit into rotation whenever the control plane wants it there and it passes a check, and takes it out
/// when it was doubted and fails one.
pub(super) async fn keep_checked(unit: Arc<Unit>) {
    let mut passed_at: Option<Instant> = None;
    loop {
        if !unit.is_wanted() || unit.is_healthy() {
            tokio::select! {
                () = unit.doubted.notified() => {
                    if unit.is_wanted() && unit.is_healthy() && check(&unit).await.is_err() {
                        unit.eject();
                    }
                }
                () = tokio::time::sleep(PRUNE_INTERVAL) => unit.prune(),
            }
            continue;
        }
        if passed_at.is_some_and(|at| at.elapsed() < STEADY) {
            // It passes checks but fails requests: no faster than this in and out.
            tokio::time::sleep(RECHECK_INTERVAL).await;
        }
        let mut failures = 0u32;
        while unit.is_wanted() && !unit.is_healthy() {
            match check(&unit).await {
                Ok(()) => {
                    tracing::info!(unit = %unit.route.unit, generation = unit.route.generation, "in rotation");
                    passed_at = Some(Instant::now());
                    unit.passed();
                }
                Err(error) => {
                    if failures == 0 {
                        let error = &error as &dyn Error;
                        tracing::warn!(unit = %unit.route.unit, error, "not in rotation: the unit fails its check");
                    }
                    tokio::time::sleep((FIRST_RECHECK * 2u32.saturating_pow(failures)).min(RECHECK_INTERVAL))
                        .await;
                    failures = (failures + 1).min(8);
                }
            }
        }
    }
}

const FIRST_RECHECK: Duration = Duration::from_millis(100);
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
const STEADY: Duration = Duration::from_secs(5);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

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

/// Goes the whole way to the engine, on a connection of its own, which then is the first that requests use.
async fn check(unit: &Unit) -> Result<(), CheckError> {
    let attempt = async {
        let mut connection = unit.connect().await?;
        let response = unit.get_health(&mut connection).await?;
        let status = response.status();
        response.into_body().collect().await?;
        if status != http::StatusCode::OK {
            return Err(CheckError::Unhealthy(status));
        }
        unit.keep(connection);
        Ok(())
    };
    tokio::time::timeout(CHECK_TIMEOUT, attempt).await.unwrap_or(Err(CheckError::TimedOut))
}
