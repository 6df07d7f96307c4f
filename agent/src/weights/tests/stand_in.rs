//! A server that weights are fetched from: files over HTTP, a bucket, a model's repository; with the faults of real ones.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use denv_schema::Digest;
use futures::{StreamExt as _, stream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(super) struct Site {
    pub(super) url: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    faults: Mutex<VecDeque<Fault>>,
    seen: Mutex<Vec<Seen>>,
}

/// What one read of a file meets. Looking what is there meets none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The connection breaks after so many bytes.
    Break(usize),
    /// It ends well after so many bytes, as if they were all.
    Short(usize),
    /// Ranges are not known.
    Whole,
    Status(StatusCode),
    /// Nothing comes.
    Silence,
}

/// A read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) from: u64,
    pub(super) authorization: Option<String>,
}

impl Site {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Site { url, shared, serving }
    }

    pub(super) fn put(&self, path: &str, content: &[u8]) {
        self.shared.files.lock().unwrap().insert(path.to_owned(), content.to_vec());
    }

    pub(super) fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.shared.faults.lock().unwrap().extend(faults);
    }

    /// All reads of files since this was asked last.
    pub(super) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A file for which no disk has room.
pub(super) const ENDLESS: &str = "/endless.gguf";

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default();
    if let Some(bucket) = path.strip_prefix("/bucket") {
        if !is_signed(request.headers()) {
            return StatusCode::FORBIDDEN.into_response();
        }
        if query.contains("list-type=2") {
            return list(&shared, query);
        }
        assert!(!bucket.is_empty(), "{path}?{query}");
    }
    if path.starts_with("/api/models/") {
        return revision(&shared, &path);
    }
    if path == ENDLESS {
        let range = [(header::CONTENT_RANGE, format!("bytes 0-0/{}", 1u64 << 50))];
        return (StatusCode::PARTIAL_CONTENT, range, "x").into_response();
    }
    let content = shared.files.lock().unwrap().get(&path).cloned();
    let Some(content) = content else { return StatusCode::NOT_FOUND.into_response() };
    if path.starts_with("/private/") && !query.contains("signature=good") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let range = request.headers().get(header::RANGE).map(|range| range.to_str().unwrap().to_owned());
    let tag = format!("\"{}\"", Digest::of_bytes(&content).short());
    if *request.method() == Method::HEAD || range.as_deref() == Some("bytes=0-0") {
        return look(&content, &tag, request.method() == Method::HEAD);
    }
    let begins = range.as_deref().map(|range| range.trim_start_matches("bytes=").trim_end_matches('-'));
    let from: usize = begins.map_or(0, |begins| begins.parse().unwrap());
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.map(|it| it.to_str().unwrap().to_owned());
    shared.seen.lock().unwrap().push(Seen { path, from: from as u64, authorization });
    let fault = shared.faults.lock().unwrap().pop_front();
    let is_same = request.headers().get(header::IF_RANGE).is_none_or(|known| known == tag.as_str());
    let from = if matches!(fault, Some(Fault::Whole)) || !is_same { 0 } else { from };
    let all = content.len();
    let rest = content[from..].to_vec();
    let response = Response::builder().header(header::ETAG, tag);
    let response = match from {
        0 => response.status(StatusCode::OK),
        _ => response
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_RANGE, format!("bytes {from}-{}/{all}", all - 1)),
    };
    let response = response.header(header::LAST_MODIFIED, "Mon, 30 Nov 2026 00:00:00 GMT");
    let whole = rest.len();
    match fault {
        None | Some(Fault::Whole) => response.header(header::CONTENT_LENGTH, whole).body(Body::from(rest)),
        Some(Fault::Break(after)) => {
            response.header(header::CONTENT_LENGTH, whole).body(broken(rest[..after].to_vec()))
        }
        Some(Fault::Short(after)) => {
            let chunk = Bytes::from(rest[..after].to_vec());
            response.body(Body::from_stream(stream::iter([Ok::<_, Infallible>(chunk)])))
        }
        Some(Fault::Status(status)) => return status.into_response(),
        Some(Fault::Silence) => std::future::pending().await,
    }
    .unwrap()
}

