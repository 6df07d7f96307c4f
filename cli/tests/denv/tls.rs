//! Over TLS only who is trusted is told the token.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::{denv, run};

/// Answers every request with no hosts, over TLS; its certificate, as PEM.
fn start() -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(listener, TlsAcceptor::from(Arc::new(config))));
    });
    (address, made.cert.pem())
}

async fn serve(listener: std::net::TcpListener, acceptor: TlsAcceptor) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut request = [0; 4_096];
        if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"items\":[]}";
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }
}

#[test]
fn a_given_authority_is_trusted_and_no_other() {
    let (address, pem) = start();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let server = format!("https://localhost:{}", address.port());
    let get = |ca: &std::path::Path| {
        run(denv().args(["get", "hosts", "--server", &server]).env("DENV_TOKEN", "x").arg("--ca").arg(ca))
    };
    let (status, _, err) = get(&ca);
    assert_eq!((status, err.as_str()), (0, "no hosts\n"));
    std::fs::write(&ca, rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem())
        .unwrap();
    let (status, _, err) = get(&ca);
    assert_eq!(status, 2);
    assert!(
        err.contains("certificate") && err.contains("hint: trust the control plane's authority"),
        "{err}"
    );
    std::fs::write(&ca, "not a certificate").unwrap();
    let (status, _, err) = get(&ca);
    assert_eq!(status, 2);
    assert!(err.contains("holds no PEM certificate"), "{err}");
}
