//! What clients see when all is well, and when it is they who err.

mod support;

use denv_schema::wire::{RequestOutcome, Rotation, TokenCounts};

use support::ingress::{STREAM_HEAD, Step, USUAL, chunk, framed, respond, usage_chunk};
use support::{ASK, ASK_STREAM, KEY, World, read, unit};

#[tokio::test]
async fn an_answer_passes_byte_for_byte_and_is_metered_once() {
    let world = World::with_units(1).await;
    let answered = world.chat(ASK).await;
    assert_eq!((answered.status, answered.text.as_str()), (200, USUAL));
    assert_eq!(answered.headers["content-type"], "application/json");
    let id = answered.headers["x-request-id"].to_str().unwrap().to_owned();

    let (head, body) = world.hosts[0].engine.asked().remove(0);
    assert_eq!(body, ASK, "what need not change passes as it came");
    assert!(head.starts_with("POST /members/chat.prod.0.0/v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("x-request-id: {id}")), "{head}");
    assert!(!head.contains(KEY), "keys stay at the gateway");

    let record = world.records(1).await.remove(0);
    assert_eq!(record.request, id);
    assert_eq!((record.customer.as_str(), record.key.as_str()), ("acme", "acme-1"));
    assert_eq!((record.endpoint.as_str(), record.model.as_str()), ("public", "small"));
    assert_eq!((record.unit, record.release.as_str()), (unit(0), "r1"));
    assert_eq!(record.tokens, TokenCounts { input: 20, cached_input: 5, output: 6, reasoning: 0 });
    assert_eq!(record.outcome, RequestOutcome::Completed);
    assert_eq!(
        world.metric("denv_gateway_tokens_total{endpoint=\"public\",kind=\"cached-input\"}").await,
        5.0
    );
    let requests = "denv_gateway_requests_total{endpoint=\"public\",outcome=\"completed\",status=\"2xx\"}";
    assert_eq!(world.metric(requests).await, 1.0);
    assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 0.0);
}

#[tokio::test]
async fn the_models_name_is_the_one_that_the_engine_knows() {
    let world = World::with_units(1).await;
    let mut route = world.route(0, Rotation::In);
    route.generation = 2;
    route.model = "org/engine-name".to_owned();
    world.control_plane.heard.units.send_replace(vec![route]);
    world.until_reported("generation 2", |units| units.iter().any(|(_, unit)| unit.generation == 2)).await;
    world.until_in_rotation(1).await;
    let body = r#"{ "x" : 1.50, "model":"small" ,"messages":[{"content":"\u00e9 model: \"small\""}]}"#;
    assert_eq!(world.chat(body).await.status, 200);
    let wanted = body.replacen("\"model\":\"small\"", "\"model\":\"org/engine-name\"", 1);
    assert_eq!(world.hosts[0].engine.asked()[0].1, wanted);
}

fn stream() -> Vec<Step> {
    vec![
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk(r#""role":"assistant","content":"""#, "null")),
        framed(&chunk(r#""content":"hel""#, "null")),
        framed(&chunk(r#""content":"lo""#, "\"stop\"")),
        framed(&usage_chunk()),
        framed("data: [DONE]\n\n"),
        framed(""),
    ]
}

#[tokio::test]
async fn a_stream_shows_usage_only_to_those_who_asked() {
    let world = World::with_units(1).await;
    let engine = &world.hosts[0].engine;
    let text = [
        chunk(r#""role":"assistant","content":"""#, "null"),
        chunk(r#""content":"hel""#, "null"),
        chunk(r#""content":"lo""#, "\"stop\""),
    ]
    .concat();

    engine.then(stream());
    let answered = world.chat(ASK_STREAM).await;
    assert_eq!((answered.status, answered.text), (200, format!("{text}data: [DONE]\n\n")));
    assert!(answered.headers["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let wanted = ASK_STREAM.replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
    assert_eq!(engine.asked()[0].1, wanted);

    engine.then(stream());
    let asking =
        ASK_STREAM.replace(r#""stream":true"#, r#""stream":true,"stream_options":{"include_usage":true}"#);
    let answered = world.chat(&asking).await;
    assert_eq!(answered.text, format!("{text}{}data: [DONE]\n\n", usage_chunk()));
    assert_eq!(engine.asked()[1].1, asking);

    for record in world.records(2).await {
        assert_eq!(record.tokens, TokenCounts { input: 25, cached_input: 0, output: 4, reasoning: 0 });
        assert_eq!(record.outcome, RequestOutcome::Completed);
    }
    assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 0.0);
}

#[tokio::test]
async fn a_stream_without_usage_is_estimated() {
    let world = World::with_units(1).await;
    let mut steps = stream();
    steps.remove(4);
    world.hosts[0].engine.then(steps);
    assert_eq!(world.chat(ASK_STREAM).await.status, 200);
    let record = world.records(1).await.remove(0);
    // `[{"content":"hello"}]` has 21 bytes.
    assert_eq!(record.tokens, TokenCounts { input: 6, cached_input: 0, output: 2, reasoning: 0 });
    assert_eq!(world.metric("denv_gateway_usage_missing_total").await, 1.0);
}

#[tokio::test]
async fn those_who_err_are_told_what_is_wrong() {
    let world = World::with_units(1).await;
    let key = format!("Bearer {KEY}");
    for (authorization, body, status, code) in [
        ("", ASK, 401, "invalid_api_key"),
        ("Bearer sk-denv-other", ASK, 401, "invalid_api_key"),
        (key.as_str(), r#"{"model":"other"}"#, 404, "model_not_found"),
        (key.as_str(), r#"{"messages":[]}"#, 400, ""),
        (key.as_str(), r#"{"model":"small""#, 400, ""),
    ] {
        let headers = [("authorization", authorization), ("x-request-id", "mine-1")];
        let answered = read(world.request("POST", "/v1/chat/completions", &headers, body).await).await;
        assert_eq!(answered.status, status, "{body}");
        assert_eq!(answered.headers["x-request-id"], "mine-1");
        let error: serde_json::Value = serde_json::from_str(&answered.text).unwrap();
        assert_eq!(error["error"]["code"].as_str().unwrap_or(""), code);
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert!(error["error"]["message"].as_str().unwrap().len() > 10);
        assert!(error["error"].as_object().unwrap().contains_key("param"));
    }
    for (method, path, status) in
        [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("GET", "/v1/models", 401)]
    {
        let answered = read(world.request(method, path, &[], "").await).await;
        assert_eq!(answered.status, status, "{path}");
        assert!(answered.text.starts_with(r#"{"error":{"#), "{}", answered.text);
    }
    assert!(world.hosts[0].engine.asked().is_empty());
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused_before_they_are_read() {
    let world = World::with_units(1).await;
    let key = format!("Bearer {KEY}");
    let body = " ".repeat((32 << 20) + 1);
    let headers = [("authorization", key.as_str())];
    let answered = read(world.request("POST", "/v1/chat/completions", &headers, &body).await).await;
    assert_eq!(answered.status, 413);
}

#[tokio::test]
async fn an_engines_own_refusal_passes_and_costs_nothing() {
    let world = World::with_units(1).await;
    let refusal =
        r#"{"error":{"message":"too long","type":"BadRequestError","param":"max_tokens","code":400}}"#;
    world.hosts[0].engine.then([respond("400 Bad Request", "x-own: kept\r\n", refusal)]);
    let answered = world.chat(ASK).await;
    assert_eq!((answered.status, answered.text.as_str()), (400, refusal));
    assert_eq!(answered.headers["x-own"], "kept");
    assert_eq!(world.chat(ASK).await.status, 200, "the client's mistakes never count against a unit");
    world.records(1).await;
}

#[tokio::test]
async fn models_are_those_of_the_key() {
    let world = World::with_units(1).await;
    let models: serde_json::Value = serde_json::from_str(&world.get("/v1/models").await.text).unwrap();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "small");
    assert_eq!(models["data"][0]["object"], "model");
    assert_eq!(models["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn health_tells_whether_there_is_a_configuration() {
    let mut world = World::new(0).await;
    let config = world.control_plane.heard.config.send_replace(None);
    world.start(std::sync::Arc::new(denv_gateway::Files)).await;
    let answered = world.get("/health").await;
    assert_eq!(answered.status, 503);
    assert!(answered.text.contains("no configuration"), "{}", answered.text);
    assert_eq!(world.chat(ASK).await.status, 503);
    world.control_plane.heard.config.send_replace(config);
    let reported = world.control_plane.heard.report.subscribe();
    support::until("the configuration in force", || {
        reported.borrow().as_ref().is_some_and(|report| report.config.is_some())
    })
    .await;
    assert_eq!(world.get("/health").await.status, 200);
    let answered = world.chat(ASK).await;
    assert_eq!(answered.status, 503);
    assert!(answered.text.contains("no_ready_unit"));
}
