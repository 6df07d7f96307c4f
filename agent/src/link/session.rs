use std::sync::Arc;
use std::time::Duration;

use denv_link::credentials::CredentialsError;
use denv_link::dial::{self, DialError};
use denv_link::enrolment::{GRPC, SKEW_TOLERANCE};
use denv_link::rpc::control_plane_client::ControlPlaneClient;
use denv_link::{Identity, MAX_MESSAGE_BYTES};
use denv_schema::quantity::Period;
use denv_schema::wire::{
    CommandResult, HOST_REPORT_INTERVAL, HostHello, HostInstruction, HostMessage, HostReport, SILENCE,
    TestRequest,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::{Code, Status, Streaming};

use super::Link;
use crate::engines;
use crate::reclaim::Reclaim;
use crate::runner::View;

/// Why a stream ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(
        "this host's certificate ended at {0}; restart denvd with a new join token (`denv host token NAME`). Engines run on"
    )]
    Expired(Timestamp),
    #[error("the control plane refused this host: {0}")]
    Refused(String),
    #[error("the stream ended: {}", .0.message())]
    Ended(Status),
    #[error("the control plane did not answer")]
    Silent,
    #[error("the control plane closed the stream")]
    Closed,
}

/// Changes that come together go out together.
const COALESCE: Duration = Duration::from_millis(50);
/// Messages on their way out; more would only be older reports.
const OUTBOUND: usize = 4;
/// Tests of different engines go on beside each other.
const TESTS_AT_ONCE: usize = 4;

impl Link {
    /// One stream, from dialling to its end.
    pub(super) async fn attend(&self) -> SessionError {
        match self.session().await {
            Ok(never) => match never {},
            // Whatever TLS says about it, this is what a person can act on.
            Err(error) => self.expiry().map_or(error, SessionError::Expired),
        }
    }

    async fn session(&self) -> Result<std::convert::Infallible, SessionError> {
        let credentials = self.credentials.borrow().clone();
        let control_plane = Identity::control_plane(&credentials.identity()?.tenant);
        let config = Arc::new(credentials.client_config(&[GRPC])?);
        let channel = dial::channel(&self.server, &control_plane, config).await?;
        let mut client = ControlPlaneClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);

