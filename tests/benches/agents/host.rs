//! A simulated host: denvd's journal and its timing on the link, and engines that are values. It is a task, not a process, so
//! that one machine has room for thousands.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use denv_agent::journal::{Journal, Verdict, judge};
use denv_agent::link::Backoff;
use denv_link::enrolment::GRPC;
use denv_link::rpc::control_plane_client::ControlPlaneClient;
use denv_link::{Credentials, Identity, dial};
use denv_schema::MemberId;
use denv_schema::measures::HostMeasures;
use denv_schema::wire::{
    Action, Command, CommandOutcome, CommandResult, Gpu, HOST_REPORT_INTERVAL, HostHello, HostInstruction,
    HostMessage, HostReport, Inventory, MemberReport, MemberState,
};
use futures::future::OptionFuture;
use jiff::Timestamp;
use rustls::ClientConfig;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;

/// Changes that come together go out together, as denvd has it.
const COALESCE: Duration = Duration::from_millis(50);
/// What an engine takes to be healthy.
const START: Duration = Duration::from_secs(1);
const GPUS: u32 = 8;

/// What all hosts tell those who measure.
pub(crate) struct Told {
    /// So many hosts dial at once. This machine does both halves of each handshake, and real hosts do theirs by themselves.
    pub(crate) dials: Semaphore,
    /// Hosts that the control plane has welcomed.
    pub(crate) welcomed: AtomicUsize,
    /// Each command that no host had ever been given before, once it is taken up.
    pub(crate) commands: mpsc::UnboundedSender<Taken>,
}

/// A command that a host has just been given.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) at: Instant,
    pub(crate) is_start: bool,
}

pub(crate) struct Host {
    /// What it dials with. Certificates outlast the measurement.
    tls: Arc<ClientConfig>,
    control_plane: Identity,
    /// `host:port` of the control plane.
    server: String,
    told: Arc<Told>,
    journal: Journal,
    members: BTreeMap<MemberId, Member>,
}

struct Member {
    report: MemberReport,
    healthy_at: Option<Instant>,
}

impl Host {
    pub(crate) fn new(credentials: &Credentials, server: String, told: Arc<Told>) -> anyhow::Result<Self> {
        let tls = Arc::new(credentials.client_config(&[GRPC])?);
        let control_plane = Identity::control_plane(&credentials.identity()?.tenant);
        Ok(Host { tls, control_plane, server, told, journal: Journal::default(), members: BTreeMap::new() })
    }

    /// Dials for ever, as often as denvd would.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::new();
        loop {
            let began = Instant::now();
            let mut welcomed = false;
            let None = self.session(&mut welcomed).await;
            if welcomed {
                self.told.welcomed.fetch_sub(1, Ordering::Relaxed);
            }
            if began.elapsed() > Backoff::CAP {
                backoff = Backoff::new();
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Ends when the stream does, and says nothing of why: thousands end at the same time.
    async fn session(&mut self, welcomed: &mut bool) -> Option<Infallible> {
        let dialling = self.told.dials.acquire().await.ok()?;
        let channel = dial::channel(&self.server, &self.control_plane, Arc::clone(&self.tls)).await.ok()?;
        let mut client = ControlPlaneClient::new(channel);
        let (outbound, messages) = mpsc::channel(4);
        let hello = HostHello {
            version: "0.1.0".to_owned(),
            ingress: "127.0.0.1:1".to_owned(),
            clock: Timestamp::now(),
            report: self.report(),
        };
        outbound.send(HostMessage::Hello(hello)).await.ok()?;
        let mut inbound = client.attach_host(ReceiverStream::new(messages)).await.ok()?.into_inner();
        drop(dialling);
        outbound.send(HostMessage::Measured(HostMeasures::default())).await.ok()?;
        let mut report_at = Instant::now() + HOST_REPORT_INTERVAL;
        loop {
            let healthy_at = self.members.values().filter_map(|member| member.healthy_at).min();
            let healthy: OptionFuture<_> = healthy_at.map(tokio::time::sleep_until).into();
            tokio::select! {
                instruction = inbound.message() => match instruction.ok()?? {
                    HostInstruction::Welcome { term, .. } => {
                        self.journal.see_term(term);
                        *welcomed = true;
                        self.told.welcomed.fetch_add(1, Ordering::Relaxed);
                    }
                    HostInstruction::Command(command) => {
                        outbound.send(HostMessage::Result(self.take_up(command))).await.ok()?;
                        report_at = report_at.min(Instant::now() + COALESCE);
                    }
                    // Its engines are started from nothing that would have to be prepared.
                    HostInstruction::ResultTaken { .. }
                    | HostInstruction::Prefetch(_)
                    | HostInstruction::Test(_) => {}
                },
                Some(()) = healthy => {
                    self.become_healthy();
                    report_at = report_at.min(Instant::now() + COALESCE);
                }
                () = tokio::time::sleep_until(report_at) => {
                    outbound.send(HostMessage::Report(self.report())).await.ok()?;
                    report_at = Instant::now() + HOST_REPORT_INTERVAL;
                }
            }
        }
    }

    fn take_up(&mut self, command: Command) -> CommandResult {
        let outcome = match judge(&self.journal, &command) {
            Verdict::New => {
                self.journal = self.journal.take_up(&command);
                self.obey(&command);
                CommandOutcome::Accepted
            }
            Verdict::Again => CommandOutcome::Accepted,
            Verdict::Refused(reason) => CommandOutcome::Refused { reason },
        };
        CommandResult { id: command.id, outcome }
    }

    fn obey(&mut self, command: &Command) {
        let is_start = match &command.action {
            Action::Start(spec) => {
                let report = MemberReport {
                    generation: command.generation,
                    spec: spec.digest(),
                    state: MemberState::Starting,
                    since: Timestamp::now(),
                    claim: Some(spec.claim.clone()),
                    restarts: 0,
                    ends_in_a_row: 0,
                    reason: None,
                };
                let member = Member { report, healthy_at: Some(Instant::now() + START) };
                self.members.insert(command.member.clone(), member);
                true
            }
            Action::Stop {} => {
                self.members.remove(&command.member);
                false
            }
        };
        // Whoever measures may have seen enough.
        let _ = self.told.commands.send(Taken { at: Instant::now(), is_start });
    }

    fn become_healthy(&mut self) {
        for member in self.members.values_mut() {
            if member.healthy_at.is_some_and(|at| at <= Instant::now()) {
                member.healthy_at = None;
                member.report.state = MemberState::Healthy;
                member.report.since = Timestamp::now();
            }
        }
    }

    fn report(&self) -> HostReport {
        let gpu = |index| Gpu { index, model: "NVIDIA H200".to_owned(), memory_bytes: 141 << 30 };
        let inventory = Inventory {
            gpus: (0..GPUS).map(gpu).collect(),
            cpus: 192,
            memory_bytes: 2 << 40,
            ..Inventory::default()
        };
        let members = self.members.iter().map(|(id, member)| (id.clone(), member.report.clone())).collect();
        HostReport { inventory, members, ..HostReport::default() }
    }
}
