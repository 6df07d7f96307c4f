//! Dialling out with TLS to a peer known by identity, whatever its address.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use crate::alive;
use crate::identity::Identity;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot connect to `{address}`")]
    Connect { address: String, source: std::io::Error },
    #[error("no connection to `{address}` within 5 s")]
    TimedOut { address: String },
    #[error(
        "the certificate of `{address}` is not valid at this machine's time, {now}: set the clocks of both (NTP)"
    )]
    Clock { address: String, now: Timestamp, source: std::io::Error },
    #[error("`{address}` is not the denv control plane, host or gateway that was expected there")]
    Stranger { address: String, source: std::io::Error },
    #[error("the TLS handshake with `{address}` failed")]
    Handshake { address: String, source: std::io::Error },
    #[error("cannot open a gRPC channel to `{address}`")]
    Channel { address: String, source: tonic::transport::Error },
}

/// A TLS connection to `address` that is `identity`, or an error.
pub async fn connect(
    address: &str,
    identity: &Identity,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, DialError> {
    let server_name = ServerName::try_from(identity.dns_name()).expect("identities are DNS names");
    let attempt = async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|source| DialError::Connect { address: address.to_owned(), source })?;
        // Small messages in both directions: waiting to fill packets would only add delay.
        let _ = stream.set_nodelay(true);
        alive::watch(&stream);
        TlsConnector::from(config)
            .connect(server_name, stream)
            .await
            .map_err(|source| handshake_error(address, source))
    };
    tokio::time::timeout(CONNECT_TIMEOUT, attempt)
        .await
        .map_err(|_| DialError::TimedOut { address: address.to_owned() })?
}

fn handshake_error(address: &str, source: std::io::Error) -> DialError {
    use rustls::CertificateError as Certificate;
    let address = address.to_owned();
    match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        )) => DialError::Clock { address, now: Timestamp::now(), source },
        Some(rustls::Error::InvalidCertificate(_)) => DialError::Stranger { address, source },
        _ => DialError::Handshake { address, source },
    }
}

/// A gRPC channel over one such connection. It is not re-made when it breaks: the caller decides when to dial again.
pub async fn channel(
    address: &str,
    identity: &Identity,
    config: Arc<ClientConfig>,
) -> Result<Channel, DialError> {
    // Connecting first keeps the handshake's error whole; tonic would wrap it away.
    let stream = connect(address, identity, config).await?;
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = once.take().ok_or_else(|| std::io::Error::other("the connection was lost"));
        std::future::ready(stream)
    });
    Endpoint::from_static("http://control-plane.denv.internal")
        .http2_keep_alive_interval(alive::DIALLER_ASKS)
        .keep_alive_timeout(alive::DIALLER_WAITS)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(|source| DialError::Channel { address: address.to_owned(), source })
}
