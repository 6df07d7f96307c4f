//! A gateway's stream: its reports and usage come in, configuration and units go out.

use std::sync::Arc;

use denv_link::Role;
use denv_schema::Name;
use denv_schema::api::Level;
use denv_schema::wire::{GatewayInstruction, GatewayMessage};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

use super::{Instructions, Link, Serving, first, skew, unavailable};

pub(super) async fn attach(
    link: Arc<Link>,
    name: Name,
    mut messages: Streaming<GatewayMessage>,
) -> Result<Instructions<GatewayInstruction>, Status> {
    let GatewayMessage::Hello(hello) = first(&mut messages).await? else {
        return Err(Status::invalid_argument("a gateway's stream begins with a hello"));
    };
    let now = Timestamp::now();
    match skew(hello.clock, now) {
        Some(skew) => link.note(Role::Gateway, &name, Level::Warning, &format!("connected; {skew}")).await,
        None => link.note(Role::Gateway, &name, Level::Normal, "connected").await,
    }
    let stream = link.observation.gateway_attached(&name, hello, now);
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut session = Session { link: &link, name: &name, stream, out: sender, told: None };
        let ended = session.run(link.serving.clone(), &mut messages).await;
        if link.observation.gateway_detached(&name, stream, Timestamp::now()) {
            let why = ended
                .err()
                .map_or_else(|| "it closed the stream".to_owned(), |status| status.message().to_owned());
            link.note(Role::Gateway, &name, Level::Warning, &format!("disconnected: {why}")).await;
        }
    });
    Ok(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver)))
}

struct Session<'a> {
    link: &'a Link,
    name: &'a Name,
    stream: u64,
    out: mpsc::Sender<Result<GatewayInstruction, Status>>,
    /// What the gateway was last told on this stream.
    told: Option<Arc<Serving>>,
}

impl Session<'_> {
    async fn run(
        &mut self,
        mut serving: watch::Receiver<Arc<Serving>>,
        messages: &mut Streaming<GatewayMessage>,
    ) -> Result<(), Status> {
        loop {
            let now = serving.borrow_and_update().clone();
            self.tell(now).await?;
            tokio::select! {
                changed = serving.changed() => {
                    changed.map_err(|_| Status::unavailable("the control plane is stopping"))?;
                }
                message = messages.message() => match message? {
                    Some(message) => self.hear(message).await?,
                    None => return Ok(()),
                },
                () = self.out.closed() => return Ok(()),
            }
        }
    }

    /// Sends what has changed since the last time. Before the first catalog there is nothing true to say.
    async fn tell(&mut self, serving: Arc<Serving>) -> Result<(), Status> {
        if serving.catalog.is_none() || self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &serving)) {
            return Ok(());
        }
        let told = self.told.take();
        if told.as_ref().is_none_or(|told| !Arc::ptr_eq(&told.config, &serving.config)) {
            self.send(GatewayInstruction::Config((*serving.config).clone())).await?;
        }
        if told.as_ref().is_none_or(|told| told.routes != serving.routes) {
            self.send(GatewayInstruction::Units(serving.routes.clone())).await?;
        }
        self.told = Some(serving);
        Ok(())
    }

    async fn hear(&mut self, message: GatewayMessage) -> Result<(), Status> {
        match message {
            GatewayMessage::Hello(_) => Err(Status::invalid_argument("a stream has one hello")),
            GatewayMessage::Report(report) => {
                self.link.observation.gateway_reported(self.name, self.stream, report, Timestamp::now());
                Ok(())
            }
            GatewayMessage::Measured(measures) => {
                self.link.measurement.gateway_measured(self.name, measures);
                Ok(())
            }
            GatewayMessage::Usage(batch) => {
                self.link.store.collect_usage(&batch).await.map_err(|error| unavailable(&error))?;
                let next = batch.first + batch.records.len() as u64;
                self.send(GatewayInstruction::UsageTaken { ledger: batch.ledger, next }).await
            }
        }
    }

    async fn send(&self, instruction: GatewayInstruction) -> Result<(), Status> {
        self.out.send(Ok(instruction)).await.map_err(|_| Status::cancelled("the gateway closed the stream"))
    }
}
