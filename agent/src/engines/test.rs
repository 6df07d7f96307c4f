use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Instant;

use denv_schema::Name;
use denv_schema::wire::{CaseAnswer, LONGEST_ANSWER, MemberState, Prompt, Said, TestRequest, TestResult};
use futures::{StreamExt as _, stream};
use tokio::sync::watch;

use super::exchange::{Failure, ask};
use crate::runner::{MemberView, View};

/// Prompts that an engine works on at once for a test: few enough that each gets its time.
const AT_ONCE: usize = 8;
/// Room for what stands around an answer's text, and for its escapes.
const LONGEST_BODY: usize = 8 * LONGEST_ANSWER;

/// Puts a test's prompts to the engine, and gives its answers. Nothing that was asked is logged.
pub async fn answer(view: watch::Receiver<View>, request: TestRequest) -> TestResult {
    let TestRequest { id, member, generation, model, timeout, prompts } = request;
    let engine = || {
        let engine = view.borrow().members.get(&member).cloned();
        let engine = engine.filter(|engine| engine.report.generation == generation)?;
        engine.port.filter(|_| engine.report.state == MemberState::Healthy).map(|port| (port, engine))
    };
    let one = async |prompt: Prompt| -> (Name, CaseAnswer, Option<String>) {
        let began = Instant::now();
        let mut whole = None;
        let said = match engine() {
            Some((port, _)) => {
                let body = prompt.request(&model).to_string().into();
                let path = "/v1/chat/completions";
                match ask(port, path, Some(body), timeout.get(), LONGEST_BODY).await {
                    Ok((status, body)) => {
                        whole = prompt.whole.then(|| String::from_utf8_lossy(&body).into_owned());
                        Said::read(status, &body)
                    }
                    Err(failure) => fault(failure, engine).await,
                }
            }
            None => Said::Away { reason: "it is not healthy on its host".to_owned() },
        };
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        (prompt.case.clone(), CaseAnswer { took_ms, said }, whole)
    };
    let mut result = TestResult { id, answers: BTreeMap::new(), bodies: BTreeMap::new() };
    let mut answered = pin!(stream::iter(prompts).map(one).buffer_unordered(AT_ONCE));
    while let Some((case, answer, whole)) = answered.next().await {
        result.bodies.extend(whole.map(|whole| (case.clone(), whole)));
        result.answers.insert(case, answer);
    }
    result
}

/// Whose fault it is that no answer came: an engine that still passes its check was too slow, or said too much.
async fn fault(failure: Failure, engine: impl Fn() -> Option<(u16, MemberView)>) -> Said {
    let reason = match failure {
        Failure::TooLong => {
            return Said::Unreadable { reason: format!("it is longer than {LONGEST_BODY} bytes") };
        }
        Failure::Broken(reason) => return Said::Away { reason },
        Failure::TimedOut => "it did not answer, and its check did not pass any more".to_owned(),
    };
    let Some((port, MemberView { spec: Some(spec), .. })) = engine() else { return Said::Away { reason } };
    // Without a check nobody can say more than that.
    let Some(probe) = &spec.probe else { return Said::TimedOut };
    match ask(port, &probe.path, None, probe.timeout.get(), LONGEST_BODY).await {
        Ok((200, _)) => Said::TimedOut,
        Ok(_) | Err(_) => Said::Away { reason },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use denv_schema::Digest;
    use denv_schema::launch::LaunchSpec;
    use denv_schema::wire::{Answer, MemberReport};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// An engine that answers as it is asked to, and one that is frozen: it takes connections and says nothing.
    async fn engine(frozen: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    let mut length = stream.read(&mut request).await.unwrap();
                    while request.starts_with(b"POST") && request[length - 1] != b'}' {
                        length += stream.read(&mut request[length..]).await.unwrap();
                    }
                    let asked = String::from_utf8_lossy(&request[..length]).into_owned();
                    if frozen || asked.contains("slowly") {
                        std::future::pending::<()>().await;
                    }
                    let (status, body) = if asked.contains("refuse") {
                        ("500 Internal Server Error", r#"{"error":{"message":"out of memory"}}"#)
                    } else {
                        ("200 OK", r#"{"choices":[{"message":{"content":"Paris"},"finish_reason":"stop"}]}"#)
                    };
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                });
            }
        });
        port
    }

    fn spec() -> LaunchSpec {
        serde_json::from_value(serde_json::json!({
            "model": "tiny", "argv": ["engine"], "env": {}, "startTimeout": "1s", "stopTimeout": "1s", "gpus": [],
            "probe": {"path": "/health", "interval": "1s", "timeout": "200ms", "failures": 3},
        }))
        .unwrap()
    }

    async fn asked(port: u16, generation: u64, content: &str) -> Said {
        let report = MemberReport {
            generation: 1,
            spec: Digest::from_bytes([0; 32]),
            state: MemberState::Healthy,
            since: jiff::Timestamp::UNIX_EPOCH,
            claim: None,
            restarts: 0,
            ends_in_a_row: 0,
            reason: None,
        };
        let shown = MemberView { report, port: Some(port), spec: Some(Arc::new(spec())) };
        let view = View { members: [("chat.prod.1.0".into(), shown)].into(), problems: Vec::new() };
        let request = serde_json::from_value(serde_json::json!({
            "id": "t", "member": "chat.prod.1.0", "generation": generation, "model": "tiny", "timeout": "300ms",
            "prompts": [{"case": "one", "messages": [{"role": "user", "content": content}], "maxTokens": 4}],
        }));
        let (_keep, view) = watch::channel(view);
        let answering = answer(view, request.unwrap());
        let result = tokio::time::timeout(Duration::from_secs(10), answering).await.unwrap();
        result.answers["one"].said.clone()
    }

    #[tokio::test]
    async fn what_the_engine_says_is_its_own() {
        let port = engine(false).await;
        let paris = Answer { text: "Paris".into(), finish_reason: Some("stop".into()), ..Answer::default() };
        assert_eq!(asked(port, 1, "The capital?").await, Said::Answer(paris));
        let error = Said::Error { status: 500, message: "out of memory".to_owned() };
        assert_eq!(asked(port, 1, "refuse this").await, error);
        assert_eq!(asked(port, 1, "answer slowly").await, Said::TimedOut);
    }

    #[tokio::test]
    async fn an_engine_that_is_away_has_said_nothing() {
        let frozen = engine(true).await;
        assert!(matches!(asked(frozen, 1, "anything").await, Said::Away { .. }));
        assert!(matches!(asked(engine(false).await, 2, "of another generation").await, Said::Away { .. }));
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let Said::Away { reason } = asked(closed, 1, "anything").await else { panic!("away") };
        assert!(reason.contains("cannot connect"), "{reason}");
    }
}