        let (outbound, messages) = mpsc::channel(OUTBOUND);
        let mut view = self.runner.view();
        let mut reclaim = self.reclaim.clone();
        let report = self.report(&view.borrow_and_update(), &reclaim.borrow_and_update(), None);
        let hello = HostHello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ingress: self.ingress.clone(),
            clock: Timestamp::now(),
            report,
        };
        // The receiver is held right here.
        let _ = outbound.send(HostMessage::Hello(hello)).await;
        let attached = client.attach_host(ReceiverStream::new(messages));
        let attached = tokio::time::timeout(SILENCE, attached).await.map_err(|_| SessionError::Silent)?;
        let inbound = attached.map_err(ended)?.into_inner();

        // Reading and writing don't wait for each other: a control plane that is slow to read still commands.
        let (clock, clock_seen) = watch::channel(None);
        let (tests, asked) = mpsc::unbounded_channel();
        tokio::select! {
            error = self.listen(inbound, clock, tests) => Err(error),
            () = self.tell(outbound.clone(), view, reclaim, clock_seen) => Err(SessionError::Closed),
            () = self.test(asked, outbound) => Err(SessionError::Closed),
        }
    }

    /// Puts tests to the engines, a few at once. What is under way is given up with the stream.
    async fn test(&self, asked: mpsc::UnboundedReceiver<TestRequest>, outbound: mpsc::Sender<HostMessage>) {
        let results = UnboundedReceiverStream::new(asked)
            .map(|request| engines::answer(self.runner.view(), request))
            .buffer_unordered(TESTS_AT_ONCE);
        let mut results = std::pin::pin!(results);
        while let Some(result) = results.next().await {
            if outbound.send(HostMessage::Tested(result)).await.is_err() {
                return;
            }
        }
    }

    async fn listen(
        &self,
        mut inbound: Streaming<HostInstruction>,
        clock: watch::Sender<Option<String>>,
        tests: mpsc::UnboundedSender<TestRequest>,
    ) -> SessionError {
        loop {
            match inbound.message().await {
                Ok(Some(HostInstruction::Welcome { term, clock: theirs })) => {
                    tracing::info!(server = self.server, term, "attached to the control plane");
                    let skew = skew(Timestamp::now(), theirs);
                    if let Some(skew) = &skew {
                        tracing::warn!("{skew}");
                    }
                    clock.send_replace(skew);
                    self.runner.see_term(term).await;
                }
                Ok(Some(HostInstruction::Command(command))) => self.runner.command(command).await,
                Ok(Some(HostInstruction::ResultTaken { id })) => self.runner.answer_taken(id).await,
                Ok(Some(HostInstruction::Prefetch(artifacts))) => self.prefetch.want(artifacts),
                // The receiver lives as long as this.
                Ok(Some(HostInstruction::Test(request))) => drop(tests.send(request)),
                Ok(None) => return SessionError::Closed,
                Err(status) => return ended(status),
            }
        }
    }

    /// Sends answers as they come, and reports when something changed or it is time. Ends when nobody takes them.
    async fn tell(
        &self,
        outbound: mpsc::Sender<HostMessage>,
        mut view: watch::Receiver<View>,
        mut reclaim: watch::Receiver<Reclaim>,
        mut clock: watch::Receiver<Option<String>>,
    ) {
        let (mut answers, mut artifacts) = (self.runner.answers(), self.prefetch.reports());
        let mut measures = self.measures.clone();
        // A new stream begins with what is known.
        measures.mark_changed();
        let mut answered = 0;
        let mut report_at = Instant::now() + HOST_REPORT_INTERVAL;
        loop {
            let next = answers.borrow_and_update().after(answered).map(|(number, id, outcome)| {
                (number, CommandResult { id: id.clone(), outcome: outcome.clone() })
            });
            if let Some((number, result)) = next {
                answered = number;
                if outbound.send(HostMessage::Result(result)).await.is_err() {
                    return;
                }
                // Whoever asked waits for what is seen of it, be it nothing new.
                report_at = report_at.min(Instant::now() + COALESCE);
                continue;
            }
            tokio::select! {
                Ok(()) = answers.changed() => {}
                Ok(()) = measures.changed() => {
                    let measured = measures.borrow_and_update().clone();
                    if outbound.send(HostMessage::Measured(measured)).await.is_err() {
                        return;
                    }
                }
                Ok(()) = view.changed() => report_at = report_at.min(Instant::now() + COALESCE),
                Ok(()) = reclaim.changed() => report_at = report_at.min(Instant::now() + COALESCE),
                Ok(()) = artifacts.changed() => report_at = report_at.min(Instant::now() + COALESCE),
                Ok(()) = clock.changed() => report_at = report_at.min(Instant::now() + COALESCE),
                () = tokio::time::sleep_until(report_at) => {
                    let clock = clock.borrow_and_update().clone();
                    let report = self.report(&view.borrow_and_update(), &reclaim.borrow_and_update(), clock);
                    if outbound.send(HostMessage::Report(report)).await.is_err() {
                        return;
                    }
                    report_at = Instant::now() + HOST_REPORT_INTERVAL;
                }
                () = outbound.closed() => return,
            }
        }
    }

    fn report(&self, view: &View, reclaim: &Reclaim, clock: Option<String>) -> HostReport {
        let members = view.members.iter().map(|(id, member)| (id.clone(), member.report.clone())).collect();
        let problems = self
            .problems
            .iter()
            .chain(&view.problems)
            .chain(&reclaim.problem)
            .cloned()
            .chain(clock)
            .collect();
        let artifacts = self.prefetch.reports().borrow().clone();
        HostReport { inventory: self.inventory.clone(), members, problems, reclaim: reclaim.at, artifacts }
    }
}

fn ended(status: Status) -> SessionError {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
            SessionError::Refused(status.message().to_owned())
        }
        _ => SessionError::Ended(status),
    }
}

/// What is wrong with this machine's clock, for people.
fn skew(ours: Timestamp, theirs: Timestamp) -> Option<String> {
    let skew = ours.duration_since(theirs);
    let amount = skew.unsigned_abs();
    (amount > SKEW_TOLERANCE).then(|| {
        let direction = if skew.is_negative() { "behind" } else { "ahead of" };
        let amount = Period::from_secs(amount.as_secs());
        format!("this machine's clock is {amount} {direction} the control plane's; set it (NTP), or certificates will be refused")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_is_told_in_words_beyond_the_tolerance() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(skew(at(1000), at(1059)), None);
        assert!(skew(at(1000), at(1200)).unwrap().contains("3m20s behind"));
        assert!(skew(at(1200), at(1000)).unwrap().contains("3m20s ahead of"));
    }
}
