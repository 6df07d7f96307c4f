use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::units::Member;

use super::error::ProxyError;

/// The host of the member that works on the request can't be reached any more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the unit's host cannot be reached")]
pub(super) struct UnitLost;

/// How often a wait looks whether the unit is still there.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// Waits for what a member of a unit says: for at most `silence`, and only while its host can be reached. A partition breaks no
/// connection, so without this its requests would wait for as long as an engine may think.
pub(super) async fn heard_from<T>(
    member: &Member,
    silence: Duration,
    said: impl Future<Output = T>,
) -> Result<Result<T, UnitLost>, ProxyError> {
    let (mut said, began) = (pin!(said), Instant::now());
    loop {
        let left = silence.saturating_sub(began.elapsed());
        match tokio::time::timeout(left.min(LOOK), &mut said).await {
            Ok(said) => return Ok(Ok(said)),
            Err(_) if began.elapsed() >= silence => return Err(ProxyError::EngineSilent),
            Err(_) if member.is_lost() => return Ok(Err(UnitLost)),
            Err(_) => {}
        }
    }
}
