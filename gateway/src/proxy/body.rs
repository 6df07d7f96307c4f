use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::error::ProxyError;

/// The largest request body that is taken.
pub(super) const MAX_REQUEST_BYTES: usize = 32 << 20;
/// The largest answer that is held until it is whole. No model writes one.
const MAX_ANSWER_BYTES: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is too large")]
    TooLarge,
    #[error("the body ended before it was whole")]
    Broken(#[from] hyper::Error),
    #[error("the body was empty")]
    Empty,
    #[error("what the prefill member answered hands nothing over")]
    NotHandedOver(#[source] serde_json::Error),
    #[error(transparent)]
    UnitLost(#[from] super::patience::UnitLost),
}

pub(super) async fn read_request(body: Incoming) -> Result<Bytes, ProxyError> {
    read(body, MAX_REQUEST_BYTES).await.map_err(|error| match error {
        BodyError::TooLarge => ProxyError::RequestTooLarge,
        BodyError::Broken(_) | BodyError::Empty | BodyError::NotHandedOver(_) | BodyError::UnitLost(_) => {
            ProxyError::RequestBroken
        }
    })
}

pub(super) async fn read_answer(body: Incoming) -> Result<Bytes, BodyError> {
    read(body, MAX_ANSWER_BYTES).await
}

/// What a stream begins with.
pub(super) async fn first_data(body: &mut Incoming) -> Result<Bytes, BodyError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data()
            && !data.is_empty()
        {
            return Ok(data);
        }
    }
    Err(BodyError::Empty)
}

/// A body whole. One that came in one piece, as most do, is not copied.
async fn read(mut body: Incoming, limit: usize) -> Result<Bytes, BodyError> {
    let promised = body.size_hint().lower();
    if promised > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.len() + pieces.len() + data.len() > limit {
            return Err(BodyError::TooLarge);
        }
        if whole.is_empty() && pieces.is_empty() {
            whole = data;
            if body.is_end_stream() {
                break;
            }
            continue;
        }
        if pieces.is_empty() {
            // A length that was promised is room to be made only as far as something of it has come.
            pieces.reserve((promised as usize).min(8 * (whole.len() + data.len())));
            pieces.extend_from_slice(&std::mem::take(&mut whole));
        }
        pieces.extend_from_slice(&data);
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}
