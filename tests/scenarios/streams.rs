//! Long streams while their unit is replaced under them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use denv_tests::until;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, PATIENCE, STAGE};

/// Streams of so many tokens, each a client of its own; what all have seen so far is counted.
fn begin(
    fixture: &Fixture,
    streams: u64,
    tokens: u32,
) -> (Arc<AtomicU64>, Vec<JoinHandle<Result<String, String>>>) {
    let seen = Arc::new(AtomicU64::new(0));
    let tasks = (0..streams).map(|stream| {
        let (application, seen) = (fixture.application(), Arc::clone(&seen));
        tokio::spawn(async move {
            let piece = |_: &str| {
                seen.fetch_add(1, Ordering::SeqCst);
            };
            let asked = application.ask_streaming(&format!("stream {stream}"), tokens, piece).await;
            asked.map_err(|error| format!("{error:#}"))
        })
    });
    let tasks = tasks.collect();
    (seen, tasks)
}

async fn until_all_stream(fixture: &Fixture, streams: f64) {
    until("all streams to have begun", PATIENCE, || async {
        Ok((fixture.engines_running().await >= streams).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn every_stream_that_began_on_an_old_unit_finishes_whole() {
    let mut fixture = Fixture::start_with(&["--sim-token-delay", "50"], &[]).await;
    let (_, streams) = begin(&fixture, 6, 120);
    until_all_stream(&fixture, 6.0).await;
    fixture.release("first", "r2").await;
    fixture
        .stage_until(STAGE, "a unit to drain with requests on it", PATIENCE, |view| {
            view.units.iter().any(|unit| unit.status == "draining" && unit.inflight > 0)
        })
        .await
        .unwrap();
    for stream in streams {
        let answer = stream.await.unwrap().unwrap();
        assert_eq!(answer.matches("hello ").count(), 120);
    }
    fixture.ready("r2").await;
}

#[tokio::test]
async fn a_stream_that_outlasts_the_drain_ends_with_an_error_to_retry_and_is_metered_as_far_as_it_came() {
    let edits = [("drainTimeout: 30s", "drainTimeout: 1s")];
    let mut fixture = Fixture::start_with(&["--sim-token-delay", "50"], &edits).await;
    // Five minutes each.
    let (seen, streams) = begin(&fixture, 4, 6000);
    until_all_stream(&fixture, 4.0).await;
    fixture.release("first", "r2").await;
    for stream in streams {
        let error = stream.await.unwrap().unwrap_err();
        assert!(error.contains("the request may be sent again"), "{error}");
        assert!(error.contains(r#""code":"retryable""#), "{error}");
    }
    fixture.ready("r2").await;
    let seen = seen.load(Ordering::SeqCst);
    let usage = until("usage to be collected", PATIENCE, || async {
        let usage = fixture.client()?.usage().await?;
        Ok(usage.into_iter().next().filter(|row| row.requests == 4))
    })
    .await
    .unwrap();
    assert_eq!(usage.tokens.output, seen, "what the clients saw is what they pay for");
    assert!(seen > 0);
}
