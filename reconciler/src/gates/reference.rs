use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use denv_schema::Name;
use denv_schema::manifest::ParityReference;
use denv_schema::quantity::Period;
use denv_schema::secret::SecretReference;
use denv_schema::wire::{CaseAnswer, LONGEST_ANSWER, Prompt, Said};
use futures::{StreamExt as _, stream};
use reqwest::redirect::Policy;

/// An API elsewhere may count how much is asked at once.
const AT_ONCE: usize = 4;
const LONGEST_BODY: usize = 8 * LONGEST_ANSWER;

/// Why an API can't be asked at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReferenceError {
    #[error("the suite names no API")]
    Unnamed,
    #[error(
        "manifests may not use the control plane's secret `{0}`; its operator allows it with `--manifest-secret {0}`"
    )]
    NotAllowed(SecretReference),
    #[error("the control plane has no secret `{0}`")]
    Missing(SecretReference),
    #[error("cannot set up HTTPS")]
    Setup(#[source] reqwest::Error),
}

/// Puts prompts to the API that a suite names as its reference.
pub(super) async fn api(
    reference: &ParityReference,
    allowed: &BTreeSet<SecretReference>,
    timeout: Period,
    prompts: Vec<Prompt>,
) -> Result<BTreeMap<Name, CaseAnswer>, ReferenceError> {
    let (Some(url), Some(model)) = (&reference.url, &reference.model) else {
        return Err(ReferenceError::Unnamed);
    };
    let key = reference.key.as_ref().map(|key| read(key, allowed)).transpose()?;
    // A redirect would take the key to where nobody has sent it.
    let builder = reqwest::Client::builder().redirect(Policy::none()).timeout(timeout.get());
    let http = builder.user_agent(concat!("denv/", env!("CARGO_PKG_VERSION"))).build();
    let http = http.map_err(ReferenceError::Setup)?;
    let url = format!("{}/chat/completions", url.trim_end_matches('/'));
    let one = async |prompt: Prompt| {
        let began = Instant::now();
        let mut request = http.post(&url).json(&prompt.request(model));
        if let Some(key) = &key {
            request = request.bearer_auth(key);
        }
        let said = answer(request).await;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        (prompt.case.clone(), CaseAnswer { took_ms, said })
    };
    Ok(stream::iter(prompts).map(one).buffer_unordered(AT_ONCE).collect().await)
}

/// A reference that refuses is as good as away: whatever it says, it is no answer to compare with.
async fn answer(request: reqwest::RequestBuilder) -> Said {
    let away = |error: reqwest::Error| Said::Away { reason: crate::chain(&error.without_url()) };
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return away(error),
    };
    let (status, mut body) = (response.status().as_u16(), Vec::new());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= LONGEST_BODY => body.extend_from_slice(&chunk),
            Ok(Some(_)) => {
                return Said::Away { reason: format!("its answer is longer than {LONGEST_BODY} bytes") };
            }
            Ok(None) => break,
            Err(error) => return away(error),
        }
    }
    match Said::read(status, &body) {
        Said::Error { status, message } => Said::Away { reason: format!("it answered {status}: {message}") },
        said => said,
    }
}

/// The secret's value, which is kept nowhere.
fn read(reference: &SecretReference, allowed: &BTreeSet<SecretReference>) -> Result<String, ReferenceError> {
    if !allowed.contains(reference) {
        return Err(ReferenceError::NotAllowed(reference.clone()));
    }
    let text = match reference {
        SecretReference::Variable(name) => std::env::var(name).ok(),
        SecretReference::File(path) => std::fs::read_to_string(path).ok(),
        SecretReference::Kubernetes { .. } => None,
    };
    let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    text.ok_or_else(|| ReferenceError::Missing(reference.clone()))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::post;

    use super::*;

    fn reference(url: &str, key: Option<&str>) -> ParityReference {
        serde_json::from_value(serde_json::json!({"kind": "api", "url": url, "model": "m", "key": key}))
            .unwrap()
    }

    fn prompts() -> Vec<Prompt> {
        let prompt =
            r#"[{"case": "capital", "messages": [{"role": "user", "content": "?"}], "maxTokens": 4}]"#;
        serde_json::from_str(prompt).unwrap()
    }

    async fn asked(
        url: &str,
        key: Option<&str>,
        allowed: &BTreeSet<SecretReference>,
    ) -> Result<Said, ReferenceError> {
        let answers = api(&reference(url, key), allowed, Period::from_secs(5), prompts()).await?;
        Ok(answers["capital"].said.clone())
    }

    #[tokio::test]
    async fn an_api_answers_who_has_its_key() {
        denv_link::install_tls_provider();
        let completions = post(|headers: HeaderMap| async move {
            if headers.get("authorization").is_some_and(|it| it == "Bearer hunter2") {
                (StatusCode::OK, r#"{"choices": [{"message": {"content": "Paris"}}]}"#)
            } else {
                (StatusCode::UNAUTHORIZED, r#"{"error": {"message": "no such key"}}"#)
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/chat/completions", completions);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

        let file = tempfile::NamedTempFile::new().unwrap();
        let key = format!("file:{}", file.path().display());
        let allowed = BTreeSet::from([key.parse().unwrap()]);
        assert!(matches!(asked(&url, Some(&key), &allowed).await, Err(ReferenceError::Missing(_))));
        std::fs::write(file.path(), "hunter2\n").unwrap();
        let error = asked(&url, Some(&key), &BTreeSet::new()).await.unwrap_err().to_string();
        assert!(error.contains("--manifest-secret file:"), "{error}");
        let Ok(Said::Answer(answer)) = asked(&url, Some(&key), &allowed).await else { panic!("an answer") };
        assert_eq!(answer.text, "Paris");
        let away = Said::Away { reason: "it answered 401: no such key".to_owned() };
        assert_eq!(asked(&url, None, &allowed).await.unwrap(), away);
        assert!(matches!(asked("http://127.0.0.1:1/v1", None, &allowed).await, Ok(Said::Away { .. })));
    }
}
