//! Hooks of forges: a push has the remote looked at now instead of at the next poll. They carry no token but the
//! forge's signature, and nothing of what they say is believed beyond that a branch may have moved.

mod event;
mod signature;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State as Extracted};
use axum::http::{HeaderMap, StatusCode};
use denv_schema::api::HookAnswer;

use super::{Api, ApiError};
use event::{Followed, Meaning, meaning};

/// Forges send whole lists of commits; past this they cut them themselves.
pub(super) const LARGEST_BODY: usize = 1 << 20;

pub(super) async fn receive(
    Extracted(api): Extracted<Arc<Api>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<HookAnswer>), ApiError> {
    let body = body.map_err(|rejection| ApiError::of(rejection.status(), rejection.body_text()))?;
    // Strangers learn the same from every refusal; the log says more.
    let refuse = |why: String| {
        tracing::debug!(source = name, "a hook was refused: {why}");
        ApiError::of(StatusCode::UNAUTHORIZED, "the hook's signature does not hold").hint(format!(
            "check that there is a source `{}` with a webhook secret, and that the forge has the same secret",
            name.chars().filter(|c| !c.is_control()).take(80).collect::<String>()
        ))
    };
    let source = api.source(&name).map_err(|_| refuse("there is no such source".to_owned()))?;
    let config = source.config();
    let secret =
        config.webhook_secret.as_ref().ok_or_else(|| refuse("it has no webhook secret".to_owned()))?;
    let secret = secret.read().map_err(|error| {
        tracing::warn!(source = name, "hooks are refused: {}", crate::chain(&error));
        refuse("its webhook secret can't be read".to_owned())
    })?;
    if !signature::holds(&headers, &body, secret.expose()) {
        return Err(refuse("its signature does not hold".to_owned()));
    }
    let answer = |status, message: String| Ok((status, Json(HookAnswer { message })));
    match meaning(&headers, &body, &Followed { url: &config.url, branch: &config.branch }) {
        Meaning::Push => {
            source.hook();
            answer(StatusCode::ACCEPTED, format!("source `{name}` is looked at"))
        }
        Meaning::Nothing(why) => answer(StatusCode::OK, format!("ignored: {why}")),
        Meaning::Nonsense(why) => Err(ApiError::bad_request(why)),
    }
}
