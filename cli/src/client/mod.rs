//! The control plane's HTTP API. It knows routes, tokens and failures, and nothing of what is shown.

mod connection;
mod routes;
mod sse;
mod watch;

use std::error::Error as _;
use std::time::Duration;

use denv_schema::api::{ErrorBody, List};
use denv_schema::{Diagnostics, Name};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use connection::{Connection, ConnectionError};
pub(crate) use routes::EventsQuery;
pub(crate) use watch::{Happening, Watch};

use connection::{Token, TokenSource};

#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: Url,
    tenant: Option<Name>,
    token: Option<Token>,
    source: TokenSource,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("cannot reach the control plane at {server}")]
    Unreachable { server: String, source: RootCause },
    #[error("the control plane at {server} does not accept {given}")]
    Unauthorised { server: String, given: TokenSource },
    /// It understood and says no.
    #[error("{message}")]
    Refused { message: String, hint: Option<String>, status: StatusCode, diagnostics: Diagnostics },
    #[error("{server} answered {status}, and not as a control plane does")]
    Unexpected { server: String, status: StatusCode },
    #[error("the control plane's answer is not what this `denv` understands")]
    Malformed(#[source] serde_json::Error),
}

/// What is at the bottom of a failed request; what stands above it says nothing to people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RootCause(String);

/// An answer as it was sent.
pub(crate) struct Answer(pub Value);

impl Answer {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        read(&self.0)
    }

    pub(crate) fn items<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        self.read::<List<T>>().map(|list| list.items)
    }
}

pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, ClientError> {
    T::deserialize(value).map_err(ClientError::Malformed)
}

/// An answer that takes longer will not come. Refreshing a source waits for its remote.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

impl Client {
    async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Answer, ClientError> {
        self.answer(self.request(Method::GET, path).query(query)).await
    }

    async fn post<T: Serialize>(&self, path: &[&str], body: &T) -> Result<Answer, ClientError> {
        self.answer(self.request(Method::POST, path).json(body)).await
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Answer, ClientError> {
        let response = self.send(request.timeout(ANSWER_TIMEOUT)).await?;
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&bytes).map(Answer).map_err(ClientError::Malformed)
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if let Some(tenant) = &self.tenant {
            url.query_pairs_mut().append_pair("tenant", tenant.as_str());
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token.secret()),
            None => request,
        }
    }

    /// Sends it, and gives only a good answer.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let server = self.address();
        if status == StatusCode::UNAUTHORIZED {
            return Err(ClientError::Unauthorised { server, given: self.source.clone() });
        }
        match response.json::<ErrorBody>().await {
            Ok(ErrorBody { error }) => Err(ClientError::Refused {
                message: error.message,
                hint: error.hint,
                status,
                diagnostics: error.diagnostics,
            }),
            Err(_) => Err(ClientError::Unexpected { server, status }),
        }
    }

    /// As it was typed.
    fn address(&self) -> String {
        self.server.as_str().trim_end_matches('/').to_owned()
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let mut root = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            root = error.to_string();
            cause = error.source();
        }
        ClientError::Unreachable { server: self.address(), source: RootCause(root) }
    }
}

impl ClientError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            ClientError::Unreachable { source, .. } if source.0.contains("certificate") => {
                "trust the control plane's authority with --ca FILE or DENV_CA"
            }
            ClientError::Unreachable { .. } | ClientError::Unexpected { .. } => {
                "is `denv-reconciler` running there? Another address is given with --server or DENV_SERVER"
            }
            ClientError::Unauthorised { .. } => connection::HOW_TO_GIVE_A_TOKEN,
            ClientError::Refused { hint, .. } => return hint.clone(),
            ClientError::Malformed(_) => {
                "is this `denv` older than the control plane? `-o json` shows the answer as it is"
            }
        };
        Some(hint.to_owned())
    }

    /// It may go better in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } => true,
            ClientError::Refused { status, .. } | ClientError::Unexpected { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            ClientError::Unauthorised { .. } | ClientError::Malformed(_) => false,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, ClientError::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// The control plane understood, and the answer is no.
    pub(crate) fn is_refusal(&self) -> bool {
        let denied = |status: &StatusCode| *status == StatusCode::FORBIDDEN || status.is_server_error();
        matches!(self, ClientError::Refused { status, .. } if !denied(status))
    }
}
