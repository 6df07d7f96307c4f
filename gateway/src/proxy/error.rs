use http::StatusCode;

use crate::admission::AdmissionError;
use crate::meter::Unwritable;
use crate::metrics::Outcome;
use crate::request::RequestError;
use crate::units::NoUnit;

use super::body::MAX_REQUEST_BYTES;

/// Why a request is answered by the gateway and not by an engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the body is larger than {} MiB", MAX_REQUEST_BYTES >> 20)]
    RequestTooLarge,
    #[error("the body ended before it was whole")]
    RequestBroken,
    #[error(transparent)]
    NoUnit(NoUnit),
    #[error("usage cannot be recorded, so nothing is served: the gateway's disk is full or broken")]
    LedgerUnwritable,
    #[error("the engine ended before it answered; the request may be sent again")]
    EngineEnded,
    #[error("the engine did not answer in time")]
    EngineSilent,
    #[error("the engine's answer is too large")]
    AnswerTooLarge,
}

impl ProxyError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            ProxyError::Admission(AdmissionError::NoConfiguration) => StatusCode::SERVICE_UNAVAILABLE,
            ProxyError::Admission(
                AdmissionError::NoKey | AdmissionError::WrongKey | AdmissionError::ExpiredKey,
            ) => StatusCode::UNAUTHORIZED,
            ProxyError::Admission(AdmissionError::UnknownModel(_)) => StatusCode::NOT_FOUND,
            ProxyError::Request(_) | ProxyError::RequestBroken => StatusCode::BAD_REQUEST,
            ProxyError::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ProxyError::NoUnit(NoUnit::Full) => StatusCode::TOO_MANY_REQUESTS,
            ProxyError::NoUnit(NoUnit::NoneReady) => StatusCode::SERVICE_UNAVAILABLE,
            ProxyError::LedgerUnwritable => StatusCode::SERVICE_UNAVAILABLE,
            ProxyError::EngineEnded | ProxyError::AnswerTooLarge => StatusCode::BAD_GATEWAY,
            ProxyError::EngineSilent => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The class of the error, in the words of OpenAI's API where it has some.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ProxyError::Admission(
                AdmissionError::NoKey | AdmissionError::WrongKey | AdmissionError::ExpiredKey,
            )
            | ProxyError::Admission(AdmissionError::UnknownModel(_))
            | ProxyError::Request(_)
            | ProxyError::RequestTooLarge
            | ProxyError::RequestBroken => "invalid_request_error",
            ProxyError::NoUnit(NoUnit::Full) => "rate_limit_error",
            ProxyError::Admission(AdmissionError::NoConfiguration)
            | ProxyError::NoUnit(NoUnit::NoneReady)
            | ProxyError::LedgerUnwritable => "service_unavailable_error",
            ProxyError::EngineEnded | ProxyError::EngineSilent | ProxyError::AnswerTooLarge => {
                "engine_failed"
            }
        }
    }

    pub(crate) fn code(&self) -> Option<&'static str> {
        match self {
            ProxyError::Admission(AdmissionError::NoConfiguration) => Some("no_configuration"),
            ProxyError::Admission(
                AdmissionError::NoKey | AdmissionError::WrongKey | AdmissionError::ExpiredKey,
            ) => Some("invalid_api_key"),
            ProxyError::Admission(AdmissionError::UnknownModel(_)) => Some("model_not_found"),
            ProxyError::Request(_) | ProxyError::RequestBroken => None,
            ProxyError::RequestTooLarge => Some("request_too_large"),
            ProxyError::NoUnit(NoUnit::Full) => Some("overloaded"),
            ProxyError::NoUnit(NoUnit::NoneReady) => Some("no_ready_unit"),
            ProxyError::LedgerUnwritable => Some("ledger_unwritable"),
            ProxyError::EngineEnded => Some("retryable"),
            ProxyError::EngineSilent => Some("engine_silent"),
            ProxyError::AnswerTooLarge => Some("answer_too_large"),
        }
    }

    /// Which of the request's fields is to blame.
    pub(crate) fn param(&self) -> Option<&'static str> {
        match self {
            ProxyError::Admission(AdmissionError::UnknownModel(_))
            | ProxyError::Request(RequestError::NoModel) => Some("model"),
            ProxyError::Request(RequestError::WrongType(field)) => Some(field),
            _ => None,
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        match self {
            ProxyError::EngineEnded | ProxyError::EngineSilent | ProxyError::AnswerTooLarge => {
                Outcome::EngineFailed
            }
            _ => Outcome::Refused,
        }
    }
}

impl From<Unwritable> for ProxyError {
    /// The cause is an operator's matter, and in the log; clients are not told of disks.
    fn from(_: Unwritable) -> Self {
        ProxyError::LedgerUnwritable
    }
}
