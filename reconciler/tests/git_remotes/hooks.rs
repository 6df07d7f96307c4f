//! Push hooks, as forges send them to the API.

use hmac::{Hmac, Mac as _};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::process::{PATIENCE, Reconciler};
use crate::repository::Repository;

const SECRET: &str = "planted-hook-secret";

fn signature(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn github(reconciler: &Reconciler, event: &str, secret: &str, body: &Value) -> Response {
    let body = body.to_string();
    let signature = format!("sha256={}", signature(secret, &body));
    let hook = reconciler.post("/v1/webhooks/main").header("X-GitHub-Event", event);
    hook.header("X-Hub-Signature-256", signature).body(body).send().await.unwrap()
}

async fn message(response: Response) -> String {
    let answer: Value = response.json().await.unwrap();
    answer["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_push_is_seen_at_once_and_whoever_lacks_the_secret_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(&dir.path().join("config"));
    let secret = dir.path().join("hook-secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let reference = format!("file:{}", secret.display());
    let reconciler = Reconciler::start_with(dir.path(), &repository.bare.display().to_string(), |command| {
        command.args(["--source-webhook-secret", &reference]);
    })
    .await;
    reconciler.accepted().await;

    repository.add_customer("pushed");
    let commit = repository.commit("one more");
    let push = json!({"ref": "refs/heads/main", "after": commit, "repository": {"full_name": "ml/serving"}});
    let forged = github(&reconciler, "push", "another", &push).await;
    assert_eq!(forged.status(), StatusCode::UNAUTHORIZED);
    assert!(forged.text().await.unwrap().contains("signature does not hold"));
    let pushed = github(&reconciler, "push", SECRET, &push).await;
    assert_eq!(pushed.status(), StatusCode::ACCEPTED);
    let until = std::time::Instant::now() + PATIENCE;
    while reconciler.source().await.accepted.unwrap().commit != commit {
        assert!(std::time::Instant::now() < until, "the push was not seen: {}", reconciler.log());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    let ping = github(&reconciler, "ping", SECRET, &json!({"zen": "…"})).await;
    assert_eq!((ping.status(), message(ping).await.as_str()), (StatusCode::OK, "ignored: pong"));
    let topic = json!({"ref": "refs/heads/topic", "repository": {"full_name": "ml/serving"}});
    let topic = message(github(&reconciler, "push", SECRET, &topic).await).await;
    assert_eq!(topic, "ignored: `topic` was pushed; the source follows `main`");

    let gitlab = reconciler.post("/v1/webhooks/main").header("X-Gitlab-Token", SECRET);
    let gitlab = gitlab.header("X-Gitlab-Event", "Push Hook").body(push.to_string()).send().await.unwrap();
    assert_eq!(gitlab.status(), StatusCode::ACCEPTED);
    let gitea = reconciler.post("/v1/webhooks/main").header("X-Gitea-Event", "push");
    let gitea = gitea.header("X-Gitea-Signature", signature(SECRET, &push.to_string()));
    assert_eq!(gitea.body(push.to_string()).send().await.unwrap().status(), StatusCode::ACCEPTED);

    // Another source's name says no more than a wrong secret.
    let nobody = reconciler.post("/v1/webhooks/nobody").header("X-Gitlab-Token", SECRET);
    assert_eq!(nobody.body("{}").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let large = reconciler.post("/v1/webhooks/main").body(vec![b' '; (1 << 20) + 1]);
    assert_eq!(large.send().await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    let all = String::from_utf8_lossy(&reconciler.everything().await).into_owned();
    assert!(!all.contains(SECRET), "the secret is somewhere");
}

#[tokio::test]
async fn without_a_secret_no_hook_is_heard() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(&dir.path().join("config"));
    let reconciler = Reconciler::start(dir.path(), &repository.bare.display().to_string(), &[]).await;
    let hook = github(&reconciler, "push", "", &json!({"ref": "refs/heads/main"})).await;
    assert_eq!(hook.status(), StatusCode::UNAUTHORIZED);
}
