//! A host's stream: its reports come in, its queue goes out.

use std::collections::BTreeSet;
use std::sync::Arc;

use denv_link::Role;
use denv_schema::Name;
use denv_schema::api::Level;
use denv_schema::wire::{Artifact, CommandId, CommandOutcome, CommandResult, HostInstruction, HostMessage};
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};
use tonic::{Status, Streaming};

use super::engines::Stream;
use super::{Instructions, Link, first, skew, unavailable};

pub(super) async fn attach(
    link: Arc<Link>,
    name: Name,
    mut messages: Streaming<HostMessage>,
) -> Result<Instructions<HostInstruction>, Status> {
    let HostMessage::Hello(mut hello) = first(&mut messages).await? else {
        return Err(Status::invalid_argument("a host's stream begins with a hello"));
    };
    let now = Timestamp::now();
    hello.report.problems.extend(skew(hello.clock, now));
    let stream = link.observation.host_attached(&name, hello, now);
    let queue = link.queues.attach(&name);
    let asking = link.engines.attach(&name);
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut session = Session {
            link: &link,
            name: &name,
            stream,
            out: sender,
            sent: BTreeSet::new(),
            taken: Vec::new(),
            prefetched: Vec::new(),
            asking,
        };
        // What a host is to do does not wait for the note.
        let noted = link.note(Role::Host, &name, Level::Normal, "connected");
        let (ended, ()) = tokio::join!(session.run(&queue, &mut messages), noted);
        let taken = std::mem::take(&mut session.taken);
        drop(session);
        if link.observation.host_detached(&name, stream, Timestamp::now()) {
            let why = ended
                .err()
                .map_or_else(|| "it closed the stream".to_owned(), |status| status.message().to_owned());
            link.measurement.host_gone(&name);
            link.note(Role::Host, &name, Level::Warning, &format!("disconnected: {why}")).await;
        }
        // The host is not connected, or has begun another stream with all it sees.
        for result in taken {
            // The control plane is ending; what is in the store says it all.
            let _ = link.answers.send(result).await;
        }
    });
    Ok(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver)))
}

struct Session<'a> {
    link: &'a Link,
    name: &'a Name,
    stream: u64,
    out: mpsc::Sender<Result<HostInstruction, Status>>,
    /// Delivered on this stream and not answered yet.
    sent: BTreeSet<CommandId>,
    /// Taken up by the host, and not passed on yet: what came of it is in the report that follows. Whoever knew of
    /// the answer and had only the report before it would find the host to have lost what it has just begun.
    taken: Vec<CommandResult>,
    /// What the host was last asked to prepare on this stream. Before anything is planned it goes on with what it has.
    prefetched: Vec<Artifact>,
    asking: Stream,
}

impl Session<'_> {
    async fn run(&mut self, queue: &Notify, messages: &mut Streaming<HostMessage>) -> Result<(), Status> {
        self.send(HostInstruction::Welcome { term: self.link.term, clock: Timestamp::now() }).await?;
        self.deliver().await?;
        loop {
            tokio::select! {
                () = queue.notified() => self.deliver().await?,
                request = self.asking.next() => self.send(HostInstruction::Test(request)).await?,
                message = messages.message() => match message? {
                    Some(message) => self.hear(message).await?,
                    None => return Ok(()),
                },
                () = self.out.closed() => return Ok(()),
            }
        }
    }

    /// Sends what the queue holds and this stream has not carried yet.
    async fn deliver(&mut self) -> Result<(), Status> {
        let queued = match self.link.queues.is_filled(self.name) {
            true => self.link.store.queued(self.name).await.map_err(|error| unavailable(&error))?,
            false => Vec::new(),
        };
        for mut command in queued {
            if self.sent.insert(command.id.clone()) {
                command.term = self.link.term;
                self.send(HostInstruction::Command(command)).await?;
            }
        }
        let artifacts = self.link.queues.artifacts(self.name);
        if artifacts != self.prefetched {
            self.prefetched.clone_from(&artifacts);
            self.send(HostInstruction::Prefetch(artifacts)).await?;
        }
        Ok(())
    }

    async fn hear(&mut self, message: HostMessage) -> Result<(), Status> {
        match message {
            HostMessage::Hello(_) => Err(Status::invalid_argument("a stream has one hello")),
            HostMessage::Report(report) => {
                self.link.observation.host_reported(self.name, self.stream, report, Timestamp::now());
                for result in std::mem::take(&mut self.taken) {
                    self.pass_on(result).await?;
                }
                Ok(())
            }
            HostMessage::Measured(measures) => {
                self.link.measurement.host_measured(self.name, measures);
                Ok(())
            }
            HostMessage::Tested(result) => {
                self.asking.answered(result);
                Ok(())
            }
            HostMessage::Result(result) => {
                self.link.store.answer(self.name, &result).await.map_err(|error| unavailable(&error))?;
                self.sent.remove(&result.id);
                self.send(HostInstruction::ResultTaken { id: result.id.clone() }).await?;
                match result.outcome {
                    CommandOutcome::Accepted => {
                        self.taken.push(result);
                        Ok(())
                    }
                    CommandOutcome::Refused { .. } => self.pass_on(result).await,
                }
            }
        }
    }

    async fn pass_on(&self, result: CommandResult) -> Result<(), Status> {
        let sent = self.link.answers.send(result).await;
        sent.map_err(|_| Status::unavailable("the control plane is stopping"))
    }

    async fn send(&self, instruction: HostInstruction) -> Result<(), Status> {
        self.out.send(Ok(instruction)).await.map_err(|_| Status::cancelled("the host closed the stream"))
    }
}
