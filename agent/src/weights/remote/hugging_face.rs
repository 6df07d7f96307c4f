//! The files of a model at Hugging Face, or at a mirror that speaks like it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;

use super::{Access, Body, RemoteError, RemoteFile, web};

/// A model's repository at a revision.
pub(crate) struct Repository {
    /// `owner/name`, perhaps with `@revision`.
    name: String,
    endpoint: Url,
    token: Option<String>,
    client: Client,
}

/// What the service says of a revision.
#[derive(Deserialize)]
struct Revision {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
}

const ENDPOINT: &str = "https://huggingface.co";
/// What stands in a path as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

impl Repository {
    pub(super) fn new(name: &str, access: &Access) -> Result<Self, RemoteError> {
        let endpoint = access.get("HF_ENDPOINT").unwrap_or(ENDPOINT).trim_end_matches('/');
        let refused = || {
            let reason = "denvd's `HF_ENDPOINT` is not an address".to_owned();
            RemoteError::Refused { place: format!("hf:{name}"), reason }
        };
        let endpoint =
            Url::parse(endpoint).ok().filter(|url| url.host_str().is_some()).ok_or_else(refused)?;
        let token = access.get("HF_TOKEN").map(str::to_owned);
        Ok(Repository { name: name.to_owned(), client: web::client(&endpoint)?, endpoint, token })
    }

    pub(super) fn place(&self) -> String {
        format!("hf:{}", self.name)
    }

    /// A branch may move while its files are fetched, so they are those of the commit it is at now.
    pub(super) async fn list(&self) -> Result<Vec<RemoteFile>, RemoteError> {
        let (name, revision) = self.name.split_once('@').unwrap_or((&self.name, "main"));
        let mut url = self.below(&format!("api/models/{name}/revision/{revision}"));
        url.set_query(Some("blobs=true"));
        let answer = web::send(self.get(url), &self.place()).await?.json().await;
        let found: Revision = answer.map_err(|error| RemoteError::Again {
            place: self.place(),
            reason: format!("its answer is not understood: {}", error.without_url()),
        })?;
        let file = |sibling: Sibling| RemoteFile {
            address: format!("{name}/resolve/{}/{}", found.sha, sibling.rfilename),
            name: sibling.rfilename,
            bytes: sibling.size,
            version: sibling.blob_id,
        };
        Ok(found.siblings.into_iter().map(file).collect())
    }

    pub(super) async fn open(&self, file: &RemoteFile, from: u64) -> Result<Body, RemoteError> {
        // What is at a commit does not change, and its identity there is no ETag.
        let file = RemoteFile { version: None, ..file.clone() };
        let place = format!("{}/{}", self.place(), file.name);
        web::open(self.get(self.below(&file.address)), place, &file, from).await
    }

    /// The token goes to the endpoint alone: where that redirects to another host, it is left out.
    fn get(&self, url: Url) -> RequestBuilder {
        let request = self.client.get(url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    fn below(&self, path: &str) -> Url {
        let mut url = self.endpoint.clone();
        let folder = self.endpoint.path().trim_end_matches('/');
        url.set_path(&format!("{folder}/{}", utf8_percent_encode(path, PATH)));
        url
    }
}
