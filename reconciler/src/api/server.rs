//! Where the API listens: plain HTTP on loopback, TLS anywhere else.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "cannot listen on {address} for the API; is another reconciler running? choose another with --api-listen"
    )]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error(
        "the API will not listen on {0} without TLS, since tokens would travel in the clear; give \
         --api-tls-certificate and --api-tls-key, or listen on 127.0.0.1"
    )]
    InTheClear(SocketAddr),
    #[error("cannot read `{path}` as PEM")]
    Pem { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("cannot use the API's certificate and key")]
    Tls(#[from] rustls::Error),
}

/// A certificate chain and key, as files.
pub struct TlsFiles<'a> {
    pub certificate: &'a Path,
    pub key: &'a Path,
}

pub enum Listener {
    Plain(TcpListener),
    Tls { address: SocketAddr, connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)> },
}

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl Listener {
    pub async fn bind(address: SocketAddr, tls: Option<TlsFiles<'_>>) -> Result<Self, ListenError> {
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(ListenError::InTheClear(address));
        }
        let config = tls.map(|files| server_config(&files)).transpose()?;
        let listener =
            TcpListener::bind(address).await.map_err(|source| ListenError::Bind { address, source })?;
        let Some(config) = config else { return Ok(Listener::Plain(listener)) };
        let address = listener.local_addr().unwrap_or(address);
        let (sender, connections) = mpsc::channel(64);
        tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), sender));
        Ok(Listener::Tls { address, connections })
    }

    pub async fn serve(
        self,
        router: axum::Router,
        stop: tokio_util::sync::CancellationToken,
    ) -> std::io::Result<()> {
        let stopped = async move { stop.cancelled().await };
        match self {
            Listener::Plain(listener) => axum::serve(listener, router).with_graceful_shutdown(stopped).await,
            Listener::Tls { address, connections } => {
                axum::serve(TlsListener { address, connections }, router)
                    .with_graceful_shutdown(stopped)
                    .await
            }
        }
    }
}

struct TlsListener {
    address: SocketAddr,
    connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Each handshake in a task of its own, so that a slow one delays no other.
async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    connections: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    while !connections.is_closed() {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (acceptor, connections) = (acceptor.clone(), connections.clone());
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                let _ = connections.send((stream, peer)).await;
            }
        });
    }
}

fn server_config(files: &TlsFiles<'_>) -> Result<ServerConfig, ListenError> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |source| ListenError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(pem(files.certificate))?;
    let key = PrivateKeyDer::from_pem_file(files.key).map_err(pem(files.key))?;
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
