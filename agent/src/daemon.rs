//! denvd as a whole: claims its folder and port, resumes the runner, joins, then serves until it is told to end.
//! It owns the order of things and the words of errors that end the process; it refuses to do any of the work.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use denv_link::credentials::CredentialsError;
use denv_link::dial::DialError;
use denv_link::enrolment::{self, EnrolError};
use denv_link::token::InvalidToken;
use denv_link::{Credentials, JoinToken, Role};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::arguments::{Arguments, PlaceName};
use crate::engines;
use crate::ingress;
use crate::inventory::{self, InventoryError};
use crate::journal::store::JournalFile;
use crate::link::{Backoff, Link};
use crate::prefetch::Prefetch;
use crate::reclaim;
use crate::runner::{ResumeError, Runner, Setup, View};
use crate::runtimes::{EnginePath, Images, Podman};
use crate::weights::{Access, WeightStore};
use denv_schema::Digest;
use denv_schema::diagnostic::chain;
use denv_schema::launch::LaunchSpec;
use denv_schema::measures::HostMeasures;
use denv_schema::wire::{Ability, Artifact, ArtifactReport, MemberState};

/// Runs denvd until SIGTERM or SIGINT. Engines run on after it.
pub async fn run(arguments: Arguments) -> Result<(), DaemonError> {
    let state_dir = claim(&arguments.state_dir)?;
    let listen = arguments.ingress_listen;
    let listener =
        TcpListener::bind(listen).await.map_err(|source| DaemonError::Listen { address: listen, source })?;
    let advertised = advertised(&arguments, &listener);
    let (mut inventory, mut problems) = inventory::read(arguments.inventory.as_deref())?;
    let place = |given: &Option<PlaceName>| given.as_ref().and_then(|place| place.0.clone());
    inventory.domain = place(&arguments.domain).or(inventory.domain);
    inventory.failure_domain = place(&arguments.failure_domain).or(inventory.failure_domain);
    let engine_path = EnginePath::new(absolute(&arguments.engine_path), std::env::var_os("PATH"));
    let accelerated = !inventory.gpus.is_empty();
    let podman = Podman::find(&engine_path);
    // What runs is looked after all the same.
    let mut starts_images = false;
    if let Some(podman) = &podman {
        match podman.check(accelerated).await {
            Ok(()) => starts_images = true,
            Err(error) => {
                let remedy = "mend it and restart denvd";
                problems.push(format!("no new engine is started from an image here: {error}; {remedy}"));
            }
        }
    }
    let images = podman.map(|podman| Arc::new(Images::new(podman, &state_dir.path)));
    for problem in &problems {
        tracing::warn!("{problem}");
    }
    let mut end = std::pin::pin!(told_to_end()?);

    let weights_dir =
        arguments.weights_dir.as_deref().map_or_else(|| state_dir.path.join("weights"), made_absolute);
    let weights = Arc::new(WeightStore::new(weights_dir, Access::from_environment()));
    inventory.abilities.extend([Ability::FetchWeights, Ability::Prefetch]);
    inventory.abilities.extend(starts_images.then_some(Ability::Images));
    let setup = Setup {
        engine_path,
        weights: Arc::clone(&weights),
        images: images.clone(),
        state_dir: state_dir.path.clone(),
    };
    let disk = Arc::new(JournalFile::new(state_dir.path.join("journal.json")));
    let mut runner = Runner::resume(setup, disk).await?;

    let dir = state_dir.path.join("credentials");
    let credentials = tokio::select! {
        credentials = join(&arguments, &dir) => credentials?,
        () = &mut end => return Ok(()),
    };
    let identity = credentials.identity()?;
    tracing::info!(host = %identity.name, ingress = %advertised, "denvd is up");

    let (tls, tls_config) = watch::channel(Arc::new(credentials.server_config(&[ingress::HTTP1], false)?));
    let (fresh, credentials) = watch::channel(Arc::new(credentials));
    tokio::spawn(enrolment::keep_fresh(arguments.server.clone(), dir, fresh));
    tokio::spawn(renew_ingress(credentials.clone(), tls));
    let prefetch = Prefetch::start(Arc::clone(&weights), images.clone());
    let needed = Needed { view: runner.handle().view(), wanted: prefetch.reports() };
    if let Some(images) = images {
        let needed = needed.clone();
        images.keep(move || needed.images());
    }
    weights.keep(move || needed.weights());
    let (measured, measures) = watch::channel(HostMeasures::default());
    tokio::spawn(engines::keep_measured(runner.handle().view(), measured));
    let link = Link {
        server: arguments.server,
        credentials,
        ingress: advertised,
        inventory,
        problems,
        reclaim: reclaim::watch(arguments.reclaim_notice),
        runner: runner.handle(),
        prefetch,
        measures,
    };
    let view = runner.handle().view();
    tokio::select! {
        () = ingress::serve(listener, tls_config, identity.tenant, view, end) => {}
        never = link.run() => match never {},
        () = runner.broken() => return Err(DaemonError::Fault),
    }
    runner.halt().await;
    tracing::info!("denvd ends; engines run on");
    Ok(())
}

