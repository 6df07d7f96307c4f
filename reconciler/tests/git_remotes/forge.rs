//! What a forge is told, as a server that speaks GitHub's API hears it.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};

use crate::process::{PATIENCE, Reconciler};
use crate::repository::Repository;

const TOKEN: &str = "planted-forge-token";

/// Commit, state, context and description of each status.
type Heard = Arc<Mutex<Vec<[String; 4]>>>;

async fn hear(
    State((heard, busy)): State<(Heard, Arc<Mutex<u32>>)>,
    Path((owner, name, commit)): Path<(String, String, String)>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    assert_eq!((owner.as_str(), name.as_str()), ("ml", "serving"));
    assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
    let mut busy = busy.lock().unwrap();
    if *busy > 0 {
        *busy -= 1;
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "wait").into_response();
    }
    let text = |field: &str| body[field].as_str().unwrap().to_owned();
    heard.lock().unwrap().push([commit, text("state"), text("context"), text("description")]);
    (StatusCode::CREATED, Json(json!({"id": 1}))).into_response()
}

async fn until(heard: &Heard, what: &[&str; 3]) {
    let until = Instant::now() + PATIENCE;
    let said = |it: &[String; 4]| it[0] == what[0] && it[1] == what[1] && it[3].starts_with(what[2]);
    while !heard.lock().unwrap().iter().any(said) {
        assert!(Instant::now() < until, "{what:?} was not heard, but {:?}", heard.lock().unwrap());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_forge_hears_what_becomes_of_each_commit_though_it_is_busy_at_first() {
    let heard = Heard::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    let routes = axum::Router::new()
        .route("/repos/{owner}/{name}/statuses/{commit}", post(hear))
        .with_state((Arc::clone(&heard), Arc::new(Mutex::new(2))));
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(&dir.path().join("config"));
    std::fs::write(dir.path().join("forge-token"), TOKEN).unwrap();
    let token = format!("file:{}", dir.path().join("forge-token").display());
    let reconciler = Reconciler::start_with(dir.path(), &repository.bare.display().to_string(), |command| {
        command.args(["--source-forge", "github", "--source-forge-token", &token]);
        command.args(["--source-forge-api", &api, "--source-forge-repository", "ml/serving"]);
    })
    .await;
    let first = reconciler.accepted().await;
    // No host has joined, so what is accepted waits for room.
    until(&heard, &[&first, "pending", "1 of 1 stages move: chat/prod"]).await;

    repository.write(
        "broken.yaml",
        "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {name: x}\nspec: {nothing: 1}\n",
    );
    let broken = repository.commit("break it");
    assert!(reconciler.refused(&broken).await.contains("fault"));
    until(&heard, &[&broken, "failure", "refused: 1 fault in its manifests, the first: "]).await;
    assert!(heard.lock().unwrap().iter().all(|it| it[2] == "denv/main"));
    let all = String::from_utf8_lossy(&reconciler.everything().await).into_owned();
    assert!(!all.contains(TOKEN), "the token is somewhere");
}
