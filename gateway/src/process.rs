//! A whole gateway: the parts wired together, and what lives as long as the process.
//!
//! It owns the state folder and the background tasks. It refuses to parse arguments and to install logging.

use std::error::Error;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use denv_link::credentials::CredentialsError;
use denv_link::dial::DialError;
use denv_link::enrolment::{self, EnrolError};
use denv_link::{Credentials, Identity, JoinToken, Role};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::Admission;
use crate::api;
use crate::control_plane::ControlPlane;
use crate::last_known::LastKnown;
use crate::meter::{Disk, Files, LedgerError, Meter};
use crate::metrics::Metrics;
use crate::proxy::Proxy;
use crate::units::{Transport, Units};

pub struct Settings {
    /// `host:port` of the control plane's link.
    pub server: String,
    pub state_dir: PathBuf,
    pub ingress: Ingress,
    /// How long an engine may be silent before its answer is given up.
    pub engine_silence: Duration,
    /// Where the ledger is written.
    pub disk: Arc<dyn Disk>,
}

/// How hosts' ingresses are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    MutualTls,
    /// Without TLS: for benchmarks and tests on loopback.
    Plain,
}

/// A gateway that runs: attached, or trying to be. Dropping it stops it at once.
pub struct Gateway {
    proxy: Arc<Proxy>,
    tasks: JoinSet<()>,
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "cannot use the state folder `{path}`; make it writable for this user, or name another (--state-dir)"
    )]
    StateDir { path: PathBuf, source: std::io::Error },
    #[error("another gateway uses the state folder `{path}`; stop it, or name another (--state-dir)")]
    InUse { path: PathBuf },
    #[error(
        "this gateway has not joined a control plane yet; give it a join token (--token-file), as `denv gateway token NAME` prints it"
    )]
    NoToken,
    #[error(
        "the certificate in `{dir}` is that of a {role}, not of a gateway; name another --state-dir, or remove it and join with a token from `denv gateway token NAME`"
    )]
    NotAGateway { dir: PathBuf, role: Role },
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// As OpenAI's own clients wait.
pub const ENGINE_SILENCE: Duration = Duration::from_secs(600);
const JOIN_RETRY: Duration = Duration::from_secs(1);

impl Settings {
    pub fn new(server: String, state_dir: PathBuf) -> Self {
        let (ingress, disk) = (Ingress::MutualTls, Arc::new(Files));
        Settings { server, state_dir, ingress, engine_silence: ENGINE_SILENCE, disk }
    }

    fn credentials_dir(&self) -> PathBuf {
        self.state_dir.join("credentials")
    }
}

impl Gateway {
    /// Joins if it must, and takes up what it knew when it last ran.
    pub async fn start(settings: Settings, token: Option<&JoinToken>) -> Result<Self, StartError> {
        let lock = lock(&settings.state_dir)?;
        let meter = Arc::new(Meter::open(&settings.state_dir.join("ledger"), settings.disk.clone())?);
        let credentials = enrol(&settings, token).await?;
        let Identity { tenant, role, .. } = credentials.identity()?;
        if role != Role::Gateway {
            return Err(StartError::NotAGateway { dir: settings.credentials_dir(), role });
        }
        let tls = Arc::new(credentials.client_config(&[])?);
        let (credentials_sender, credentials) = watch::channel(Arc::new(credentials));
        let (tls_sender, tls) = watch::channel(tls);
        let transport = match settings.ingress {
            Ingress::MutualTls => Transport::MutualTls { tenant, config: tls },
            Ingress::Plain => Transport::Plain,
        };
        let metrics = Arc::new(Metrics::new());
        let proxy = Arc::new(Proxy {
            admission: Admission::new(metrics.clone()),
            units: Units::new(transport),
            meter: meter.clone(),
            metrics,
            engine_silence: settings.engine_silence,
        });
        let known = recall(&settings.state_dir);
        if let Some(config) = &known.config {
            proxy.admission.apply(config);
        }
        proxy.units.set_routes(&known.units);

        let mut tasks = JoinSet::new();
        tasks.spawn(meter.keep());
        tasks.spawn(renew_tls(credentials.clone(), tls_sender));
        let dir = settings.credentials_dir();
        tasks.spawn(enrolment::keep_fresh(settings.server.clone(), dir, credentials_sender));
        let Settings { server, state_dir, .. } = settings;
        let control_plane = ControlPlane {
            server,
            state_dir,
            credentials,
            proxy: proxy.clone(),
            known,
            begun: Timestamp::now(),
        };
        tasks.spawn(control_plane.attend());
        Ok(Gateway { proxy, tasks, _lock: lock })
    }

    /// Serves until `stopped` resolves, and then until the requests under way have finished.
    pub async fn serve(mut self, listener: TcpListener, stopped: impl Future<Output = ()>) {
        api::serve(listener, self.proxy.clone(), stopped).await;
        self.tasks.shutdown().await;
        let meter = self.proxy.meter.clone();
        let _ = tokio::task::spawn_blocking(move || meter.synchronise()).await;
    }
}

fn lock(state_dir: &Path) -> Result<File, StartError> {
    let failed = |source| StartError::StateDir { path: state_dir.to_owned(), source };
    fs::create_dir_all(state_dir).map_err(failed)?;
    let file = File::create(state_dir.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse { path: state_dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Waits for a control plane that can't be reached yet; what it refuses is final.
async fn enrol(settings: &Settings, token: Option<&JoinToken>) -> Result<Credentials, StartError> {
    loop {
        let enrolled = enrolment::load_or_join(&settings.server, token, &settings.credentials_dir()).await;
        let error = match enrolled {
            Ok(credentials) => return credentials.ok_or(StartError::NoToken),
            Err(error) => error,
        };
        match &error {
            EnrolError::Unavailable(_)
            | EnrolError::Dial(
                DialError::Connect { .. } | DialError::TimedOut { .. } | DialError::Channel { .. },
            ) => {
                let error = &error as &dyn Error;
                tracing::warn!(error, server = %settings.server, "cannot join yet; trying again");
                tokio::time::sleep(JOIN_RETRY).await;
            }
            _ => return Err(error.into()),
        }
    }
}

fn recall(state_dir: &Path) -> LastKnown {
    LastKnown::load(state_dir).unwrap_or_else(|error| {
        let error = &error as &dyn Error;
        tracing::error!(error, "starting without what was known; the control plane sends it anew");
        LastKnown::default()
    })
}

/// Makes each new certificate the one that is shown to hosts.
async fn renew_tls(
    mut credentials: watch::Receiver<Arc<Credentials>>,
    tls: watch::Sender<Arc<rustls::ClientConfig>>,
) {
    while credentials.changed().await.is_ok() {
        let fresh = credentials.borrow_and_update().clone();
        match fresh.client_config(&[]) {
            Ok(config) => {
                tls.send_replace(Arc::new(config));
            }
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::error!(error, "the new certificate cannot be used");
            }
        }
    }
}
