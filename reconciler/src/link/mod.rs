//! The link to hosts and gateways: who may join, which queue a host gets, what gateways are told.
//!
//! It carries; it decides nothing but whom to believe.

mod engines;
mod gateways;
mod hosts;
mod join;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use denv_link::{Authority, Peer, Role};
use denv_schema::api::Level;
use denv_schema::wire::{
    Artifact, CommandResult, GatewayConfig, GatewayInstruction, GatewayMessage, HostInstruction, HostMessage,
    JoinRequest, JoinResponse, Term, UnitRoute,
};
use denv_schema::{Catalog, Name};
use futures::Stream;
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, watch};
use tonic::{Request, Response, Status, Streaming};

use crate::measurement::Measurement;
use crate::observation::Observation;
use crate::store::{Event, Store};

pub use engines::{Engines, Unasked};
pub use server::serve;

/// What gateways serve by.
#[derive(Debug, Default)]
pub struct Serving {
    /// What the configuration is of; none before anything is known.
    pub catalog: Option<Arc<Catalog>>,
    /// The same one for as long as it says the same, whatever the catalog.
    pub config: Arc<GatewayConfig>,
    pub routes: Vec<UnitRoute>,
}

impl Serving {
    pub(crate) fn is_of(&self, catalog: &Arc<Catalog>) -> bool {
        self.catalog.as_ref().is_some_and(|of| Arc::ptr_eq(of, catalog))
    }

    /// What a catalog says to gateways. It is worked out once for each.
    pub(crate) fn config_of(&self, catalog: &Arc<Catalog>) -> Arc<GatewayConfig> {
        let fresh = (!self.is_of(catalog)).then(|| catalog.gateway_config());
        fresh.filter(|config| *config != *self.config).map_or_else(|| Arc::clone(&self.config), Arc::new)
    }
}

pub struct Link {
    pub store: Store,
    pub observation: Arc<Observation>,
    pub measurement: Arc<Measurement>,
    pub authority: Arc<Authority>,
    pub tenant: Name,
    pub term: Term,
    /// How long the certificates of hosts and gateways last.
    pub lifetime: Duration,
    pub serving: watch::Receiver<Arc<Serving>>,
    /// Answers of hosts, once they are in the store.
    pub answers: mpsc::Sender<CommandResult>,
    pub queues: Arc<Queues>,
    pub engines: Arc<Engines>,
}

/// Wakes the stream of a host whose queue has grown, or that is to prepare something else.
#[derive(Default)]
pub struct Queues(Mutex<Waking>);

#[derive(Default)]
struct Waking {
    streams: BTreeMap<Name, Arc<Notify>>,
    /// Hosts that were told of something in this process's time. The store has nothing for any other.
    filled: BTreeSet<Name>,
    prefetch: BTreeMap<Name, Vec<Artifact>>,
}

impl Queues {
    /// To be told of each host whose queue has something, and of those with a queue when the process began.
    pub fn wake(&self, host: &Name) {
        let mut waking = self.lock();
        waking.filled.insert(host.clone());
        if let Some(queue) = waking.streams.get(host) {
            queue.notify_one();
        }
    }

    /// Whether the store is to be asked for the host's queue.
    fn is_filled(&self, host: &Name) -> bool {
        self.lock().filled.contains(host)
    }

    /// What each host is to prepare from now on; those that are not named have nothing to.
    pub fn prefetch(&self, wanted: &BTreeMap<Name, Vec<Artifact>>) {
        let mut waking = self.lock();
        if waking.prefetch == *wanted {
            return;
        }
        let before = std::mem::replace(&mut waking.prefetch, wanted.clone());
        let is_news = |host: &Name| before.get(host) != wanted.get(host);
        waking.streams.iter().filter(|(host, _)| is_news(host)).for_each(|(_, queue)| queue.notify_one());
    }

    /// What a host is to prepare.
    pub fn artifacts(&self, host: &Name) -> Vec<Artifact> {
        self.lock().prefetch.get(host).cloned().unwrap_or_default()
    }

