use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use denv_link::dial::{self, DialError};
use denv_link::{Identity, Role};
use denv_schema::Name;
use denv_schema::wire::MemberRoute;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How ingresses are reached.
pub(crate) enum Transport {
    /// As this gateway, to the host that the route names and no other. The configuration changes as certificates
    /// are renewed.
    MutualTls { tenant: Name, config: watch::Receiver<Arc<ClientConfig>> },
    /// For benchmarks and tests on loopback.
    Plain,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("cannot connect to `{address}`")]
    Plain { address: String, source: std::io::Error },
    #[error("`{address}` does not speak HTTP/1.1")]
    Http { address: String, source: hyper::Error },
}

const PLAIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Transport {
    pub(crate) async fn connect(
        &self,
        route: &MemberRoute,
    ) -> Result<SendRequest<Full<Bytes>>, ConnectError> {
        let address = route.ingress.as_str();
        match self {
            Transport::MutualTls { tenant, config } => {
                let identity = Identity::new(tenant, Role::Host, &route.host);
                let config = config.borrow().clone();
                let stream = dial::connect(address, &identity, config).await?;
                speak_http(address, TokioIo::new(stream)).await
            }
            Transport::Plain => {
                let failed = |source| ConnectError::Plain { address: address.to_owned(), source };
                let stream = tokio::time::timeout(PLAIN_CONNECT_TIMEOUT, TcpStream::connect(address))
                    .await
                    .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
                    .map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                speak_http(address, TokioIo::new(stream)).await
            }
        }
    }
}

async fn speak_http(
    address: &str,
    stream: impl Read + Write + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, ConnectError> {
    let (sender, connection) = http1::handshake(stream)
        .await
        .map_err(|source| ConnectError::Http { address: address.to_owned(), source })?;
    // It ends when its sender is dropped or the other side closes; whoever waits for an answer hears of errors.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
