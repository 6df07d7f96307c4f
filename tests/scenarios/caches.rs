//! Prompts that were read before, and units that lose what they had read.

use denv_tests::process::{engine_port, engines_below, kill_process};

use crate::fixture::{Fixture, PATIENCE, STAGE};

/// Tokens of prompts that engines found cached, as they are metered.
async fn cached(fixture: &Fixture) -> f64 {
    fixture.gateway_figure("denv_gateway_tokens_total{endpoint=\"chat\",kind=\"cached-input\"}").await
}

#[tokio::test]
async fn a_prompt_goes_to_where_it_is_cached_and_is_read_again_where_that_is_lost() {
    let mut fixture = Fixture::start().await;
    let application = fixture.application();
    let question = "a long question that has been asked before, and ".repeat(100);
    // Each of the two would have it after two questions, if they took turns.
    let mut before = cached(&fixture).await;
    application.ask(&question, 2).await.unwrap();
    assert!(cached(&fixture).await - before < 16.0, "nobody has read it");
    let mut is_cached = async |fixture: &Fixture| {
        fixture.application().ask(&question, 2).await.unwrap();
        let now = cached(fixture).await;
        let more = now - std::mem::replace(&mut before, now);
        more > 1000.0
    };
    for _ in 0..4 {
        assert!(is_cached(&fixture).await);
    }

    // Its unit loses all that it has read, and does not get the prompt back when it is there again.
    let mut read = Vec::new();
    for (pid, _) in engines_below(&fixture.layout.dir) {
        let url = format!("http://127.0.0.1:{}/metrics", engine_port(pid).unwrap());
        let text = reqwest::get(url).await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with("vllm:prompt_tokens_total")).unwrap();
        read.push((line.rsplit(' ').next().unwrap().parse::<u64>().unwrap(), pid));
    }
    kill_process(read.iter().max().unwrap().1).unwrap();
    assert!(!is_cached(&fixture).await, "the other reads it again");
    assert!(is_cached(&fixture).await);
    fixture
        .stage_until(STAGE, "both units to be ready again", PATIENCE, |view| {
            view.ready == 2 && view.units.iter().any(|unit| unit.members[0].restarts > 0)
        })
        .await
        .unwrap();
    for _ in 0..4 {
        assert!(is_cached(&fixture).await);
    }
    fixture.release("r1", "r2").await;
    fixture.ready("r2").await;
    assert!(!is_cached(&fixture).await, "the new release's units have read nothing");
    assert!(is_cached(&fixture).await);
}
