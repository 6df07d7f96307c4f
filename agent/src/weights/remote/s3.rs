//! Objects of a bucket: one, or all below a prefix.

use std::time::Duration;

use denv_schema::diagnostic::chain;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectMeta, ObjectStore as _, ObjectStoreExt as _,
    RetryConfig,
};

use super::{Access, Body, RemoteError, RemoteFile};

/// One object, or those below a prefix.
pub(crate) struct Objects {
    bucket: String,
    key: Path,
    /// A key that ends with `/` is a prefix; another may be either.
    is_prefix: bool,
    store: AmazonS3,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A store that sends nothing for so long is away.
const SILENCE: Duration = Duration::from_secs(60);
/// What fails beyond that is tried again from where it broke off.
const RETRIES: usize = 2;
const RETRY_WITHIN: Duration = Duration::from_secs(10);
/// A store says why in a page of XML.
const REASON_LENGTH: usize = 200;

impl Objects {
    /// `place` is `//bucket/key`.
    pub(super) fn new(place: &str, access: &Access) -> Result<Self, RemoteError> {
        let refused = |reason: String| RemoteError::Refused { place: format!("s3:{place}"), reason };
        let (bucket, key) = place
            .strip_prefix("//")
            .and_then(|place| place.split_once('/'))
            .ok_or_else(|| refused("it is not like `s3://bucket/path`".to_owned()))?;
        let options = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(SILENCE)
            // Of a whole object, which takes what it takes.
            .with_timeout_disabled();
        let retry =
            RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_WITHIN, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new().with_client_options(options).with_retry(retry);
        for (name, value) in &access.variables {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder.with_bucket_name(bucket).build().map_err(|error| refused(reason(&error)))?;
        let parsed = Path::parse(key.trim_end_matches('/')).map_err(|error| refused(chain(&error)))?;
        Ok(Objects { bucket: bucket.to_owned(), key: parsed, is_prefix: key.ends_with('/'), store })
    }

    pub(super) fn place(&self) -> String {
        let end = if self.is_prefix { "/" } else { "" };
        format!("s3://{}/{}{end}", self.bucket, self.key)
    }

    pub(super) async fn list(&self) -> Result<Vec<RemoteFile>, RemoteError> {
        if !self.is_prefix {
            match self.store.head(&self.key).await {
                Ok(object) => {
                    let name = self.key.filename().unwrap_or("weights").to_owned();
                    return Ok(vec![file(name, object)]);
                }
                // Without the right to list, a store says of what is not there that it may not be seen.
                Err(Error::NotFound { .. } | Error::PermissionDenied { .. }) => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        let objects = self.store.list(Some(&self.key)).try_collect::<Vec<ObjectMeta>>().await;
        let named = |object: ObjectMeta| {
            let parts = object.location.prefix_match(&self.key)?;
            let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
            (!name.is_empty()).then(|| file(name, object))
        };
        let files = objects.map_err(|error| self.error(error))?.into_iter().filter_map(named);
        Ok(without_folders(files.collect()))
    }

    pub(super) async fn open(&self, file: &RemoteFile, from: u64) -> Result<Body, RemoteError> {
        let location = Path::parse(&file.address)
            .map_err(|error| RemoteError::Refused { place: self.place(), reason: chain(&error) })?;
        let options = GetOptions {
            range: (from > 0).then_some(GetRange::Offset(from)),
            // Entity tags are quoted.
            if_match: file.version.clone().filter(|version| version.starts_with('"')),
            ..GetOptions::default()
        };
        let got = self.store.get_opts(&location, options).await.map_err(|error| self.error(error))?;
        let begins_at = got.range.start;
        let place = self.place();
        let again = move |error: Error| RemoteError::Again { place: place.clone(), reason: reason(&error) };
        let chunks = got.into_stream().map(move |chunk| chunk.map_err(&again));
        Ok(Body { begins_at, chunks: chunks.boxed() })
    }

    fn error(&self, error: Error) -> RemoteError {
        let place = self.place();
        let status = match &error {
            Error::NotFound { .. } => Some(404),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Some(403),
            Error::Precondition { .. } => {
                return RemoteError::Refused { place, reason: "it changed while it was fetched".to_owned() };
            }
            // Only the words say what a listing was answered.
            _ => status_in(&innermost(&error)),
        };
        let reason = reason(&error);
        match status {
            Some(404) => RemoteError::Missing { place },
            Some(401 | 403) => RemoteError::Denied { place, reason },
            Some(408 | 429) | None => RemoteError::Again { place, reason },
            Some(status) if status >= 500 => RemoteError::Again { place, reason },
            Some(_) => RemoteError::Refused { place, reason },
        }
    }
}

/// Those around it repeat addresses.
fn innermost(error: &Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}

/// `… status code: 403 Forbidden: …`.
fn status_in(text: &str) -> Option<u16> {
    text.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// What the store says in its XML, or what kept it from saying anything.
fn reason(error: &Error) -> String {
    let text = innermost(error);
    let said = text.split("<Message>").nth(1).and_then(|rest| rest.split("</Message>").next());
    let text = said.or_else(|| text.split_once("status code: ").map(|(_, status)| status)).unwrap_or(&text);
    text.trim().trim_end_matches(':').chars().take(REASON_LENGTH).collect()
}

fn file(name: String, object: ObjectMeta) -> RemoteFile {
    let version = object.e_tag.unwrap_or_else(|| object.last_modified.to_rfc3339());
    RemoteFile {
        name,
        bytes: Some(object.size),
        version: Some(version),
        address: object.location.to_string(),
    }
}

/// Some tools make an empty object for each folder.
fn without_folders(files: Vec<RemoteFile>) -> Vec<RemoteFile> {
    let is_folder = |file: &RemoteFile| {
        let inside = format!("{}/", file.name);
        file.bytes == Some(0) && files.iter().any(|other| other.name.starts_with(&inside))
    };
    files.iter().filter(|file| !is_folder(file)).cloned().collect()
}
