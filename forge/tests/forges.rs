//! The client against a server that speaks the three APIs, and can be out of sorts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Extracted;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use denv_forge::{Address, Client, Commented, ForgeError, Kind, State, Status};
use serde_json::{Value, json};

const TOKEN: &str = "planted-token";

type Headers = Vec<(&'static str, &'static str)>;

#[derive(Default)]
struct Forge {
    statuses: Vec<(String, Value)>,
    comments: Vec<(u64, String)>,
    /// Answered first, each once.
    troubles: VecDeque<(StatusCode, Headers, Value)>,
    authorization: Vec<String>,
}

type Shared = Arc<Mutex<Forge>>;

async fn answer(
    Extracted(forge): Extracted<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut forge = forge.lock().unwrap();
    forge.authorization.push(headers["authorization"].to_str().unwrap().to_owned());
    if let Some((status, extra, body)) = forge.troubles.pop_front() {
        let mut answer = (status, axum::Json(body)).into_response();
        for (name, value) in extra {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        return answer;
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = uri.path();
    let text = || body["body"].as_str().unwrap().to_owned();
    let (places, last) = path.rsplit_once('/').unwrap();
    match method {
        Method::POST if places.ends_with("/statuses") => {
            forge.statuses.push((path.to_owned(), body));
            (StatusCode::CREATED, axum::Json(json!({"id": 1}))).into_response()
        }
        Method::GET => {
            let page =
                uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("page=")));
            let all = forge.comments.iter().map(|(id, body)| json!({"id": id, "body": body}));
            let shown: Vec<Value> = match page.map(|page| page.parse::<usize>().unwrap()) {
                Some(page) => all.skip((page - 1) * 100).take(100).collect(),
                None => all.collect(),
            };
            axum::Json(shown).into_response()
        }
        Method::POST => {
            let id = 1_000 + forge.comments.len() as u64;
            forge.comments.push((id, text()));
            (StatusCode::CREATED, axum::Json(json!({"id": id}))).into_response()
        }
        Method::PATCH | Method::PUT => {
            let id: u64 = last.parse().unwrap();
            let Some(comment) = forge.comments.iter_mut().find(|comment| comment.0 == id) else {
                return (StatusCode::NOT_FOUND, axum::Json(json!({"message": "Not Found"}))).into_response();
            };
            comment.1 = text();
            axum::Json(json!({"id": id})).into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

async fn start(kind: Kind) -> (Shared, Client) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let forge = Shared::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(Arc::clone(&forge));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let address = Address::new(kind, "git@git.example.com:ml/serving.git", Some(&api), None).unwrap();
    (forge, Client::new(address, TOKEN.to_owned()).unwrap())
}

fn status() -> Status {
    Status { state: State::Success, context: "denv/main".to_owned(), description: "in force".to_owned() }
}

#[tokio::test]
async fn a_status_is_set_on_each_forge() {
    for (kind, path, token) in [
        (Kind::GitHub, "/repos/ml/serving/statuses/abc", "Bearer planted-token"),
        (Kind::GitLab, "/projects/ml%2Fserving/statuses/abc", "Bearer planted-token"),
        (Kind::Gitea, "/repos/ml/serving/statuses/abc", "token planted-token"),
    ] {
        let (forge, client) = start(kind).await;
        client.set_status("abc", &status()).await.unwrap();
        let forge = forge.lock().unwrap();
        assert_eq!((forge.statuses[0].0.as_str(), forge.authorization[0].as_str()), (path, token));
        assert_eq!(forge.statuses[0].1["state"], "success");
    }
}

#[tokio::test]
async fn one_comment_is_made_and_then_kept_up_to_date() {
    for kind in Kind::ALL {
        let (forge, client) = start(kind).await;
        // Far behind what others have said.
        let chatter =
            |id| (id, if id == 7 { "> <!-- denv plan -->\nquoted".to_owned() } else { "hello".to_owned() });
        forge.lock().unwrap().comments = (0..250).map(chatter).collect();
        assert_eq!(client.comment(7, "plan", "first").await.unwrap(), Commented::Created);
        assert_eq!(client.comment(7, "plan", "second").await.unwrap(), Commented::Updated);
        assert_eq!(client.comment(7, "plan", "second").await.unwrap(), Commented::Unchanged);
        assert_eq!(client.comment(7, "another", "other").await.unwrap(), Commented::Created);
        let comments = forge.lock().unwrap().comments.clone();
        assert_eq!(comments.len(), 252, "{kind}");
        assert_eq!(comments[250].1, "<!-- denv plan -->\nsecond");
        assert_eq!(comments[7].1, "> <!-- denv plan -->\nquoted");
    }
}

#[tokio::test]
async fn troubles_say_whether_they_may_pass() {
    let (forge, client) = start(Kind::GitHub).await;
    let said = status();
    let fails = async |status: StatusCode, headers: Headers, body: Value| {
        forge.lock().unwrap().troubles.push_back((status, headers, body));
        client.set_status("abc", &said).await.unwrap_err()
    };
    let busy = fails(StatusCode::TOO_MANY_REQUESTS, vec![("retry-after", "7")], json!({})).await;
    assert!(busy.may_pass() && busy.wait() == Some(Duration::from_secs(7)));
    let busy = fails(StatusCode::FORBIDDEN, vec![("x-ratelimit-remaining", "0")], json!({})).await;
    assert!(busy.may_pass() && busy.wait().is_none());
    assert!(fails(StatusCode::BAD_GATEWAY, vec![], json!("gone")).await.may_pass());
    let denied = fails(StatusCode::FORBIDDEN, vec![], json!({"message": "no"})).await;
    assert!(!denied.may_pass() && denied.to_string().contains("it must be allowed to set commit statuses"));
    let refused =
        fails(StatusCode::UNPROCESSABLE_ENTITY, vec![], json!({"message": "No commit found\n"})).await;
    assert!(!refused.may_pass());
    assert_eq!(refused.to_string(), "github refused: No commit found  (422 Unprocessable Entity)");
    // A redirect must not carry the token away.
    let moved = fails(StatusCode::FOUND, vec![("location", "http://127.0.0.1:9/elsewhere")], json!({})).await;
    assert!(matches!(moved, ForgeError::Refused { .. }));
    assert!(!format!("{client:?}{moved:?}").contains(TOKEN));
}

#[tokio::test]
async fn gitlab_s_word_for_the_same_state_again_is_no_trouble() {
    let (forge, client) = start(Kind::GitLab).await;
    let message = json!({"message": "Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition)"});
    forge.lock().unwrap().troubles.push_back((StatusCode::BAD_REQUEST, vec![], message));
    client.set_status("abc", &status()).await.unwrap();
}

#[tokio::test]
async fn a_forge_that_is_away_may_come_back() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let address = Address::new(Kind::Gitea, "x:a/b", Some("http://127.0.0.1:9"), None).unwrap();
    let client = Client::new(address, TOKEN.to_owned()).unwrap();
    let away = client.set_status("abc", &status()).await.unwrap_err();
    assert!(away.may_pass() && away.to_string() == "cannot reach gitea at `http://127.0.0.1:9`", "{away}");
}
