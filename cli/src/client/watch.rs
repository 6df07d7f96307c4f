//! The stream of events, kept alive: when it breaks it goes on where it was.

use std::time::Duration;

use denv_schema::api::EventView;
use futures::StreamExt as _;
use reqwest::Method;
use tokio::sync::mpsc;

use super::sse::Decoder;
use super::{Client, ClientError};

/// What a watch tells. After `Ended` it tells nothing more.
#[derive(Debug)]
pub(crate) enum Happening {
    Event(EventView),
    /// The stream broke, or can't be opened; it is tried again.
    Lost(ClientError),
    /// The stream is there again.
    Back,
    Ended(ClientError),
}

/// Reads on in the background until it is dropped.
pub(crate) struct Watch {
    happenings: mpsc::Receiver<Happening>,
    task: tokio::task::JoinHandle<()>,
}

/// The server sends a comment at least this often; a longer silence is a dead connection.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

impl Watch {
    /// Events with a larger id than `after`, each once, in order.
    pub(crate) fn after(client: &Client, after: i64) -> Watch {
        let (sender, happenings) = mpsc::channel(64);
        let reader = Reader { client: client.clone(), after, sender, lost: false };
        Watch { happenings, task: tokio::spawn(reader.run()) }
    }

    /// The next happening. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Option<Happening> {
        self.happenings.recv().await
    }

    /// What has happened already.
    pub(crate) fn ready(&mut self) -> Option<Happening> {
        self.happenings.try_recv().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Reader {
    client: Client,
    after: i64,
    sender: mpsc::Sender<Happening>,
    lost: bool,
}

/// Nobody listens any more.
struct Gone;

impl Reader {
    async fn run(mut self) {
        let mut retry = FIRST_RETRY;
        loop {
            let before = self.after;
            let error = match self.follow().await {
                Ok(error) => error,
                Err(Gone) => return,
            };
            if !error.is_passing() {
                let _ = self.sender.send(Happening::Ended(error)).await;
                return;
            }
            if !self.lost {
                self.lost = true;
                if self.sender.send(Happening::Lost(error)).await.is_err() {
                    return;
                }
            }
            if self.after > before {
                retry = FIRST_RETRY;
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(LAST_RETRY);
        }
    }

    /// Reads one stream to its end, and says how it ended.
    async fn follow(&mut self) -> Result<ClientError, Gone> {
        let request = self.client.request(Method::GET, &["watch"]).query(&[("after", self.after)]);
        let response = match tokio::time::timeout(SILENCE, self.client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Ok(error),
            Err(_) => return Ok(self.broken("it does not answer")),
        };
        if std::mem::take(&mut self.lost) {
            self.tell(Happening::Back).await?;
        }
        let mut bytes = response.bytes_stream();
        let mut decoder = Decoder::default();
        loop {
            let chunk = match tokio::time::timeout(SILENCE, bytes.next()).await {
                Ok(Some(Ok(chunk))) => chunk,
                Ok(Some(Err(error))) => return Ok(self.client.unreachable(&error)),
                Ok(None) => return Ok(self.broken("it ended the stream of events")),
                Err(_) => return Ok(self.broken("the stream of events fell silent")),
            };
            for message in decoder.push(&chunk).into_iter().filter(|message| message.event == "event") {
                let event: EventView = match serde_json::from_str(&message.data) {
                    Ok(event) => event,
                    Err(error) => return Ok(ClientError::Malformed(error)),
                };
                if event.id > self.after {
                    self.after = event.id;
                    self.tell(Happening::Event(event)).await?;
                }
            }
        }
    }

    async fn tell(&self, happening: Happening) -> Result<(), Gone> {
        self.sender.send(happening).await.map_err(|_| Gone)
    }

    fn broken(&self, how: &str) -> ClientError {
        let (server, source) = (self.client.address(), super::RootCause(how.to_owned()));
        ClientError::Unreachable { server, source }
    }
}
