//! Whether the host's provider has announced that it takes the host back: spot hosts go away at short notice. It owns
//! the asking, of a file or of the provider's metadata service; it refuses to know what follows.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Where a notice appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeSource {
    /// It is there once there is a notice. It may hold when the host goes away.
    File(PathBuf),
    /// A metadata service, without encryption as those of providers are.
    Http(Uri),
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("write a path, or the `http://…` address of the provider's metadata service")]
pub struct InvalidNoticeSource;

impl FromStr for NoticeSource {
    type Err = InvalidNoticeSource;
    fn from_str(text: &str) -> Result<Self, InvalidNoticeSource> {
        if !text.contains("://") {
            return if text.is_empty() {
                Err(InvalidNoticeSource)
            } else {
                Ok(NoticeSource::File(text.into()))
            };
        }
        let uri: Uri = text.parse().map_err(|_| InvalidNoticeSource)?;
        let is_plain = uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty());
        if is_plain { Ok(NoticeSource::Http(uri)) } else { Err(InvalidNoticeSource) }
    }
}

impl fmt::Display for NoticeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoticeSource::File(path) => path.display().fmt(f),
            NoticeSource::Http(uri) => uri.fmt(f),
        }
    }
}

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaim {
    /// When the host goes away, if that was announced.
    pub at: Option<Timestamp>,
    /// Why it can't be known, for people. What was announced before still holds.
    pub problem: Option<String>,
}

/// What a source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    None,
    /// The host goes away, and nobody says when: very soon.
    Soon,
    At(Timestamp),
}

/// The shortest notice that a provider gives is half a minute.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A metadata service is next door.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A notice is a line.
const LARGEST_ANSWER: usize = 64 << 10;

/// Looks for ever. Without a source nothing is ever announced.
pub fn watch(source: Option<NoticeSource>) -> watch::Receiver<Reclaim> {
    let (told, known) = watch::channel(Reclaim::default());
    if let Some(source) = source {
        tokio::spawn(look(source, LOOK_EVERY, told));
    }
    known
}

async fn look(source: NoticeSource, every: Duration, told: watch::Sender<Reclaim>) {
    let mut token = None;
    while !told.is_closed() {
        let found = match &source {
            NoticeSource::File(path) => read(path),
            NoticeSource::Http(uri) => {
                match tokio::time::timeout(ANSWER_WITHIN, ask(uri, &mut token)).await {
                    Ok(found) => found,
                    Err(_) => Err("it gave no answer".to_owned()),
                }
            }
        };
        told.send_if_modified(|known| {
            let next = learnt(known, found.map_err(|why| unknown(&source, &why)), Timestamp::now());
            if next == *known {
                return false;
            }
            if let Some(at) = next.at.filter(|at| known.at != Some(*at)) {
                tracing::warn!(%at, "the provider takes this host back");
            }
            *known = next;
            true
        });
        tokio::time::sleep(every).await;
    }
}

fn unknown(source: &NoticeSource, why: &str) -> String {
    format!("cannot tell from `{source}` whether the provider takes this host back: {why}")
}

/// What is known after a look. A notice without a time counts from when it was first seen.
fn learnt(known: &Reclaim, found: Result<Notice, String>, now: Timestamp) -> Reclaim {
    match found {
        Ok(Notice::None) => Reclaim::default(),
        Ok(Notice::Soon) => Reclaim { at: known.at.or(Some(now)), problem: None },
        Ok(Notice::At(at)) => Reclaim { at: Some(at), problem: None },
        Err(problem) => Reclaim { at: known.at, problem: Some(problem) },
    }
}

fn read(path: &std::path::Path) -> Result<Notice, String> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(Notice::Soon),
        Ok(text) => understood(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Notice::None),
        Err(error) => Err(error.to_string()),
    }
}

/// A time by itself; AWS's `{"action": "terminate", "time": "…"}`; Google's `TRUE` and `FALSE`.
fn understood(text: &str) -> Result<Notice, String> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("false") {
        return Ok(Notice::None);
    }
    if text.eq_ignore_ascii_case("true") {
        return Ok(Notice::Soon);
    }
    let json: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let time = json.as_ref().and_then(|json| json.get("time")?.as_str()).unwrap_or(text);
    // What it says otherwise may be anything, so it is not repeated.
    time.parse().map(Notice::At).map_err(|_| "it says neither a time nor `TRUE` or `FALSE`".to_owned())
}

/// AWS wants a token that it gave before; the others don't mind.
async fn ask(uri: &Uri, token: &mut Option<String>) -> Result<Notice, String> {
    let (mut status, mut body) = get(uri, token.as_deref()).await?;
    if status == StatusCode::UNAUTHORIZED {
        *token = Some(fetch_token(uri).await?);
        (status, body) = get(uri, token.as_deref()).await?;
    }
    match status {
        StatusCode::OK => understood(&body),
        StatusCode::NOT_FOUND => Ok(Notice::None),
        status => Err(format!("it answered {status}")),
    }
}

async fn get(uri: &Uri, token: Option<&str>) -> Result<(StatusCode, String), String> {
    // Google answers only who says that it means its service.
    let mut request = Request::get(path(uri)).header("metadata-flavor", "Google");
    if let Some(token) = token {
        request = request.header("x-aws-ec2-metadata-token", token);
    }
    send(uri, request).await
}