/// What was sent is received before the end is.
fn broken(sent: Vec<u8>) -> Body {
    let sent = stream::iter([Ok(Bytes::from(sent))]);
    let end = stream::once(async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Err(std::io::Error::other("broken"))
    });
    Body::from_stream(sent.chain(end))
}

fn look(content: &[u8], tag: &str, is_head: bool) -> Response {
    let response = Response::builder()
        .header(header::ETAG, tag)
        .header(header::LAST_MODIFIED, "Mon, 30 Nov 2026 00:00:00 GMT");
    let response = match (content.first(), is_head) {
        (_, true) => response.header(header::CONTENT_LENGTH, content.len()).body(Body::empty()),
        (None, _) => response.status(StatusCode::RANGE_NOT_SATISFIABLE).body(Body::empty()),
        (Some(first), _) => response
            .status(StatusCode::PARTIAL_CONTENT)
            .header(header::CONTENT_RANGE, format!("bytes 0-0/{}", content.len()))
            .body(Body::from(vec![*first])),
    };
    response.unwrap()
}

fn is_signed(headers: &HeaderMap) -> bool {
    headers.get(header::AUTHORIZATION).is_some_and(|it| it.to_str().unwrap().contains("Credential=key-id/"))
}

/// Two objects a page, so that there are pages.
fn list(shared: &Shared, query: &str) -> Response {
    let field = |name: &str| {
        let field = query.split('&').find_map(|part| part.strip_prefix(name))?;
        Some(percent_encoding::percent_decode_str(field).decode_utf8().unwrap().into_owned())
    };
    let (prefix, after) =
        (field("prefix=").unwrap_or_default(), field("continuation-token=").unwrap_or_default());
    let files = shared.files.lock().unwrap();
    let keys = files.iter().filter_map(|(path, content)| Some((path.strip_prefix("/bucket/")?, content)));
    let keys: Vec<_> = keys.filter(|(key, _)| key.starts_with(&prefix) && **key > *after).collect();
    let object = |(key, content): &(&str, &Vec<u8>)| {
        let (tag, bytes) = (Digest::of_bytes(content).short(), content.len());
        format!(
            "<Contents><Key>{key}</Key><Size>{bytes}</Size><ETag>&quot;{tag}&quot;</ETag>\
             <LastModified>2026-11-30T00:00:00.000Z</LastModified></Contents>"
        )
    };
    let contents: String = keys.iter().take(2).map(object).collect();
    let next = keys.get(1).filter(|_| keys.len() > 2);
    let next = next
        .map_or_else(String::new, |(key, _)| format!("<NextContinuationToken>{key}</NextContinuationToken>"));
    let truncated = keys.len() > 2;
    let xml = format!(
        "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>{truncated}</IsTruncated>{contents}{next}</ListBucketResult>"
    );
    ([(header::CONTENT_TYPE, "application/xml")], xml).into_response()
}

/// Of the model `owner/name`, whose files are below `/owner/name/resolve/c0ffee/`.
fn revision(shared: &Shared, path: &str) -> Response {
    assert_eq!(path, "/api/models/owner/name/revision/main");
    let files = shared.files.lock().unwrap();
    let siblings = files.iter().filter_map(|(path, content)| {
        let name = path.strip_prefix("/owner/name/resolve/c0ffee/")?;
        let blob = Digest::of_bytes(content).short();
        Some(serde_json::json!({"rfilename": name, "size": content.len(), "blobId": blob}))
    });
    let siblings: Vec<_> = siblings.collect();
    axum::Json(serde_json::json!({"sha": "c0ffee", "siblings": siblings, "private": false})).into_response()
}
