//! Clients that leave before their answer is whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use denv_tests::until;

use crate::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn who_leaves_is_cancelled_everywhere_metered_once_and_leaves_nothing_behind() {
    let fixture = Fixture::start_with(&["--sim-token-delay", "20"], &[]).await;
    let seen = Arc::new(AtomicU64::new(0));
    let clients = (0..8u32).map(|client| {
        let (application, seen) = (fixture.application(), Arc::clone(&seen));
        tokio::spawn(async move {
            if client.is_multiple_of(2) {
                let piece = |_: &str| {
                    seen.fetch_add(1, Ordering::SeqCst);
                };
                application.ask_streaming("tell me everything", 100_000, piece).await
            } else {
                application.ask("tell me everything", 100_000).await
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    until("all to be worked on", PATIENCE, || async {
        let running = fixture.engines_running().await;
        Ok((running == 8.0 && seen.load(Ordering::SeqCst) > 20).then_some(()))
    })
    .await
    .unwrap();
    for client in clients {
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
    }
    let seen = seen.load(Ordering::SeqCst);
    until("engines to be idle", Duration::from_secs(10), || async {
        let (engines, gateway) =
            (fixture.engines_running().await, fixture.gateway_figure("denv_gateway_unit_inflight").await);
        Ok((engines == 0.0 && gateway == 0.0).then_some(()))
    })
    .await
    .unwrap();

    // Whatever is asked last is collected last.
    fixture.application().ask("goodbye", 5).await.unwrap();
    let usage = until("usage to be collected", PATIENCE, || async {
        let usage = fixture.client()?.usage().await?;
        let pending = fixture.gateway_figure("denv_gateway_ledger_records_pending").await;
        Ok(usage.into_iter().next().filter(|row| row.requests >= 9 && pending == 0.0))
    })
    .await
    .unwrap();
    assert_eq!(usage.requests, 9, "each once");
    let (least, most) = (seen + 5, seen + 5 + 4 * 100);
    assert!((least..=most).contains(&usage.tokens.output), "{usage:?}, and clients saw {seen} pieces");
    assert_eq!(fixture.gateway_figure("denv_gateway_tokens_total").await, {
        let tokens = usage.tokens;
        (tokens.input + tokens.cached_input + tokens.output) as f64
    });
    assert_eq!(fixture.gateway_figure("denv_gateway_requests_total").await, 9.0);
}

/// Thousands of requests, and the gateway holds no more than it did after the first of them.
#[tokio::test]
async fn the_gateway_does_not_grow_with_the_requests_it_has_served() {
    let fixture = Fixture::start_with(
        &["--sim-token-delay", "0"],
        &[("maxInflightPerUnit: 8", "maxInflightPerUnit: 64")],
    )
    .await;
    let ask = async |requests: u64| {
        let left = Arc::new(AtomicU64::new(requests));
        let clients = (0..16).map(|_| {
            let (application, left) = (fixture.application(), Arc::clone(&left));
            tokio::spawn(async move {
                let one = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_ok() {
                    application.ask("hello", 1).await.unwrap();
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        fixture.gateway.as_ref().unwrap().resident_memory().unwrap()
    };
    let before = ask(2_000).await;
    let after = ask(4_000).await;
    let growth = after.saturating_sub(before);
    assert!(growth < 4 << 20, "it grew by {growth} bytes, from {before}");
}
