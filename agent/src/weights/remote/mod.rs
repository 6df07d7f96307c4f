//! Where weights come from that are not on the host: which files there are, and their contents from any place on. It
//! refuses to know where they go, and tries nothing twice.

mod hugging_face;
mod s3;
mod web;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use futures::stream::BoxStream;

use hugging_face::Repository;
use s3::Objects;
use web::Page;

/// What this host signs in with, from denvd's environment and nowhere else. `Debug` shows no values.
#[derive(Clone, Default)]
pub struct Access {
    variables: BTreeMap<String, String>,
}

/// A source of weights.
pub(super) enum Remote {
    Page(Page),
    Objects(Objects),
    Repository(Repository),
}

/// A file at a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFile {
    /// Relative to the weights' folder.
    pub(super) name: String,
    /// None where the source does not say.
    pub(super) bytes: Option<u64>,
    /// Changes with the content, where the source says so: what was fetched of one version goes with no other.
    pub(super) version: Option<String>,
    /// Where it is, in the source's own terms.
    address: String,
}

/// A file's content, from some place on.
pub(super) struct Body {
    /// Where it begins: where it was asked to, or at the file's beginning if the source can't do that.
    pub(super) begins_at: u64,
    pub(super) chunks: BoxStream<'static, Result<Bytes, RemoteError>>,
}

/// Why something can't be had. No message has more of an address than its path: a query may be a signature.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It may go better the next time.
    #[error("`{place}` cannot be read: {reason}")]
    Again { place: String, reason: String },
    #[error("there is nothing at `{place}`; correct the release's `source`, or put the weights there")]
    Missing { place: String },
    #[error("this host may not read `{place}` ({reason}); {}", remedy(place))]
    Denied { place: String, reason: String },
    #[error("`{place}` cannot be read: {reason}")]
    Refused { place: String, reason: String },
}

fn remedy(place: &str) -> &'static str {
    let kind = place.split(':').next().unwrap_or_default();
    match kind {
        "s3" => {
            "start denvd with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or give the host a role that may \
             list and get its objects"
        }
        "hf" => "start denvd with an `HF_TOKEN` whose owner may read it",
        _ => {
            "let the host read it without signing in, or name it by an address that is signed and still valid"
        }
    }
}

impl RemoteError {
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, RemoteError::Again { .. })
    }
}

impl Access {
    /// From the environment of this process.
    pub fn from_environment() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl FromIterator<(String, String)> for Access {
    /// Others than `AWS_…` and `HF_…` are of no use.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        let is_used = |(name, _): &(String, String)| name.starts_with("AWS_") || name.starts_with("HF_");
        Access { variables: variables.into_iter().filter(is_used).collect() }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl Remote {
    /// None if the source is of no kind that is fetched.
    pub(super) fn new(source: &str, access: &Access) -> Result<Option<Remote>, RemoteError> {
        Ok(match source.split_once(':') {
            Some(("http" | "https", _)) => Some(Remote::Page(Page::new(source)?)),
            Some(("s3", place)) => Some(Remote::Objects(Objects::new(place, access)?)),
            Some(("hf", name)) => Some(Remote::Repository(Repository::new(name, access)?)),
            _ => None,
        })
    }

    /// What it is called in messages.
    pub(super) fn place(&self) -> String {
        match self {
            Remote::Page(page) => page.place(),
            Remote::Objects(objects) => objects.place(),
            Remote::Repository(repository) => repository.place(),
        }
    }

    /// All files there, in no order.
    pub(super) async fn list(&self) -> Result<Vec<RemoteFile>, RemoteError> {
        match self {
            Remote::Page(page) => Ok(vec![page.look().await?]),
            Remote::Objects(objects) => objects.list().await,
            Remote::Repository(repository) => repository.list().await,
        }
    }

    /// What a file holds beyond its first `from` bytes.
    pub(super) async fn open(&self, file: &RemoteFile, from: u64) -> Result<Body, RemoteError> {
        match self {
            Remote::Page(page) => page.open(file, from).await,
            Remote::Objects(objects) => objects.open(file, from).await,
            Remote::Repository(repository) => repository.open(file, from).await,
        }
    }
}