async fn fetch_token(uri: &Uri) -> Result<String, String> {
    let request = Request::builder().method(Method::PUT).uri("/latest/api/token");
    let request = request.header("x-aws-ec2-metadata-token-ttl-seconds", "21600");
    match send(uri, request).await? {
        (StatusCode::OK, token) => Ok(token.trim().to_owned()),
        (status, _) => Err(format!("it answered {status} when it was asked for a token")),
    }
}

fn path(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
}

async fn send(uri: &Uri, request: http::request::Builder) -> Result<(StatusCode, String), String> {
    let authority = uri.authority().ok_or("it has no host")?;
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(told)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    let request = request
        .header(header::HOST, authority.as_str())
        .header(header::USER_AGENT, "denvd")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(told)?;
    // The answer is read while the connection is driven; when this is given up, both are.
    let answered = async {
        let response = sender.send_request(request).await.map_err(told)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let driven = async {
        // Its error is the answer's too.
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = answered => answer,
        never = driven => never,
    }
}

fn told(error: impl fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const OFTEN: Duration = Duration::from_millis(10);
    const LATER: &str = "2027-01-01T00:02:00Z";

    #[test]
    fn sources_are_paths_or_addresses() {
        assert_eq!("/run/reclaim".parse(), Ok(NoticeSource::File("/run/reclaim".into())));
        assert!(matches!("http://169.254.169.254/x".parse(), Ok(NoticeSource::Http(_))));
        for bad in ["", "https://metadata/x", "http://", "ftp://a/b"] {
            assert_eq!(bad.parse::<NoticeSource>(), Err(InvalidNoticeSource), "{bad}");
        }
    }

    #[test]
    fn what_providers_say_is_understood() {
        let at = Notice::At(LATER.parse().unwrap());
        for (text, notice) in [
            ("", Notice::None),
            ("FALSE\n", Notice::None),
            ("TRUE", Notice::Soon),
            (LATER, at),
            (r#"{"action": "terminate", "time": "2027-01-01T00:02:00Z"}"#, at),
        ] {
            assert_eq!(understood(text), Ok(notice), "{text}");
        }
        for text in ["soon", "{}", r#"{"time": 3}"#, "<html>"] {
            assert!(understood(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_notice_holds_until_it_is_taken_back() {
        let now = |second| Timestamp::from_second(second).unwrap();
        let none = Reclaim::default();
        let soon = learnt(&none, Ok(Notice::Soon), now(1));
        assert_eq!(soon.at, Some(now(1)));
        assert_eq!(learnt(&soon, Ok(Notice::Soon), now(2)), soon);
        let unclear = learnt(&soon, Err("why".to_owned()), now(3));
        assert_eq!((unclear.at, unclear.problem.as_deref()), (Some(now(1)), Some("why")));
        assert_eq!(learnt(&unclear, Ok(Notice::None), now(4)), none);
    }

    #[tokio::test]
    async fn a_file_announces_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notice");
        let (told, mut known) = watch::channel(Reclaim::default());
        tokio::spawn(look(NoticeSource::File(path.clone()), OFTEN, told));
        std::fs::write(&path, LATER).unwrap();
        assert_eq!(next(&mut known, |it| it.at.is_some()).await.at, Some(LATER.parse().unwrap()));
        std::fs::remove_file(&path).unwrap();
        next(&mut known, |it| it.at.is_none()).await;
        std::fs::create_dir(&path).unwrap();
        let problem = next(&mut known, |it| it.problem.is_some()).await.problem.unwrap();
        assert!(problem.contains(path.to_str().unwrap()), "{problem}");
    }

    /// As AWS does it: nothing is told without a token, and there is nothing until there is a notice.
    #[tokio::test]
    async fn a_metadata_service_announces_it() {
        let answer = Arc::new(Mutex::new("404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/latest/meta-data/spot/instance-action", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, answer.clone()));
        let (told, mut known) = watch::channel(Reclaim::default());
        tokio::spawn(look(uri.parse().unwrap(), OFTEN, told));
        let body = format!("{{\"action\": \"stop\", \"time\": \"{LATER}\"}}");
        *answer.lock().unwrap() = format!("200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let reclaim = next(&mut known, |it| it.at.is_some()).await;
        assert_eq!(reclaim, Reclaim { at: Some(LATER.parse().unwrap()), problem: None });
        *answer.lock().unwrap() = "500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_owned();
        let unclear = next(&mut known, |it| it.problem.is_some()).await;
        assert!(unclear.at.is_some() && unclear.problem.unwrap().contains("it answered 500"));
    }

    async fn next(known: &mut watch::Receiver<Reclaim>, is: impl FnMut(&Reclaim) -> bool) -> Reclaim {
        tokio::time::timeout(Duration::from_secs(10), known.wait_for(is)).await.unwrap().unwrap().clone()
    }

    async fn serve(listener: TcpListener, answer: Arc<Mutex<String>>) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.unwrap() > 0 {}
            let request = String::from_utf8(request).unwrap();
            let text = if request.starts_with("PUT /latest/api/token ") {
                "200 OK\r\ncontent-length: 6\r\n\r\nsecret".to_owned()
            } else if request.contains("x-aws-ec2-metadata-token: secret\r\n") {
                answer.lock().unwrap().clone()
            } else {
                "401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned()
            };
            stream.write_all(format!("HTTP/1.1 {text}").as_bytes()).await.unwrap();
        }
    }
}