/// What members are started from of which anything is left, and releases that are prepared for.
#[derive(Clone)]
struct Needed {
    view: watch::Receiver<View>,
    wanted: watch::Receiver<Vec<ArtifactReport>>,
}

impl Needed {
    fn weights(&self) -> BTreeSet<Digest> {
        self.all(
            |spec| Some(spec.weights.as_ref()?.digest),
            |artifact| match artifact {
                Artifact::Weights(weights) => Some(weights.digest),
                Artifact::Image(_) => None,
            },
        )
    }

    fn images(&self) -> BTreeSet<String> {
        self.all(
            |spec| Some(spec.container.as_ref()?.image.clone()),
            |artifact| match artifact {
                Artifact::Image(image) => Some(image.clone()),
                Artifact::Weights(_) => None,
            },
        )
    }

    fn all<T: Ord>(
        &self,
        of_spec: impl Fn(&LaunchSpec) -> Option<T>,
        of_artifact: impl Fn(&Artifact) -> Option<T>,
    ) -> BTreeSet<T> {
        let view = self.view.borrow();
        let left = view.members.values().filter(|member| member.report.state != MemberState::Stopped);
        let of_members = left.filter_map(|member| of_spec(member.spec.as_deref()?));
        let wanted = self.wanted.borrow();
        let of_artifacts = wanted.iter().filter_map(|report| of_artifact(&report.artifact));
        of_members.chain(of_artifacts).collect()
    }
}

/// Why denvd does not run, with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(
        "cannot write the state folder `{path}`; run denvd as a user who may, or choose another (`--state-dir`)"
    )]
    StateDir { path: PathBuf, source: std::io::Error },
    #[error(
        "another denvd uses the state folder `{path}`; end that one, or choose another folder (`--state-dir`)"
    )]
    InUse { path: PathBuf },
    #[error(
        "cannot listen on `{address}`; if another process has the port, choose another (`--ingress-listen`)"
    )]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot watch for signals")]
    Signals(#[source] std::io::Error),
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error("cannot read the token file `{path}`")]
    TokenFile { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Token(#[from] InvalidToken),
    #[error(
        "this host has not joined a control plane yet; give it a join token (`--token-file`), as `denv host token NAME` prints it"
    )]
    NoToken,
    #[error(
        "cannot join `{server}`; a join token is good for one host and a short time, get a new one with `denv host token NAME`"
    )]
    Join { server: String, source: EnrolError },
    #[error(transparent)]
    Kept(EnrolError),
    #[error("supervision ended by a fault of denvd; engines run on, start denvd again")]
    Fault,
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(
        "the certificate in `{dir}` is that of a {role}, not of a host; choose another `--state-dir`, or remove it and join"
    )]
    NotAHost { dir: PathBuf, role: Role },
}

/// The state folder, which no other denvd uses while this lives.
struct StateDir {
    path: PathBuf,
    _lock: File,
}

