//! Gateways, and peers that are none, at the ingress.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use denv_agent::ingress;
use denv_agent::runner::Runner;
use denv_link::dial::{self, DialError};
use denv_link::identity::tenant;
use denv_link::{Authority, Credentials, Identity, Role};
use denv_schema::wire::MemberState;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::bench::*;
use crate::peers::{HOUR, authority, credentials};

/// A host with one healthy engine behind its ingress.
struct Bench {
    host: Host,
    runner: Runner,
    authority: Arc<Authority>,
    address: SocketAddr,
}

impl Bench {
    async fn new(arguments: &[&str]) -> Bench {
        let host = Host::new();
        let runner = host.runner().await;
        accepted(&runner, start(1, 1, spec(arguments))).await;
        until_state(&runner, MemberState::Healthy).await;
        let authority = authority();
        let tls =
            credentials(&authority, Role::Host, "gpu-1").server_config(&[ingress::HTTP1], false).unwrap();
        let (tls_sender, tls) = watch::channel(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let view = runner.handle().view();
        tokio::spawn(async move {
            let _tls_sender = tls_sender;
            ingress::serve(listener, tls, tenant(), view, std::future::pending()).await;
        });
        Bench { host, runner, authority, address }
    }

    async fn connect(&self, peer: &Credentials) -> SendRequest<Full<Bytes>> {
        let host = Identity::new(&tenant(), Role::Host, &"gpu-1".parse().unwrap());
        let config = Arc::new(peer.client_config(&[ingress::HTTP1]).unwrap());
        let stream = dial::connect(&self.address.to_string(), &host, config).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn gateway(&self) -> SendRequest<Full<Bytes>> {
        self.connect(&credentials(&self.authority, Role::Gateway, "gw-1")).await
    }
}

async fn get(sender: &mut SendRequest<Full<Bytes>>, path: &str) -> Response<Incoming> {
    let request =
        Request::get(path).header("host", "x").header("x-mine", "kept").body(Full::default()).unwrap();
    sender.send_request(request).await.unwrap()
}

async fn json(response: Response<Incoming>) -> serde_json::Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

fn not_begun(response: &Response<Incoming>) -> bool {
    response.headers().get(ingress::NOT_BEGUN).is_some_and(|value| value == "1")
}

#[tokio::test]
async fn a_gateway_reaches_the_engine() {
    let bench = Bench::new(&[]).await;
    let mut gateway = bench.gateway().await;
    let response = get(&mut gateway, &format!("/members/{MEMBER}/v1/models?x=1%202")).await;
    assert_eq!(response.status(), StatusCode::OK);
    let seen = json(response).await;
    assert_eq!(seen["path"], "/v1/models?x=1%202");
    assert_eq!(seen["headers"]["x-mine"], "kept");
    // The connection to the engine serves the next request too.
    let again = json(get(&mut gateway, &format!("/members/{MEMBER}/v1/models")).await).await;
    assert_eq!(again["client"], seen["client"]);

    let body = "x".repeat(1 << 20);
    let request = Request::post(format!("/members/{MEMBER}/v1/chat/completions"))
        .header("host", "x")
        .body(Full::from(body.clone()))
        .unwrap();
    assert_eq!(json(gateway.send_request(request).await.unwrap()).await["read"], body);
}

#[tokio::test]
async fn answers_stream_and_a_client_that_leaves_ends_them() {
    let left = tempfile::tempdir().unwrap();
    let left = left.path().join("left");
    let bench = Bench::new(&["--left", left.to_str().unwrap()]).await;
    let mut gateway = bench.gateway().await;
    let mut body = get(&mut gateway, &format!("/members/{MEMBER}/stream")).await.into_body();
    for number in 0..3 {
        let frame = tokio::time::timeout(DEADLINE, body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("data: {number}\n\n"));
    }
    assert!(!left.exists());
    drop((body, gateway));
    eventually("the engine sees that its client left", || left.exists()).await;
}

#[tokio::test]
async fn what_has_not_begun_is_marked() {
    let bench = Bench::new(&[]).await;
    let mut gateway = bench.gateway().await;
    let response = get(&mut gateway, "/members/chat.prod.9.0/v1/models").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(not_begun(&response));
    assert_eq!(json(response).await["error"]["type"], "unit_unavailable");

    // The engine lives and listens no more.
    get(&mut gateway, &format!("/members/{MEMBER}/deafen")).await.into_body().collect().await.unwrap();
    let mut last = None;
    let deadline = std::time::Instant::now() + DEADLINE;
    while last.is_none() && std::time::Instant::now() < deadline {
        // New connections only: one kept from before is still served.
        let (a, b) = (&mut bench.gateway().await, &mut bench.gateway().await);
        let path = format!("/members/{MEMBER}/x");
        let (a, b) = tokio::join!(get(a, &path), get(b, &path));
        last = [a, b]
            .into_iter()
            .find(|response| response.status() == StatusCode::BAD_GATEWAY && not_begun(response));
    }
    assert!(last.is_some(), "a refused connection is told apart");

    let engine = bench.host.processes()[0];
    send(engine, Signal::SIGKILL);
    until_state(&bench.runner, MemberState::Unhealthy).await;
    accepted(&bench.runner, stop(1, 1)).await;
    until_state(&bench.runner, MemberState::Stopped).await;
    let response = get(&mut gateway, &format!("/members/{MEMBER}/x")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(not_begun(&response));
    assert_eq!(get(&mut gateway, "/metrics").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_is_not_called_unbegun() {
    let bench = Bench::new(&[]).await;
    let mut gateway = bench.gateway().await;
    let mut body = get(&mut gateway, &format!("/members/{MEMBER}/stream")).await.into_body();
    body.frame().await.unwrap().unwrap();
    send(bench.host.processes()[0], Signal::SIGKILL);
    // The stream breaks off; it does not end as if it were whole.
    let broken = async {
        while let Some(frame) = body.frame().await {
            frame?;
        }
        Ok::<_, hyper::Error>(())
    };
    assert!(tokio::time::timeout(DEADLINE, broken).await.unwrap().is_err());
}

#[tokio::test]
async fn only_this_tenants_gateways_and_control_plane_get_in() {
    let bench = Bench::new(&[]).await;
    let path = format!("/members/{MEMBER}/v1/models");
    let authority = &bench.authority;
    let mut plane = bench.connect(&credentials(authority, Role::ControlPlane, "")).await;
    assert_eq!(get(&mut plane, &path).await.status(), StatusCode::OK);

    let mut other_host = bench.connect(&credentials(authority, Role::Host, "gpu-2")).await;
    let response = get(&mut other_host, &path).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(!not_begun(&response));

    let stranger = Identity::new(&"other".parse().unwrap(), Role::Gateway, &"gw-1".parse().unwrap());
    let stranger = authority.issue(&stranger, jiff::Timestamp::now(), HOUR).unwrap();
    let mut stranger = bench.connect(&stranger).await;
    assert_eq!(get(&mut stranger, &path).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn without_a_certificate_of_its_authority_nobody_gets_in() {
    let bench = Bench::new(&[]).await;
    let host = Identity::new(&tenant(), Role::Host, &"gpu-1".parse().unwrap());
    let address = bench.address.to_string();

    let gateway_elsewhere = credentials(&crate::peers::authority(), Role::Gateway, "gw-1");
    let config = Arc::new(gateway_elsewhere.client_config(&[ingress::HTTP1]).unwrap());
    let refused = dial::connect(&address, &host, config).await;
    assert!(matches!(refused, Err(DialError::Stranger { .. })));

    // Plain HTTP, and TLS without a certificate.
    let answer = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /members/x/y HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    assert!(!answer.await.unwrap().starts_with(b"HTTP"));
    let certificate = bench.authority.certificate_pem().to_owned();
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject as _;
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let refused = async {
        let stream = dial::connect(&bench.address.to_string(), &host, Arc::new(config)).await?;
        let (mut sender, connection) = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(Request::get("/members/x/y").header("host", "x").body(Full::default())?).await?;
        anyhow::Ok(())
    };
    assert!(refused.await.is_err());
}
