//! Weights that are not there, not those that were meant, or still to be fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use denv_schema::Digest;
use tokio::sync::watch;

use crate::fixture::{Fixture, PATIENCE, STAGE};

fn release(name: &str, source: &str, content: &[u8]) -> String {
    let digest = Digest::of_bytes(content);
    format!(
        "apiVersion: denv.dev/v1
kind: Release
metadata: {{name: {name}}}
spec:
  model: {{name: m, weights: {{source: '{source}', digest: '{digest}'}}}}
  engine: simulated
  recipe: simulated
  topology: {{mode: aggregated, replica: {{cpuSlots: 1}}}}
"
    )
}

async fn reason_for(fixture: &mut Fixture, from: &str, to: &str) -> String {
    fixture.release(from, to).await;
    let view = fixture
        .stage_until(STAGE, "the rollback", PATIENCE, |view| {
            view.held.as_ref().is_some_and(|held| held.release.as_str() == to)
                && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        })
        .await
        .unwrap();
    view.held.unwrap().reason
}

#[tokio::test]
async fn weights_that_differ_or_are_missing_roll_back_with_what_was_found() {
    let mut fixture = Fixture::create();
    let weights = fixture.layout.dir.join("weights");
    std::fs::create_dir_all(&weights).unwrap();
    std::fs::write(weights.join("good.gguf"), b"good").unwrap();
    std::fs::write(weights.join("torn.gguf"), b"goo").unwrap();
    fixture.layout.weights_dir = Some(weights.clone());
    for (name, file) in [("good", "good.gguf"), ("torn", "torn.gguf"), ("gone", "gone.gguf")] {
        fixture
            .repository
            .write(&format!("{name}.yaml"), &release(name, &format!("file:{file}"), b"good"))
            .unwrap();
    }
    fixture.repository.edit("service.yaml", "release: r1\n", "release: good\n").unwrap();
    fixture.repository.commit("Name weights").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("good").await;

    let reason = reason_for(&mut fixture, "good", "torn").await;
    for expected in [Digest::of_bytes(b"good"), Digest::of_bytes(b"goo")] {
        assert!(reason.contains(&expected.to_string()), "{reason}");
    }
    let reason = reason_for(&mut fixture, "torn", "gone").await;
    assert!(reason.contains(&weights.join("gone.gguf").display().to_string()), "{reason}");
    fixture.ready("good").await;

    // Mended in place, without a commit.
    std::fs::write(weights.join("gone.gguf"), b"good").unwrap();
    fixture.client().unwrap().rollout(STAGE, denv_schema::api::RolloutAction::Retry).await.unwrap();
    fixture.ready("gone").await;
}

/// A server with one file, which it gives out while it is open.
struct Shelf {
    url: String,
    open: watch::Sender<bool>,
    reads: Arc<AtomicUsize>,
}

impl Shelf {
    async fn start(content: &'static [u8]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/models/good.gguf?signature=secret", listener.local_addr().unwrap());
        let (open, opened) = watch::channel(false);
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        let read = move |headers: HeaderMap| {
            let (counted, mut opened) = (Arc::clone(&counted), opened.clone());
            async move {
                // What is there is told at once.
                if !headers.contains_key("range") {
                    counted.fetch_add(1, Ordering::SeqCst);
                    opened.wait_for(|open| *open).await.unwrap();
                }
                content
            }
        };
        let routes = Router::new().route("/models/good.gguf", get(read));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Shelf { url, open, reads }
    }
}

#[tokio::test]
async fn remote_weights_are_on_the_hosts_before_anything_stops() {
    let shelf = Shelf::start(b"good").await;
    let mut fixture = Fixture::create();
    for (name, content) in [("remote", b"good"), ("wrong", b"evil")] {
        fixture.repository.write(&format!("{name}.yaml"), &release(name, &shelf.url, content)).unwrap();
    }
    fixture.repository.commit("Name weights elsewhere").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("r1").await;
    let starts =
        |fixture: &Fixture| ["host-a", "host-b"].map(|host| fixture.starts(host).values().sum::<usize>());
    let before = starts(&fixture);

    fixture.release("r1", "remote").await;
    let view = fixture
        .stage_until(STAGE, "both hosts to fetch", PATIENCE, |view| {
            let is_fetching = |waiting: &denv_schema::api::WaitingView| waiting.on.contains("prepare");
            shelf.reads.load(Ordering::SeqCst) == 2 && view.waiting.iter().any(is_fetching)
        })
        .await
        .unwrap();
    assert_eq!((view.ready, starts(&fixture)), (2, before), "{view:?}");
    assert!(
        view.units.iter().all(|unit| unit.release.as_str() == "r1" && unit.status == "ready"),
        "{view:?}"
    );

    shelf.open.send(true).unwrap();
    fixture.ready("remote").await;
    // The members found what was fetched ahead.
    assert_eq!(shelf.reads.load(Ordering::SeqCst), 2);
    let digest = Digest::of_bytes(b"good").to_string().replace(':', "-");
    for host in ["host-a", "host-b"] {
        let path = fixture.layout.dir.join(host).join("weights/fetched").join(&digest).join("good.gguf");
        assert_eq!(std::fs::read(path).unwrap(), b"good");
    }

    let before = starts(&fixture);
    let reason = reason_for(&mut fixture, "remote", "wrong").await;
    for expected in [Digest::of_bytes(b"good"), Digest::of_bytes(b"evil")] {
        assert!(reason.contains(&expected.to_string()), "{reason}");
    }
    assert!(reason.contains("/models/good.gguf` are not what the release means"), "{reason}");
    fixture.ready("remote").await;
    assert_eq!(starts(&fixture), before, "something moved: {reason}");
    assert!(
        !reason.contains("secret") && !fixture.logs().contains("signature=secret"),
        "a signature was shown"
    );
}
