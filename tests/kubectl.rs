//! The Kubernetes definitions that `denv schema --crd` prints, as a real kubectl takes them: a dry run on its side, with
//! nothing behind it but the few answers by which it learns what a definition is.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::PathBuf;
use std::process::Stdio;

use axum::routing::get;
use axum::{Json, Router};
use denv_schema::manifest::Kind;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const GROUP: &str = "apiextensions.k8s.io";

/// An API server that knows definitions, and holds nothing.
async fn api_server() -> String {
    let answer = |value: Value| get(move || async move { Json(value) });
    let version = json!({ "groupVersion": format!("{GROUP}/v1"), "version": "v1" });
    let definitions = json!({
        "name": "customresourcedefinitions",
        "singularName": "customresourcedefinition",
        "namespaced": false,
        "kind": "CustomResourceDefinition",
        "verbs": ["create", "get", "list"]
    });
    let app = Router::new()
        .route("/api", answer(json!({ "kind": "APIVersions", "versions": ["v1"] })))
        .route("/api/v1", answer(json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [] })))
        .route(
            "/apis",
            answer(json!({
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [{ "name": GROUP, "versions": [version], "preferredVersion": version }]
            })),
        )
        .route(
            "/apis/apiextensions.k8s.io/v1",
            answer(json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": format!("{GROUP}/v1"),
                "resources": [definitions]
            })),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

#[tokio::test]
async fn kubectl_takes_the_definitions() {
    let program = std::env::var_os("DENV_CLIENTS").map(|clients| PathBuf::from(clients).join("bin/kubectl"));
    let Some(program) = program.filter(|program| program.exists()) else {
        assert!(std::env::var_os("CI").is_none(), "there must be a kubectl in CI: run `make test`");
        eprintln!("skipped: DENV_CLIENTS holds no kubectl; `make test` sets it up");
        return;
    };
    let denv = denv_tests::programs().unwrap().join("denv");
    let definitions = Command::new(denv).args(["schema", "--crd"]).output().await.unwrap();
    assert!(definitions.status.success());
    let home = tempfile::tempdir().unwrap();
    let mut kubectl = Command::new(program)
        .args(["--server", &api_server().await])
        .args(["create", "--dry-run=client", "--validate=false", "-o", "name", "-f", "-"])
        // What it caches, and whoever it may be configured for, is not this test's.
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.stdin.take().unwrap().write_all(&definitions.stdout).await.unwrap();
    let output = kubectl.wait_with_output().await.unwrap();
    let (said, trouble) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{trouble}");
    for kind in Kind::ALL {
        let name = format!("customresourcedefinition.{GROUP}/{}.denv.dev", kind.plural());
        assert!(said.lines().any(|line| line == name), "no {name} in\n{said}");
    }
}
