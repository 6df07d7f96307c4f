//! Two tenants in one process: what one has, the other never sees.

use std::sync::Arc;
use std::time::{Duration, Instant};

use denv_link::credentials::Credentials;
use denv_link::rpc::control_plane_client::ControlPlaneClient;
use denv_link::{Identity, JoinToken, Role};
use denv_schema::api::{HostView, JoinRole, List, SourceView, TokenRequest, TokenResponse};
use denv_schema::wire::{HostHello, HostInstruction, HostMessage, HostReport};
use reqwest::StatusCode;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::process::{PATIENCE, Reconciler};
use crate::repository::Repository;

#[tokio::test]
async fn tenants_share_a_process_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (
        Repository::quickstart(&dir.path().join("ours")),
        Repository::quickstart(&dir.path().join("theirs")),
    );
    theirs.add_customer("theirs-alone");
    let pushed = theirs.commit("one of theirs");
    let settings = format!(
        "sources:\n  - {{name: ours, url: {}, poll: 1h}}\n  - {{name: theirs, tenant: acme, url: {}, poll: 1h, webhookSecret: 'env:HOOK'}}\n",
        ours.bare.display(),
        theirs.bare.display()
    );
    std::fs::write(dir.path().join("sources.yaml"), settings).unwrap();
    let file = dir.path().join("sources.yaml");
    let reconciler = Reconciler::start_on(dir.path(), |command| {
        command.arg("--sources").arg(&file).env("HOOK", "planted-hook-secret");
    })
    .await;
    let refreshed: SourceView = reconciler.ask("/v1/sources/theirs/refresh?tenant=acme").await;
    assert_eq!(refreshed.accepted.unwrap().commit, pushed);
    let _: SourceView = reconciler.ask("/v1/sources/ours/refresh").await;

    let names = async |query: &str| {
        let list: List<Value> = reconciler.get(&format!("/v1/manifests/customers{query}")).await;
        list.items.into_iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names("?tenant=acme").await.contains(&"theirs-alone".to_owned()));
    for query in ["", "?tenant=default"] {
        assert!(!names(query).await.contains(&"theirs-alone".to_owned()));
    }
    let sources: List<SourceView> = reconciler.get("/v1/sources").await;
    assert_eq!(sources.items.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(), ["ours"]);
    assert_eq!(reconciler.status("/v1/sources?tenant=nobody").await, StatusCode::NOT_FOUND);

    assert_eq!(reconciler.status("/healthz").await, StatusCode::OK);
    assert_eq!(reconciler.status("/metrics?tenant=acme").await, StatusCode::OK);

    // A hook finds its source in whichever tenant, and a secret of one opens no other.
    let hook = |source: &str| {
        let hook = reconciler.post(&format!("/v1/webhooks/{source}"));
        hook.header("X-Gitlab-Token", "planted-hook-secret").header("X-Gitlab-Event", "ping").body("{}")
    };
    assert_eq!(hook("theirs").send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(hook("ours").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);

    // A token of one tenant makes a certificate of that tenant, and its host is seen there alone.
    let request = TokenRequest { role: JoinRole::Host, name: "host-a".parse().unwrap() };
    let token: TokenResponse = reconciler.ask_with("/v1/tokens?tenant=acme", &request).await;
    let token: JoinToken = token.token.parse().unwrap();
    let credentials =
        denv_link::enrolment::join(&reconciler.link, &token, &dir.path().join("host")).await.unwrap();
    let identity = credentials.identity().unwrap();
    let acme = "acme".parse().unwrap();
    assert_eq!(identity, Identity::new(&acme, Role::Host, &"host-a".parse().unwrap()));
    let renewed = denv_link::enrolment::renew(&reconciler.link, &credentials, &dir.path().join("host")).await;
    assert_eq!(renewed.unwrap().identity().unwrap().tenant, acme);
    let again = denv_link::enrolment::join(&reconciler.link, &token, &dir.path().join("again")).await;
    assert!(again.is_err(), "a token is good once, whatever the tenant");
    let joined = async |query: &str| {
        let events: List<Value> = reconciler.get(&format!("/v1/events{query}")).await;
        events.items.iter().any(|event| event["message"] == "joined")
    };
    assert!(joined("?tenant=acme").await && !joined("").await);

    // Both tenants have a host of this name; the one that dials in is the one of its certificate.
    let _stream = attach(&reconciler.link, &credentials).await;
    let state = async |query: &str| {
        let hosts: List<HostView> = reconciler.get(&format!("/v1/hosts{query}")).await;
        hosts.items.into_iter().find(|host| host.host.as_str() == "host-a").unwrap().state
    };
    let until = Instant::now() + PATIENCE;
    while state("?tenant=acme").await != "connected" {
        assert!(Instant::now() < until, "{}", reconciler.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(state("").await, "never-joined");
}

/// A host's stream, as denvd begins it; it lasts as long as both of these.
async fn attach(
    server: &str,
    credentials: &Credentials,
) -> (mpsc::Sender<HostMessage>, tonic::Streaming<HostInstruction>) {
    let control_plane = Identity::control_plane(&credentials.identity().unwrap().tenant);
    let config = Arc::new(credentials.client_config(&[denv_link::enrolment::GRPC]).unwrap());
    let channel = denv_link::dial::channel(server, &control_plane, config).await.unwrap();
    let (sender, messages) = mpsc::channel(4);
    let hello = HostHello {
        version: "test".to_owned(),
        ingress: "127.0.0.1:1".to_owned(),
        clock: jiff::Timestamp::now(),
        report: HostReport::default(),
    };
    sender.send(HostMessage::Hello(hello)).await.unwrap();
    let attached = ControlPlaneClient::new(channel).attach_host(ReceiverStream::new(messages)).await;
    (sender, attached.unwrap().into_inner())
}

#[test]
fn a_faulty_settings_file_is_named_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sources.yaml");
    std::fs::write(&file, "sources:\n  - name: a\n    url: /srv/a.git\n    brunch: main\n").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_denv-reconciler"))
        .arg("--sources")
        .arg(&file)
        .arg("--state-dir")
        .arg(dir.path().join("state"))
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("sources.yaml:4:5`: unknown field `brunch`"), "{said}");
}

/// A slip in the settings would end all that a source declares, as a slip in Git would.
#[tokio::test]
async fn a_source_that_is_set_no_more_is_let_go_only_when_that_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Repository::quickstart(&dir.path().join("config"));
    let url = repository.bare.display().to_string();
    let named = |name: &'static str| {
        let url = url.clone();
        move |command: &mut std::process::Command| {
            command.args(["--source", &url, "--poll", "1h", "--source-name", name]);
        }
    };
    let first = Reconciler::start_on(dir.path(), named("main")).await;
    first.accepted().await;
    drop(first);
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_denv-reconciler"))
        .args(["--source", &url, "--source-name", "other", "--api-listen", "127.0.0.1:0"])
        .args(["--link-listen", "127.0.0.1:0", "--state-dir"])
        .arg(dir.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("has a revision in force and is set no more"), "{said}");
    let again = Reconciler::start_on(dir.path(), |command| {
        named("other")(command);
        command.args(["--source-forget", "main"]);
    })
    .await;
    let view: SourceView = again.ask("/v1/sources/other/refresh").await;
    assert!(view.accepted.is_some());
}
