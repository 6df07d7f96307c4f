//! Listening with mutual TLS: connections come out with the identity their certificate proved.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::alive;
use crate::identity::Identity;

/// A peer that does not finish its handshake in this time is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at once. Each costs a processor a good while, and thousands of peers that come back together would leave
/// nothing to those who are in already. The others wait with the system, where they cost nothing.
const HANDSHAKES: usize = 64;
/// A handshake that takes longer counts no more, so a slow one delays no other for longer than this.
const COUNTED: Duration = Duration::from_millis(500);

/// Who is at the other end. In tonic handlers it is found in the request's extensions.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// None: the peer showed no certificate.
    pub identity: Option<Identity>,
}

/// An accepted connection.
pub struct Connection {
    stream: TlsStream<TcpStream>,
    pub peer: Peer,
}

impl Connected for Connection {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

/// The connections that `listener` takes, until the stream is dropped. Each handshake uses the configuration of
/// that moment, so a renewed certificate needs no restart.
pub fn accept(
    listener: TcpListener,
    config: watch::Receiver<Arc<ServerConfig>>,
) -> impl Stream<Item = io::Result<Connection>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let crowd = Arc::new(Semaphore::new(HANDSHAKES));
        loop {
            let accepted = async {
                let place = Arc::clone(&crowd).acquire_owned().await.expect("nobody closes it");
                (listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                accepted = accepted => accepted,
                () = sender.closed() => return,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: wait for some to be free instead of spinning.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let acceptor = TlsAcceptor::from(config.borrow().clone());
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut handshake = std::pin::pin!(shake_hands(acceptor, stream, address));
                let shaken = match tokio::time::timeout(COUNTED, &mut handshake).await {
                    Ok(shaken) => shaken,
                    Err(_) => {
                        drop(place);
                        handshake.await
                    }
                };
                if let Some(connection) = shaken {
                    // The server is stopping when nobody takes the connection.
                    let _ = sender.send(Ok(connection)).await;
                }
            });
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|connection| (connection, receiver))
    })
}

async fn shake_hands(acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) -> Option<Connection> {
    // Small messages in both directions: waiting to fill packets would only add delay.
    let _ = stream.set_nodelay(true);
    alive::watch(&stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let identity = certificates.and_then(|chain| chain.first()).and_then(Identity::of_certificate);
            Some(Connection { stream, peer: Peer { address, identity } })
        }
        Ok(Err(error)) => {
            tracing::warn!(%address, %error, "refused a connection: the TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::warn!(%address, "refused a connection: the TLS handshake took too long");
            None
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
