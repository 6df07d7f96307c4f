use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    TimedOut,
    /// For people.
    Broken(String),
    TooLong,
}

/// Asks the engine on `port` once, on a connection of its own: a GET, or a POST of JSON. Gives the status and the
/// body, if that is no longer than `most`.
pub(super) async fn ask(
    port: u16,
    path: &str,
    json: Option<Bytes>,
    timeout: Duration,
    most: usize,
) -> Result<(u16, Bytes), Failure> {
    tokio::time::timeout(timeout, exchange(port, path, json, most)).await.unwrap_or(Err(Failure::TimedOut))
}

async fn exchange(port: u16, path: &str, json: Option<Bytes>, most: usize) -> Result<(u16, Bytes), Failure> {
    let broken = |error: &dyn std::fmt::Display| Failure::Broken(error.to_string());
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| Failure::Broken(format!("cannot connect to port {port}: {error}")))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let _connection = AbortOnDrop(tokio::spawn(connection).abort_handle());
    let mut request = Request::builder()
        .uri(path)
        .header(header::HOST, format!("127.0.0.1:{port}"))
        .header(header::USER_AGENT, "denvd")
        .header(header::CONNECTION, "close");
    if json.is_some() {
        request = request.method(Method::POST).header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::new(json.unwrap_or_default())).map_err(|error| broken(&error))?;
    let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
    let status = response.status().as_u16();
    match Limited::new(response.into_body(), most).collect().await {
        Ok(body) => Ok((status, body.to_bytes())),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::TooLong),
        Err(error) => Err(broken(&error)),
    }
}

/// A question that is given up leaves no connection behind.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