fn claim(path: &Path) -> Result<StateDir, DaemonError> {
    let at = |source| DaemonError::StateDir { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(at)?;
    let path = path.canonicalize().map_err(at)?;
    let lock = File::create(path.join("lock")).map_err(at)?;
    match lock.try_lock() {
        Ok(()) => Ok(StateDir { path, _lock: lock }),
        Err(std::fs::TryLockError::WouldBlock) => Err(DaemonError::InUse { path }),
        Err(std::fs::TryLockError::Error(source)) => Err(at(source)),
    }
}

/// The credentials that are kept, or new ones for the token. Waits for a control plane that is not there yet.
async fn join(arguments: &Arguments, dir: &Path) -> Result<Credentials, DaemonError> {
    let server = &arguments.server;
    let credentials = match enrolment::load_or_join(server, None, dir).await {
        Ok(Some(credentials)) => credentials,
        // Only now is the token looked at: a host that has joined needs none, not even a good one.
        Ok(None) => join_with(server, &token(arguments)?.ok_or(DaemonError::NoToken)?, dir).await?,
        Err(expired @ EnrolError::Expired { .. }) => {
            join_with(server, &token(arguments)?.ok_or(DaemonError::Kept(expired))?, dir).await?
        }
        Err(error) => return Err(DaemonError::Kept(error)),
    };
    match credentials.identity()?.role {
        Role::Host => Ok(credentials),
        role @ (Role::Gateway | Role::ControlPlane) => {
            Err(DaemonError::NotAHost { dir: dir.to_owned(), role })
        }
    }
}

fn token(arguments: &Arguments) -> Result<Option<JoinToken>, DaemonError> {
    let text = match (&arguments.token, &arguments.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(path)) => std::fs::read_to_string(path)
            .map_err(|source| DaemonError::TokenFile { path: path.clone(), source })?,
        (None, None) => return Ok(None),
    };
    Ok(Some(text.trim().parse()?))
}

async fn join_with(server: &str, token: &JoinToken, dir: &Path) -> Result<Credentials, DaemonError> {
    let mut backoff = Backoff::new();
    loop {
        match enrolment::join(server, token, dir).await {
            Ok(credentials) => {
                tracing::info!(server, "joined the control plane");
                return Ok(credentials);
            }
            Err(error) if may_pass(&error) => {
                tracing::warn!(server, "cannot join yet, trying again: {}", chain(&error));
                tokio::time::sleep(backoff.wait()).await;
            }
            Err(source) => return Err(DaemonError::Join { server: server.to_owned(), source }),
        }
    }
}

/// The same try may go well later, without anybody changing the token.
fn may_pass(error: &EnrolError) -> bool {
    match error {
        EnrolError::Unavailable(_) => true,
        EnrolError::Dial(DialError::Stranger { .. }) => false,
        EnrolError::Dial(_) => true,
        EnrolError::Refused(_)
        | EnrolError::Request(_)
        | EnrolError::Credentials(_)
        | EnrolError::Answer(_)
        | EnrolError::Expired { .. } => false,
    }
}

/// Lets gateways in with each renewed certificate.
async fn renew_ingress(
    mut credentials: watch::Receiver<Arc<Credentials>>,
    tls: watch::Sender<Arc<ServerConfig>>,
) {
    while credentials.changed().await.is_ok() {
        let fresh = credentials.borrow_and_update().clone();
        match fresh.server_config(&[ingress::HTTP1], false) {
            Ok(config) => {
                tls.send_replace(Arc::new(config));
            }
            Err(error) => tracing::error!("the renewed certificate cannot serve: {}", chain(&error)),
        }
    }
    // The last configuration stays for as long as anybody holds the receiver.
}

fn advertised(arguments: &Arguments, listener: &TcpListener) -> String {
    if let Some(advertised) = &arguments.ingress_advertise {
        return advertised.clone();
    }
    let address = listener.local_addr().unwrap_or(arguments.ingress_listen);
    match sysinfo::System::host_name() {
        Ok(name) if address.ip().is_unspecified() => format!("{name}:{}", address.port()),
        _ => address.to_string(),
    }
}

fn told_to_end() -> Result<impl Future<Output = ()>, DaemonError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Signals)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn absolute(dirs: &[PathBuf]) -> Vec<PathBuf> {
    dirs.iter().filter(|dir| !dir.as_os_str().is_empty()).map(|dir| made_absolute(dir)).collect()
}

/// Engines run in a folder of their own, so what a person gave relative to theirs must not stay so.
fn made_absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
