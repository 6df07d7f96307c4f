//! The pipelines in `examples/ci`, run as their runners would, on a real repository against a real control plane; only the
//! forge is a stand-in.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::fixture::Fixture;

/// What the forge was sent: method, path, and the comment's text.
type Sent = Arc<Mutex<Vec<(Method, String, String)>>>;

/// A forge that keeps one comment.
async fn forge() -> (String, Sent) {
    async fn answer(State(sent): State<Sent>, method: Method, uri: Uri, body: String) -> Response {
        let mut sent = sent.lock().unwrap();
        let newest =
            sent.iter().rev().find(|(method, ..)| *method != Method::GET).map(|(.., text)| text.clone());
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let text = body["body"].as_str().unwrap_or_default().to_owned();
        sent.push((method.clone(), uri.path().to_owned(), text));
        match method {
            Method::GET => {
                let comments: Vec<Value> = newest.iter().map(|text| json!({"id": 7, "body": text})).collect();
                axum::Json(comments).into_response()
            }
            _ => axum::Json(json!({"id": 7})).into_response(),
        }
    }
    let sent = Sent::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(Arc::clone(&sent));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, sent)
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/ci").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Runs a script as both runners do: by bash, which ends at the first command that fails.
async fn bash(fixture: &Fixture, variables: &[(&str, &str)], script: &str) -> (i32, String) {
    let path = format!("{}:{}", denv_tests::programs().unwrap().display(), std::env::var("PATH").unwrap());
    let token = std::fs::read_to_string(fixture.admin_token_file()).unwrap();
    let mut command = Command::new("bash");
    command
        .args(["-e", "-c", script])
        .current_dir(&fixture.repository.path)
        .env("PATH", path)
        .env("DENV_SERVER", fixture.api_url())
        .env("DENV_TOKEN", token.trim())
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "A Person")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "person@example.com")))
        .envs(variables.iter().copied());
    for name in ["GITHUB_ACTIONS", "GITLAB_CI", "GITEA_ACTIONS", "DENV_FORGE", "DENV_TOKEN_FILE"] {
        if !variables.iter().any(|(given, _)| *given == name) {
            command.env_remove(name);
        }
    }
    let done = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } = done.unwrap();
    let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    (status.code().unwrap_or(-1), text)
}

/// A branch on which one thing was changed.
async fn branch(fixture: &Fixture, name: &str, from: &str, to: &str) {
    let script = format!(
        "git checkout -q -b {name} main && sed -i 's/{from}/{to}/' service.yaml && git commit -q -a -m 'Change it'"
    );
    let (status, text) = bash(fixture, &[], &script).await;
    assert_eq!(status, 0, "{text}");
}

