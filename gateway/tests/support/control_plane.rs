//! A control plane as gateways see it: it takes anyone with its token, says what it is told to, and keeps what it
//! hears.

// It stands for what is far away; when it breaks, so does the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use denv_link::enrolment::GRPC;
use denv_link::rpc::control_plane_server::{ControlPlane, ControlPlaneServer};
use denv_link::{Authority, Identity, JoinToken, Role, identity};
use denv_schema::UnitId;
use denv_schema::measures::UnitMeasures;
use denv_schema::wire::{
    GatewayConfig, GatewayInstruction, GatewayMessage, GatewayReport, HostInstruction, HostMessage,
    JoinRequest, JoinResponse, UnitRoute, UsageRecord,
};
use futures::Stream;
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct FakeControlPlane {
    /// Of its own, so that it can be gone at once.
    runtime: Option<Runtime>,
    pub(crate) address: SocketAddr,
    pub(crate) heard: Arc<Heard>,
}

/// What outlives its restarts.
pub(crate) struct Heard {
    pub(crate) authority: Authority,
    pub(crate) config: watch::Sender<Option<GatewayConfig>>,
    pub(crate) units: watch::Sender<Vec<UnitRoute>>,
    pub(crate) report: watch::Sender<Option<GatewayReport>>,
    /// As last said of each unit.
    pub(crate) measures: watch::Sender<BTreeMap<UnitId, UnitMeasures>>,
    /// By ledger and number.
    pub(crate) records: Mutex<BTreeMap<(String, u64), UsageRecord>>,
    /// Whether records are said to be taken.
    pub(crate) takes: AtomicBool,
    /// How long the certificates live that it signs, in seconds.
    pub(crate) lifetime: AtomicU64,
    pub(crate) renews: AtomicBool,
    /// How many records came that had come before.
    pub(crate) again: Mutex<u64>,
}

pub(crate) const SECRET: &str = "once";
const LIFETIME: Duration = Duration::from_secs(3600);

impl FakeControlPlane {
    pub(crate) fn start() -> Self {
        let heard = Arc::new(Heard {
            authority: Authority::generate(Timestamp::now()).unwrap(),
            config: watch::Sender::new(None),
            units: watch::Sender::new(Vec::new()),
            report: watch::Sender::new(None),
            measures: watch::Sender::default(),
            records: Mutex::default(),
            takes: AtomicBool::new(true),
            lifetime: LIFETIME.as_secs().into(),
            renews: true.into(),
            again: Mutex::default(),
        });
        let mut fake = FakeControlPlane { runtime: None, address: ([127, 0, 0, 1], 0).into(), heard };
        fake.restart();
        fake
    }

    pub(crate) fn token(&self) -> JoinToken {
        JoinToken { secret: SECRET.to_owned(), authority: self.heard.authority.fingerprint() }
    }

    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Comes back at the same address.
    pub(crate) fn restart(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, heard) = (self.address, self.heard.clone());
        let listener = std::thread::scope(|scope| {
            // A runtime cannot be waited for inside another one.
            let bound = scope.spawn(|| runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap());
            bound.join().unwrap()
        });
        self.address = listener.local_addr().unwrap();
        let identity = Identity::control_plane(&identity::tenant());
        let credentials = heard.authority.issue(&identity, Timestamp::now(), LIFETIME).unwrap();
        let tls = Arc::new(credentials.server_config(&[GRPC], true).unwrap());
        runtime.spawn(async move {
            let (_keep, tls) = watch::channel(tls);
            let incoming = denv_link::listen::accept(listener, tls);
            let service = ControlPlaneServer::new(Service(heard))
                .max_decoding_message_size(denv_link::MAX_MESSAGE_BYTES);
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        });
        self.runtime = Some(runtime);
    }
}

impl Drop for FakeControlPlane {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Service(Arc<Heard>);

impl Service {
    fn sign(&self, request: &JoinRequest) -> JoinResponse {
        let identity = Identity::new(&identity::tenant(), Role::Gateway, &"edge".parse().unwrap());
        let (authority, now) = (&self.0.authority, Timestamp::now());
        let lifetime = Duration::from_secs(self.0.lifetime.load(Ordering::SeqCst));
        let certificate = authority.sign(&request.certificate_request, &identity, now, lifetime).unwrap();
        JoinResponse { certificate, authority: authority.certificate_pem().to_owned(), clock: now }
    }
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ControlPlane for Service {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let request = request.into_inner();
        if request.secret != SECRET {
            return Err(Status::unauthenticated("the token is unknown or used"));
        }
        Ok(Response::new(self.sign(&request)))
    }

    async fn renew(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        if !self.0.renews.load(Ordering::SeqCst) {
            return Err(Status::unavailable("not now"));
        }
        Ok(Response::new(self.sign(&request.into_inner())))
    }

    type AttachHostStream = Out<HostInstruction>;

    async fn attach_host(
        &self,
        _: Request<Streaming<HostMessage>>,
    ) -> Result<Response<Self::AttachHostStream>, Status> {
        Err(Status::unimplemented("there are no hosts here"))
    }

    type AttachGatewayStream = Out<GatewayInstruction>;

    async fn attach_gateway(
        &self,
        request: Request<Streaming<GatewayMessage>>,
    ) -> Result<Response<Self::AttachGatewayStream>, Status> {
        let mut inbox = request.into_inner();
        let (outbox, instructions) = mpsc::channel(64);
        let heard = self.0.clone();
        tokio::spawn(async move {
            let (mut config, mut units) = (heard.config.subscribe(), heard.units.subscribe());
            config.mark_changed();
            units.mark_changed();
            loop {
                let instruction = tokio::select! {
                    message = inbox.message() => match message {
                        Ok(Some(message)) => heard.hear(message),
                        Ok(None) | Err(_) => return,
                    },
                    _ = config.changed() => config.borrow_and_update().clone().map(GatewayInstruction::Config),
                    _ = units.changed() => Some(GatewayInstruction::Units(units.borrow_and_update().clone())),
                };
                if let Some(instruction) = instruction
                    && outbox.send(Ok(instruction)).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(instructions))))
    }
}

impl Heard {
    fn hear(&self, message: GatewayMessage) -> Option<GatewayInstruction> {
        match message {
            GatewayMessage::Hello(hello) => {
                self.report.send_replace(Some(hello.report));
                None
            }
            GatewayMessage::Report(report) => {
                self.report.send_replace(Some(report));
                None
            }
            GatewayMessage::Measured(measured) => {
                assert!(!measured.units.is_empty());
                self.measures.send_modify(|known| known.extend(measured.units));
                None
            }
            GatewayMessage::Usage(batch) => {
                assert!(!batch.records.is_empty() && batch.records.len() <= 1000);
                let next = batch.first + batch.records.len() as u64;
                let mut records = self.records.lock().unwrap();
                for (seq, record) in (batch.first..).zip(batch.records) {
                    if let Some(known) = records.insert((batch.ledger.clone(), seq), record.clone()) {
                        assert_eq!(known, record, "a number means one record for ever");
                        *self.again.lock().unwrap() += 1;
                    }
                }
                let takes = self.takes.load(Ordering::SeqCst);
                takes.then_some(GatewayInstruction::UsageTaken { ledger: batch.ledger, next })
            }
        }
    }
}
