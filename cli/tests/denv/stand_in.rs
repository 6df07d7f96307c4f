//! A stand-in for the control plane: answers that a test sets, and watches that go as a test scripts them.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "let-me-in";

#[derive(Clone)]
pub(crate) struct StandIn {
    pub url: String,
    state: Arc<Mutex<Scene>>,
}

#[derive(Default)]
pub(crate) struct Scene {
    /// By method and path, `GET /v1/hosts`.
    pub answers: BTreeMap<String, (u16, Value)>,
    /// What `GET /v1/events` gives.
    pub events: Vec<Value>,
    /// One for each time the watch is opened; the last stays open when it has been told.
    pub watches: VecDeque<WatchScript>,
    /// Every request with its query, and its body where it has one.
    pub requests: Vec<String>,
}

pub(crate) struct WatchScript {
    pub status: u16,
    /// Added to the events, and streamed, when the watch is opened.
    pub events: Vec<Value>,
    /// Becomes true at that moment; null takes an answer away.
    pub answers: Vec<(&'static str, Value)>,
}

impl StandIn {
    pub(crate) fn start() -> StandIn {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(Scene::default()));
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&state));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        StandIn { url, state }
    }

    pub(crate) fn scene(&self) -> MutexGuard<'_, Scene> {
        self.state.lock().unwrap()
    }

    pub(crate) fn with(&self, route: &str, answer: Value) -> &Self {
        self.scene().answers.insert(route.to_owned(), (200, answer));
        self
    }

    /// `denv` that knows where this is and how to be let in.
    pub(crate) fn denv(&self) -> assert_cmd::Command {
        let mut command = crate::denv();
        command.env("DENV_SERVER", &self.url).env("DENV_TOKEN", TOKEN);
        command
    }
}

async fn answer(State(state): State<Arc<Mutex<Scene>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let mut scene = state.lock().unwrap();
    let said = String::from_utf8_lossy(&body);
    scene.requests.push(format!("{} {} {said}", parts.method, parts.uri).trim().to_owned());
    let given = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
    if given != Some(&format!("Bearer {TOKEN}")) {
        return error(401, "no");
    }
    let query = |name: &str| {
        let query = parts.uri.query().unwrap_or_default();
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let after = query("after").map_or(0, |after| after.parse().unwrap());
    let later = |event: &&Value| event["id"].as_i64().unwrap() > after;
    match parts.uri.path() {
        "/v1/events" => {
            let events: Vec<Value> = scene.events.iter().filter(later).cloned().collect();
            let limit = query("limit").map_or(50, |limit| limit.parse().unwrap());
            let newest = &events[events.len().saturating_sub(limit)..];
            axum::Json(json!({"items": newest})).into_response()
        }
        "/v1/watch" => {
            let is_last = scene.watches.len() == 1;
            let Some(script) = scene.watches.pop_front() else { return error(503, "no more is scripted") };
            scene.events.extend(script.events);
            for (route, answer) in script.answers {
                match answer {
                    Value::Null => scene.answers.remove(route),
                    answer => scene.answers.insert(route.to_owned(), (200, answer)),
                };
            }
            if script.status != 200 {
                return error(script.status, "not now");
            }
            stream(scene.events.iter().filter(later), is_last)
        }
        path => match scene.answers.get(&format!("{} {path}", parts.method)) {
            Some((200, answer)) => axum::Json(answer.clone()).into_response(),
            Some((status, answer)) => {
                (StatusCode::from_u16(*status).unwrap(), axum::Json(answer.clone())).into_response()
            }
            None => error(404, "there is nothing here"),
        },
    }
}

fn stream<'a>(events: impl Iterator<Item = &'a Value>, stays_open: bool) -> Response {
    let mut text = ": hello\n\n".to_owned();
    for event in events {
        text.push_str(&format!("id: {}\nevent: event\ndata: {event}\n\n", event["id"]));
    }
    let told = futures::stream::iter([Ok::<_, Infallible>(Bytes::from(text))]);
    let body = match stays_open {
        true => Body::from_stream(told.chain(futures::stream::pending())),
        false => Body::from_stream(told),
    };
    ([("content-type", "text/event-stream")], body).into_response()
}

fn error(status: u16, message: &str) -> Response {
    let body = json!({"error": {"message": message}});
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

pub(crate) fn event(id: i64, subject: &str, message: &str) -> Value {
    let at = format!("2026-11-29T12:00:{:02}Z", id % 60);
    json!({"id": id, "at": at, "subject": subject, "level": "normal", "message": message})
}

/// A stage whose deployment 2 goes from r1 to r2.
pub(crate) fn stage(
    phase: &str,
    over: bool,
    good: &str,
    held: Option<&str>,
    units: &[(&str, &str)],
) -> Value {
    let at = "2026-11-29T12:00:00Z";
    let unit = |(index, (release, status)): (usize, &(&str, &str))| {
        json!({
            "unit": format!("chat.prod.{index}"), "stage": "chat/prod", "release": release, "fleet": "racks", "host": "gpu-1",
            "member": format!("chat.prod.{index}.0"), "chosen": null,
        "members": [{"member": format!("chat.prod.{index}.0"), "pool": "replica", "host": "gpu-1", "gpus": [0], "cpuSlots": 0, "restarts": 0}],
        "generation": 1, "status": status,
            "reason": null, "since": at, "restarts": 0, "inflight": 0,
        })
    };
    json!({
        "stage": "chat/prod", "desired": "r2", "good": good,
        "held": held.map(|reason| json!({"release": "r2", "reason": reason, "since": at})),
        "ready": units.iter().filter(|(_, status)| *status == "ready").count(), "wanted": 1,
        "deployment": {
            "stage": "chat/prod", "number": 2, "from": "r1", "to": "r2", "phase": phase, "paused": false, "over": over,
            "succeeded": phase == "succeeded", "reason": held, "opened": at, "since": at,
        },
        "waiting": if over { json!([]) } else { json!([{"subject": "stage chat/prod", "on": "0 of 1 units ready"}]) },
        "units": units.iter().enumerate().map(unit).collect::<Vec<_>>(),
        "unknownToThisVersion": true,
    })
}