#[tokio::test]
async fn github_actions_checks_explains_and_comments() {
    let mut fixture = Fixture::create();
    // A third host may come, so what does not fit is known by its plan alone.
    fixture.repository.edit("capacity.yaml", "hosts: {min: 2, max: 2}", "hosts: {min: 2, max: 3}").unwrap();
    fixture.repository.commit("Leave room for a host").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("r1").await;
    let (api, sent) = forge().await;
    let workflow: Value = serde_yaml::from_str(&example("github-actions.yml")).unwrap();
    let steps = workflow["jobs"]["preview"]["steps"].as_array().unwrap();
    let scripts: Vec<&str> = steps.iter().filter_map(|step| step["run"].as_str()).collect();
    assert_eq!(scripts.len(), 3);
    let variables = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_API_URL", api.as_str()),
        ("GITHUB_REPOSITORY", "acme/serving"),
        ("GITHUB_TOKEN", "planted-token"),
        ("BASE", "origin/main"),
        ("NUMBER", "12"),
    ];
    branch(&fixture, "good", "release: r1$", "release: r2").await;
    let mut texts = Vec::new();
    for script in &scripts {
        let (status, text) = bash(&fixture, &variables, script).await;
        assert_eq!(status, 0, "{script}\n{text}");
        texts.push(text);
    }
    assert!(texts[1].contains("restarts 2 units of chat/prod: `r1` to `r2`"), "{}", texts[1]);
    let made = sent.lock().unwrap().last().cloned().unwrap();
    assert_eq!((made.0, made.1.as_str()), (Method::POST, "/repos/acme/serving/issues/12/comments"));
    assert!(made.2.contains("### denv: starts 2 units, drains 2 units"), "{}", made.2);
    // The same again changes nothing, and tells nobody the token.
    let (_, again) = bash(&fixture, &variables, scripts[2]).await;
    assert!(again.contains("was left, as it says this already"), "{again}");
    assert!(!format!("{texts:?}{again}").contains("planted-token"));

    // What is wrong stops at the first step, beside its line.
    branch(&fixture, "wrong", "release: r1$", "release: r9").await;
    let (status, text) = bash(&fixture, &variables, scripts[0]).await;
    assert_eq!(status, 1);
    assert!(text.starts_with("::error file=service.yaml,title=unknown-reference,line=13,"), "{text}");
    // What does not fit is said, in the comment too.
    branch(&fixture, "large", "min: 2", "min: 5").await;
    let (status, text) = bash(&fixture, &variables, scripts[2]).await;
    assert_eq!(status, 1, "{text}");
    let updated = sent.lock().unwrap().last().cloned().unwrap();
    assert_eq!((updated.0, updated.1.as_str()), (Method::PATCH, "/repos/acme/serving/issues/comments/7"));
    assert!(updated.2.contains("would not go through"), "{}", updated.2);
}

#[tokio::test]
async fn gitlab_ci_checks_explains_and_comments() {
    let fixture = Fixture::start().await;
    let (api, sent) = forge().await;
    let pipeline: Value = serde_yaml::from_str(&example("gitlab-ci.yml")).unwrap();
    let lines = pipeline["denv"]["script"].as_array().unwrap();
    let script = lines.iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n");
    let variables = [
        ("GITLAB_CI", "true"),
        ("CI_API_V4_URL", api.as_str()),
        ("CI_PROJECT_PATH", "acme/serving"),
        ("CI_MERGE_REQUEST_IID", "12"),
        ("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main"),
        ("DENV_FORGE_TOKEN", "planted-token"),
    ];
    branch(&fixture, "good", "bake: 500ms", "bake: 600ms").await;
    let (status, text) = bash(&fixture, &variables, &script).await;
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("only changes later rollouts: stage chat/prod"), "{text}");
    let made = sent.lock().unwrap().last().cloned().unwrap();
    assert_eq!((made.0, made.1.as_str()), (Method::POST, "/projects/acme%2Fserving/merge_requests/12/notes"));
    let sarif = std::fs::read(fixture.repository.path.join("denv.sarif")).unwrap();
    let sarif: Value = serde_json::from_slice(&sarif).unwrap();
    assert_eq!(sarif["runs"][0]["results"], json!([]));
    branch(&fixture, "wrong", "bake: 500ms", "bake: 600").await;
    let (status, text) = bash(&fixture, &variables, &script).await;
    assert_eq!(status, 1, "{text}");
}

#[tokio::test]
async fn the_pre_commit_hook_lets_only_sound_configurations_through() {
    let fixture = Fixture::create();
    let hook = fixture.repository.path.join(".git/hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, example("pre-commit.sh")).unwrap();
    let script = "chmod +x .git/hooks/pre-commit
        sed -i 's/release: r1$/release: r9/' service.yaml
        if git commit -q -a -m wrong; then exit 9; fi
        git checkout -q -f -- . && git reset -q --hard
        sed -i 's/release: r1$/release: r2/' service.yaml
        echo 'kind: nonsense' > unfinished.yaml
        git commit -q -a -m right";
    let path = format!("{}:{}", denv_tests::programs().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command
        .args(["-e", "-c", script])
        .current_dir(&fixture.repository.path)
        .env("PATH", path)
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "A Person")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "person@example.com")));
    let Output { status, stderr, .. } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{text}");
    assert!(
        text.contains("service.yaml:13:12: error[unknown-reference]: there is no Release `r9`"),
        "{text}"
    );
}
