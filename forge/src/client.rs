//! Speaking to a forge.

use std::fmt;
use std::time::Duration;

use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::request::{self, Method, Request};
use crate::{Address, Kind, Status};

/// A forge, and the token that is good there.
pub struct Client {
    address: Address,
    token: String,
    http: reqwest::Client,
}

/// Never shows the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What became of a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commented {
    Created,
    Updated,
    /// It said this already.
    Unchanged,
}

#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    #[error("cannot set up HTTPS")]
    Setup(#[source] reqwest::Error),
    #[error("cannot reach {kind} at `{api}`")]
    Unreachable { kind: Kind, api: String, source: reqwest::Error },
    #[error("{kind} asks to wait")]
    Busy { kind: Kind, wait: Option<Duration> },
    #[error("{kind} failed ({status})")]
    Failed { kind: Kind, status: StatusCode },
    #[error("{kind} refused the token ({status}); it must be allowed to {may}")]
    Denied { kind: Kind, status: StatusCode, may: &'static str },
    #[error("{kind} refused: {said} ({status})")]
    Refused { kind: Kind, status: StatusCode, said: String },
    #[error("{kind} answered with something else than is documented")]
    Nonsense { kind: Kind, source: reqwest::Error },
}

impl ForgeError {
    /// Whether the same may well succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self, ForgeError::Unreachable { .. } | ForgeError::Busy { .. } | ForgeError::Failed { .. })
    }

    /// How long the forge asked to wait.
    pub fn wait(&self) -> Option<Duration> {
        match self {
            ForgeError::Busy { wait, .. } => *wait,
            _ => None,
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);
/// A pull request with more pages of comments than this gets another one.
const MOST_PAGES: usize = 30;

#[derive(Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: String,
}

impl Client {
    pub fn new(address: Address, token: String) -> Result<Self, ForgeError> {
        let builder = reqwest::Client::builder();
        let builder = builder.user_agent(concat!("denv/", env!("CARGO_PKG_VERSION")));
        // A redirect would take the token to where nobody has sent it.
        let mut builder = builder.redirect(Policy::none()).timeout(TIMEOUT);
        if address.api.starts_with("http://") {
            builder = builder.no_proxy();
        }
        Ok(Client { address, token, http: builder.build().map_err(ForgeError::Setup)? })
    }

    /// Says this of a commit.
    pub async fn set_status(&self, commit: &str, status: &Status) -> Result<(), ForgeError> {
        let may = "set commit statuses";
        match self.send(request::set_status(&self.address, commit, status), may).await {
            // GitLab takes the same state twice for a mistake.
            Err(ForgeError::Refused { kind: Kind::GitLab, said, .. })
                if said.contains("Cannot transition status") =>
            {
                Ok(())
            }
            sent => sent.map(drop),
        }
    }

    /// Makes the comment of this name on a pull request, or brings it up to date.
    pub async fn comment(&self, pull_request: u64, name: &str, text: &str) -> Result<Commented, ForgeError> {
        let may = "read and write pull requests";
        let text = request::marked(self.address.kind, name, text);
        match self.comment_of(pull_request, name, may).await? {
            Some(found) if found.body.trim_end() == text.trim_end() => Ok(Commented::Unchanged),
            Some(found) => {
                let request = request::update_comment(&self.address, pull_request, found.id, &text);
                self.send(request, may).await.map(|_| Commented::Updated)
            }
            None => {
                let request = request::create_comment(&self.address, pull_request, &text);
                self.send(request, may).await.map(|_| Commented::Created)
            }
        }
    }

    async fn comment_of(
        &self,
        pull_request: u64,
        name: &str,
        may: &'static str,
    ) -> Result<Option<Comment>, ForgeError> {
        for page in 1..=MOST_PAGES {
            let answer = self.send(request::comments(&self.address, pull_request, page), may).await?;
            let comments: Vec<Comment> = self.read(answer).await?;
            let (count, kind) = (comments.len(), self.address.kind);
            let found = comments.into_iter().find(|comment| request::is_marked(name, &comment.body));
            if found.is_some() || !request::is_followed(kind, count) {
                return Ok(found);
            }
        }
        Ok(None)
    }

    async fn send(&self, request: Request, may: &'static str) -> Result<Response, ForgeError> {
        let Address { kind, api, .. } = &self.address;
        let Request { method, url, body } = request;
        let mut sent = match method {
            Method::Get => self.http.get(url),
            Method::Post => self.http.post(url),
            Method::Put => self.http.put(url),
            Method::Patch => self.http.patch(url),
        };
        let (header, token) = request::authorization(*kind, &self.token);
        sent = sent.header(header, token).header("accept", "application/json");
        if let Some(body) = body {
            sent = sent.json(&body);
        }
        let answer = sent.send().await.map_err(|source| ForgeError::Unreachable {
            kind: *kind,
            api: api.clone(),
            source: source.without_url(),
        })?;
        self.check(answer, may).await
    }

    async fn check(&self, answer: Response, may: &'static str) -> Result<Response, ForgeError> {
        let (kind, status) = (self.address.kind, answer.status());
        if status.is_success() {
            return Ok(answer);
        }
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = seconds.map(Duration::from_secs);
        let exhausted =
            answer.headers().get("x-ratelimit-remaining").is_some_and(|left| left.as_bytes() == b"0");
        if status == StatusCode::TOO_MANY_REQUESTS
            || status == StatusCode::FORBIDDEN && (exhausted || wait.is_some())
        {
            return Err(ForgeError::Busy { kind, wait });
        }
        if status.is_server_error() {
            return Err(ForgeError::Failed { kind, status });
        }
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(ForgeError::Denied { kind, status, may });
        }
        let said = answer.text().await.unwrap_or_default();
        Err(ForgeError::Refused { kind, status, said: words(&said) })
    }

    async fn read<T: DeserializeOwned>(&self, answer: Response) -> Result<T, ForgeError> {
        let kind = self.address.kind;
        answer.json().await.map_err(|source| ForgeError::Nonsense { kind, source: source.without_url() })
    }
}

/// What an error's body says, on one line of bearable length.
fn words(body: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let said = value.as_ref().and_then(|value| value.get("message")).map(|message| match message.as_str() {
        Some(text) => text.to_owned(),
        None => message.to_string(),
    });
    let said = said.unwrap_or_else(|| "it does not say why".to_owned());
    said.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
