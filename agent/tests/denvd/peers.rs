//! A control plane of the tests' own, and peers with certificates.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use denv_link::enrolment::GRPC;
use denv_link::identity::tenant;
use denv_link::rpc::control_plane_server::{ControlPlane, ControlPlaneServer};
use denv_link::{Authority, Credentials, Identity, JoinToken, MAX_MESSAGE_BYTES, Peer, Role, listen};
use denv_schema::wire::{
    Command, CommandResult, GatewayInstruction, GatewayMessage, HostHello, HostInstruction, HostMessage,
    HostReport, JoinRequest, JoinResponse, Term,
};
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::bench::DEADLINE;

pub(crate) const SECRET: &str = "s3cret";
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn authority() -> Arc<Authority> {
    denv_link::install_tls_provider();
    Arc::new(Authority::generate(Timestamp::now()).unwrap())
}

pub(crate) fn credentials(authority: &Authority, role: Role, name: &str) -> Credentials {
    let identity = match role {
        Role::ControlPlane => Identity::control_plane(&tenant()),
        Role::Host | Role::Gateway => Identity::new(&tenant(), role, &name.parse().unwrap()),
    };
    authority.issue(&identity, Timestamp::now(), HOUR).unwrap()
}

/// A control plane that takes one token and hands each host's stream to the test.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) token: JoinToken,
    sessions: mpsc::UnboundedReceiver<Session>,
    server: tokio::task::JoinHandle<()>,
}

/// One host's stream.
pub(crate) struct Session {
    pub(crate) peer: Option<Identity>,
    pub(crate) hello: HostHello,
    messages: Streaming<HostMessage>,
    instructions: mpsc::Sender<Result<HostInstruction, Status>>,
}

impl Fake {
    pub(crate) async fn start(authority: &Arc<Authority>) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Fake::start_on(authority, listener).await
    }

    pub(crate) async fn start_on(authority: &Arc<Authority>, listener: TcpListener) -> Fake {
        Fake::signing_for(authority, listener, HOUR).await
    }

    /// Its first certificates live this long, renewed ones an hour.
    pub(crate) async fn signing_for(
        authority: &Arc<Authority>,
        listener: TcpListener,
        lifetime: Duration,
    ) -> Fake {
        let address = listener.local_addr().unwrap();
        let tls: ServerConfig =
            credentials(authority, Role::ControlPlane, "").server_config(&[GRPC], true).unwrap();
        let (tls, config) = watch::channel(Arc::new(tls));
        let (attached, sessions) = mpsc::unbounded_channel();
        let service = Service { authority: authority.clone(), attached, spent: Mutex::new(false), lifetime };
        let service = ControlPlaneServer::new(service).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let server = tokio::spawn(async move {
            let _tls = tls;
            let router = tonic::transport::Server::builder().add_service(service);
            router.serve_with_incoming(listen::accept(listener, config)).await.unwrap();
        });
        let token = JoinToken { secret: SECRET.to_owned(), authority: authority.fingerprint() };
        Fake { address, token, sessions, server }
    }

    /// The next stream that a host opens.
    pub(crate) async fn session(&mut self) -> Session {
        let session = tokio::time::timeout(DEADLINE, self.sessions.recv());
        session.await.expect("a host attaches in time").unwrap()
    }

    /// Ends it with all its connections.
    pub(crate) async fn die(self) {
        self.server.abort();
        let _ = self.server.await;
    }
}

impl Session {
    pub(crate) async fn welcome(&self, term: Term) {
        self.instruct(HostInstruction::Welcome { term, clock: Timestamp::now() }).await;
    }

    pub(crate) async fn command(&self, command: Command) {
        self.instruct(HostInstruction::Command(command)).await;
    }

    pub(crate) async fn instruct(&self, instruction: HostInstruction) {
        self.instructions.send(Ok(instruction)).await.unwrap();
    }

    async fn message(&mut self) -> HostMessage {
        let message = tokio::time::timeout(DEADLINE, self.messages.message());
        message.await.expect("the host says something in time").unwrap().expect("the stream is open")
    }

    pub(crate) async fn result(&mut self) -> CommandResult {
        loop {
            if let HostMessage::Result(result) = self.message().await {
                return result;
            }
        }
    }

    pub(crate) async fn report(&mut self, wanted: impl Fn(&HostReport) -> bool) -> HostReport {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            assert!(std::time::Instant::now() < deadline, "no report was what was wanted");
            if let HostMessage::Report(report) = self.message().await
                && wanted(&report)
            {
                return report;
            }
        }
    }
}

struct Service {
    authority: Arc<Authority>,
    attached: mpsc::UnboundedSender<Session>,
    spent: Mutex<bool>,
    lifetime: Duration,
}

impl Service {
    fn sign(&self, request: &JoinRequest, lifetime: Duration) -> JoinResponse {
        let identity = Identity::new(&tenant(), Role::Host, &"gpu-1".parse().unwrap());
        let now = Timestamp::now();
        JoinResponse {
            certificate: self.authority.sign(&request.certificate_request, &identity, now, lifetime).unwrap(),
            authority: self.authority.certificate_pem().to_owned(),
            clock: now,
        }
    }
}

#[tonic::async_trait]
impl ControlPlane for Service {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let request = request.into_inner();
        let fresh = !std::mem::replace(&mut *self.spent.lock().unwrap(), true);
        if request.secret != SECRET || !fresh {
            return Err(Status::unauthenticated("the join token is unknown, used or too old"));
        }
        Ok(Response::new(self.sign(&request, self.lifetime)))
    }

    async fn renew(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        let peer = request.extensions().get::<Peer>().and_then(|peer| peer.identity.clone());
        match peer.map(|peer| peer.role) {
            Some(Role::Host) => Ok(Response::new(self.sign(request.get_ref(), HOUR))),
            _ => Err(Status::unauthenticated("a certificate is renewed with a certificate")),
        }
    }

    type AttachHostStream = ReceiverStream<Result<HostInstruction, Status>>;

    async fn attach_host(
        &self,
        request: Request<Streaming<HostMessage>>,
    ) -> Result<Response<Self::AttachHostStream>, Status> {
        let peer = request.extensions().get::<Peer>().and_then(|peer| peer.identity.clone());
        let mut messages = request.into_inner();
        let Some(HostMessage::Hello(hello)) = messages.message().await? else {
            return Err(Status::invalid_argument("hello comes first"));
        };
        let (instructions, receiver) = mpsc::channel(16);
        let _ = self.attached.send(Session { peer, hello, messages, instructions });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    type AttachGatewayStream = ReceiverStream<Result<GatewayInstruction, Status>>;

    async fn attach_gateway(
        &self,
        _: Request<Streaming<GatewayMessage>>,
    ) -> Result<Response<Self::AttachGatewayStream>, Status> {
        Err(Status::unimplemented("not asked for in these tests"))
    }
}
