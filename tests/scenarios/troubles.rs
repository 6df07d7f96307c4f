//! Engines that run and do not do their work.

use std::path::Path;
use std::time::Duration;

use denv_tests::process::engines_below;
use denv_tests::until;

use crate::fixture::{Fixture, PATIENCE, STAGE};

/// A cluster whose engines can be told, one by one, what is to be wrong with them.
async fn troubled() -> (Fixture, tempfile::TempDir) {
    let troubles = tempfile::tempdir().unwrap();
    let flags = ["--sim-trouble", &troubles.path().display().to_string()];
    (Fixture::start_with(&flags, &[]).await, troubles)
}

/// Something is wrong, from now on, with one of the engines.
fn trouble(fixture: &Fixture, troubles: &Path, what: &str) -> String {
    let (_, member) = engines_below(&fixture.layout.dir).into_iter().min_by(|a, b| a.1.cmp(&b.1)).unwrap();
    std::fs::write(troubles.join(&member), what).unwrap();
    member
}

#[tokio::test]
async fn an_engine_that_answers_errors_costs_clients_nothing_and_their_own_errors_cost_no_unit() {
    let (fixture, troubles) = troubled().await;
    trouble(&fixture, troubles.path(), "fail");
    let application = fixture.application();
    for question in 0..10 {
        application.ask(&format!("question {question}"), 3).await.unwrap();
        application.ask_streaming(&format!("question {question}"), 3, |_| {}).await.unwrap();
    }
    assert!(fixture.gateway_figure("denv_gateway_retries_total").await >= 5.0);

    let http = reqwest::Client::new();
    let url = format!("{}/v1/chat/completions", fixture.gateway_url());
    let mut bodies = vec![
        "{".to_owned(),
        "[]".to_owned(),
        r#"{"model":"smollm2","messages":7,"max_tokens":"x"}"#.to_owned(),
    ];
    bodies.push(r#"{"model":"unknown","messages":[]}"#.to_owned());
    for body in bodies.iter().cycle().take(40) {
        let request = http.post(&url).bearer_auth(&fixture.key).body(body.clone());
        let status = request.send().await.unwrap().status().as_u16();
        assert!([200, 400, 404].contains(&status), "{status} for {body}");
    }
    assert_eq!(fixture.gateway_figure("denv_gateway_unit_in_rotation").await, 2.0);
}

#[tokio::test]
async fn an_engine_that_hangs_holds_up_nobody_but_those_it_has() {
    let (fixture, troubles) = troubled().await;
    let member = trouble(&fixture, troubles.path(), "hang");
    let (unit, _) = member.rsplit_once('.').unwrap();
    let inflight = format!("denv_gateway_unit_inflight{{unit=\"{unit}\"}}");
    let ask = |question: u32| {
        let application = fixture.application();
        tokio::spawn(async move {
            let question = format!("question {question}");
            let asked = application.ask(&question, 3);
            matches!(tokio::time::timeout(Duration::from_secs(30), asked).await, Ok(Ok(_)))
        })
    };
    let held: Vec<_> = (0..4).map(ask).collect();
    until("requests to hang", PATIENCE, || async {
        Ok((fixture.gateway_figure(&inflight).await >= 1.0).then_some(()))
    })
    .await
    .unwrap();
    for question in 0..20 {
        let application = fixture.application();
        let question = format!("next {question}");
        let asked = application.ask(&question, 3);
        tokio::time::timeout(Duration::from_secs(5), asked).await.unwrap().unwrap();
    }
    held.iter().for_each(tokio::task::JoinHandle::abort);
    until("nothing to be in flight", PATIENCE, || async {
        Ok((fixture.gateway_figure(&inflight).await == 0.0).then_some(()))
    })
    .await
    .unwrap();
}

/// It still takes requests, and says that it is not well.
#[tokio::test]
async fn an_engine_that_becomes_unhealthy_leaves_rotation_and_comes_back() {
    let (fixture, troubles) = troubled().await;
    let member = trouble(&fixture, troubles.path(), "unhealthy");
    until("one unit to leave rotation", Duration::from_secs(10), || async {
        let units = fixture.gateway_figure("denv_gateway_unit_in_rotation").await;
        Ok((units == 1.0).then_some(()))
    })
    .await
    .unwrap();
    fixture.application().ask("is anybody there?", 3).await.unwrap();
    fixture
        .stage_until(STAGE, "the trouble to be told", PATIENCE, |view| {
            view.units.iter().any(|unit| {
                unit.member.as_str() == member
                    && unit.reason.as_ref().is_some_and(|reason| reason.contains("503"))
            })
        })
        .await
        .unwrap();
    std::fs::remove_file(troubles.path().join(member)).unwrap();
    until("both units to be in rotation", PATIENCE, || async {
        let units = fixture.gateway_figure("denv_gateway_unit_in_rotation").await;
        Ok((units == 2.0).then_some(()))
    })
    .await
    .unwrap();
    fixture.ready("first").await;
}

#[tokio::test]
async fn more_than_all_units_may_have_is_told_to_wait_and_no_unit_gets_more() {
    let fixture = Fixture::start_with(
        &["--sim-token-delay", "20"],
        &[("maxInflightPerUnit: 8", "maxInflightPerUnit: 2")],
    )
    .await;
    let ask = |_| {
        let application = fixture.application();
        tokio::spawn(async move {
            application.ask("a long story", 100_000).await.map_err(|error| format!("{error:#}"))
        })
    };
    let asked: Vec<_> = (0..4).map(ask).collect();
    until("both units to be full", PATIENCE, || async {
        Ok((fixture.engines_running().await == 4.0).then_some(()))
    })
    .await
    .unwrap();
    let refused = fixture.application().ask("one more", 3).await.unwrap_err();
    let text = format!("{refused:#}");
    assert!(text.contains("429") && text.contains("overloaded"), "{text}");
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    until("room again", PATIENCE, || async { Ok(fixture.application().ask("now?", 3).await.ok()) })
        .await
        .unwrap();
}