    /// What a host's new stream is woken by.
    pub fn attach(&self, host: &Name) -> Arc<Notify> {
        let queue = Arc::new(Notify::new());
        self.lock().streams.insert(host.clone(), Arc::clone(&queue));
        queue
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waking> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Notes something that happened to a peer. A note that is lost costs nobody anything.
    async fn note(&self, role: Role, name: &Name, level: Level, message: &str) {
        let (subject, message) = (format!("{role} {name}"), message.to_owned());
        if let Err(error) = self.store.note(&Event { at: Timestamp::now(), subject, level, message }).await {
            unavailable(&error);
        }
    }
}

/// One link a tenant: a peer reaches the one that its certificate names, and no other.
pub struct Links(BTreeMap<Name, Arc<Link>>);

impl Links {
    pub fn new(links: impl IntoIterator<Item = Arc<Link>>) -> Self {
        Links(links.into_iter().map(|link| (link.tenant.clone(), link)).collect())
    }

    /// The link of a peer with a certificate of this role, and the name under which the peer is known there.
    fn of<T>(&self, request: &Request<T>, role: Role) -> Result<(Arc<Link>, Name), Status> {
        let peer = request.extensions().get::<Peer>().and_then(|peer| peer.identity.as_ref());
        let Some(identity) = peer else {
            return Err(Status::unauthenticated("this needs a certificate; join first"));
        };
        match self.0.get(&identity.tenant) {
            Some(link) if identity.role == role => Ok((Arc::clone(link), identity.name.clone())),
            _ => Err(Status::permission_denied(format!("{identity} is not a {role} of a tenant here"))),
        }
    }
}

type Instructions<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// The service itself. A type of its own, because tonic's streams must be able to hold on to the links.
#[derive(Clone)]
pub(crate) struct Service(pub Arc<Links>);

#[tonic::async_trait]
impl denv_link::rpc::control_plane_server::ControlPlane for Service {
    type AttachHostStream = Instructions<HostInstruction>;
    type AttachGatewayStream = Instructions<GatewayInstruction>;

    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        join::join(&self.0, request).await.map(Response::new)
    }

    async fn renew(&self, request: Request<JoinRequest>) -> Result<Response<JoinResponse>, Status> {
        join::renew(&self.0, &request).map(Response::new)
    }

    async fn attach_host(
        &self,
        request: Request<Streaming<HostMessage>>,
    ) -> Result<Response<Self::AttachHostStream>, Status> {
        let (link, name) = self.0.of(&request, Role::Host)?;
        hosts::attach(link, name, request.into_inner()).await.map(Response::new)
    }

    async fn attach_gateway(
        &self,
        request: Request<Streaming<GatewayMessage>>,
    ) -> Result<Response<Self::AttachGatewayStream>, Status> {
        let (link, name) = self.0.of(&request, Role::Gateway)?;
        gateways::attach(link, name, request.into_inner()).await.map(Response::new)
    }
}

/// A peer that says nothing first is let go.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

async fn first<T>(messages: &mut Streaming<T>) -> Result<T, Status> {
    match tokio::time::timeout(HELLO_TIMEOUT, messages.message()).await {
        Ok(Ok(Some(message))) => Ok(message),
        Ok(Ok(None)) | Err(_) => Err(Status::invalid_argument("a stream begins with a hello")),
        Ok(Err(status)) => Err(status),
    }
}

/// Something the store could not do. The peer comes again.
fn unavailable(error: &crate::store::StoreError) -> Status {
    tracing::error!(error = error as &dyn std::error::Error, "the store failed");
    Status::unavailable("the control plane cannot reach its store")
}

/// How far a peer's clock is off, if it is too far.
fn skew(peer: jiff::Timestamp, now: jiff::Timestamp) -> Option<String> {
    let skew = peer.duration_since(now);
    (skew.unsigned_abs() > denv_link::enrolment::SKEW_TOLERANCE).then(|| {
        format!(
            "its clock is {} s {} the control plane's; set it (NTP)",
            skew.as_secs().unsigned_abs(),
            if skew.is_positive() { "ahead of" } else { "behind" }
        )
    })
}
