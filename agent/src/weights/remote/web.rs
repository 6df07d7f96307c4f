//! One file at an HTTP address; and how any file is read over HTTP.

use std::net::IpAddr;
use std::time::Duration;

use denv_schema::diagnostic::chain;
use denv_weights::{is_hidden, is_name};
use futures::StreamExt as _;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};

use super::{Body, RemoteError, RemoteFile};

/// A file at an address.
pub(crate) struct Page {
    url: Url,
    client: Client,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A source that sends nothing for so long is away.
const SILENCE: Duration = Duration::from_secs(60);

impl Page {
    pub(super) fn new(address: &str) -> Result<Self, RemoteError> {
        let refused = |reason: &str| {
            let place = address.split(['?', '#']).next().unwrap_or_default().to_owned();
            RemoteError::Refused { place, reason: reason.to_owned() }
        };
        let url = Url::parse(address).map_err(|_| refused("it is not an address"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(refused("it is not an address of a file over HTTP"));
        }
        Ok(Page { client: client(&url)?, url })
    }

    pub(super) fn place(&self) -> String {
        place(&self.url)
    }

    /// Asks for the first byte: an address that is signed is so for GET alone, and a HEAD would be refused.
    pub(super) async fn look(&self) -> Result<RemoteFile, RemoteError> {
        let request = self.client.get(self.url.clone()).header(RANGE, "bytes=0-0");
        let response = send(request, &self.place()).await?;
        let bytes = match response.status() {
            StatusCode::PARTIAL_CONTENT => content_range(response.headers()).and_then(|(_, of)| of),
            // There is no first byte.
            StatusCode::RANGE_NOT_SATISFIABLE => Some(0),
            _ => header(response.headers(), &CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        };
        let version = version(response.headers());
        Ok(RemoteFile { name: self.name(), bytes, version, address: self.url.to_string() })
    }

    pub(super) async fn open(&self, file: &RemoteFile, from: u64) -> Result<Body, RemoteError> {
        open(self.client.get(self.url.clone()), self.place(), file, from).await
    }

    /// An engine may go by the file's name, above all by its extension.
    fn name(&self) -> String {
        let last = self.url.path().rsplit('/').next().unwrap_or_default();
        let name = percent_encoding::percent_decode_str(last).decode_utf8_lossy().into_owned();
        let is_good = is_name(&name) && !is_hidden(&name) && !name.contains('/');
        if is_good { name } else { "weights".to_owned() }
    }
}

/// Without what may be secret in an address.
pub(super) fn place(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Fails where there can be none.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.to_string()
}

pub(super) fn client(url: &Url) -> Result<Client, RemoteError> {
    let mut client = Client::builder()
        .user_agent(concat!("denvd/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(SILENCE);
    // The system may have no authorities, and plain HTTP needs none.
    if url.scheme() == "http" {
        client = client.tls_certs_only([]);
    }
    if is_loopback(url) {
        client = client.no_proxy();
    }
    let refused = |error: reqwest::Error| RemoteError::Refused { place: place(url), reason: chain(&error) };
    client.build().map_err(refused)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// An answer that is one. A range that can't be had is left to who asked for it.
pub(super) async fn send(request: RequestBuilder, place: &str) -> Result<Response, RemoteError> {
    let response = request.send().await.map_err(|error| again(place, error))?;
    let place = || place.to_owned();
    let status = response.status();
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(RemoteError::Missing { place: place() }),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(RemoteError::Denied { place: place(), reason: status.to_string() })
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Err(RemoteError::Again { place: place(), reason: format!("it answers {status}") })
        }
        StatusCode::RANGE_NOT_SATISFIABLE => Ok(response),
        _ if status.is_success() => Ok(response),
        _ if status.is_server_error() => {
            Err(RemoteError::Again { place: place(), reason: format!("it answers {status}") })
        }
        _ => Err(RemoteError::Refused { place: place(), reason: format!("it answers {status}") }),
    }
}

pub(super) async fn open(
    request: RequestBuilder,
    place: String,
    file: &RemoteFile,
    from: u64,
) -> Result<Body, RemoteError> {
    let mut request = request;
    if from > 0 {
        request = request.header(RANGE, format!("bytes={from}-"));
        // Of a file that has changed meanwhile, all is sent.
        let strong = file.version.as_deref().filter(|version| !version.starts_with("W/"));
        if let Some(version) = strong {
            request = request.header(IF_RANGE, version);
        }
    }
    let response = send(request, &place).await?;
    let begins_at = match (response.status(), content_range(response.headers())) {
        (StatusCode::PARTIAL_CONTENT, Some((begins_at, _))) if begins_at == from => from,
        (StatusCode::OK, _) => 0,
        (status, _) => {
            let reason = format!("asked for what follows the first {from} bytes, it answers {status}");
            return Err(RemoteError::Refused { place, reason });
        }
    };
    let chunks =
        response.bytes_stream().map(move |chunk| chunk.map_err(|error| again(&place, error))).boxed();
    Ok(Body { begins_at, chunks })
}

fn again(place: &str, error: reqwest::Error) -> RemoteError {
    RemoteError::Again { place: place.to_owned(), reason: chain(&error.without_url()) }
}

/// Where the content begins, and how long the whole is.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, of) = header(headers, &CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (begins_at, _) = range.split_once('-')?;
    Some((begins_at.parse().ok()?, of.parse().ok()))
}

fn version(headers: &HeaderMap) -> Option<String> {
    header(headers, &ETAG).or_else(|| header(headers, &LAST_MODIFIED)).map(str::to_owned)
}

fn header<'a>(headers: &'a HeaderMap, name: &reqwest::header::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
