use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Asks an engine's health once: a GET that must answer 200 in time. The error is for people.
pub(super) async fn check(port: u16, path: String, timeout: Duration) -> Result<(), String> {
    match tokio::time::timeout(timeout, get(port, &path)).await {
        Ok(Ok(StatusCode::OK)) => Ok(()),
        Ok(Ok(status)) => Err(format!("GET {path} answered {status}")),
        Ok(Err(reason)) => Err(format!("GET {path} failed: {reason}")),
        Err(_) => Err(format!("GET {path} gave no answer within {} ms", timeout.as_millis())),
    }
}

async fn get(port: u16, path: &str) -> Result<StatusCode, String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| format!("cannot connect to port {port}: {error}"))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
    let request = Request::get(path)
        .header(header::HOST, format!("127.0.0.1:{port}"))
        .header(header::USER_AGENT, "denvd")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    drop(connection);
    Ok(response.status())
}

/// A check that is given up leaves no connection behind.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
