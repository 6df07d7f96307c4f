//! `denv-gateway`: arguments, logging, signals, and the exit status.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use denv_gateway::process::{Gateway, Ingress, Settings};
use denv_link::JoinToken;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Serves endpoints to API keys, routes to units, meters.
///
/// It joins a control plane once, with a one-time token, and then serves by what the control plane sent last,
/// also after a restart without it.
#[derive(Parser)]
#[command(name = "denv-gateway", version, after_long_help = EXAMPLES)]
struct Arguments {
    /// Where the reconciler listens for hosts and gateways
    #[arg(long, env = "DENV_LINK", value_name = "HOST:PORT", value_parser = host_and_port)]
    server: String,

    /// A one-time join token, from `denv gateway token NAME`; not needed once joined. A file (--token-file) or the
    /// environment keeps it out of process lists
    #[arg(long, env = "DENV_JOIN_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    token: Option<JoinToken>,

    /// A file that holds the join token
    #[arg(long, env = "DENV_JOIN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Where the certificate, the last known configuration and the usage ledger are kept
    #[arg(long, env = "DENV_STATE_DIR", default_value = "/var/lib/denv-gateway", value_name = "DIR")]
    state_dir: PathBuf,

    /// Where clients are served, over plain HTTP
    #[arg(long, env = "DENV_GATEWAY_LISTEN", default_value = "127.0.0.1:8000", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,

    /// Threads that serve; as many as there are cores unless given
    #[arg(long, env = "DENV_GATEWAY_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// The form of the log on standard error; RUST_LOG chooses what is in it
    #[arg(long, env = "DENV_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Reach ingresses without TLS. For benchmarks and tests on loopback: whoever can reach an ingress then is
    /// taken for this gateway.
    #[arg(long, hide = true)]
    insecure_plain_ingress: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  Join and serve:
    denv-gateway --server reconciler.example:7442 --token-file /run/secrets/join --listen 0.0.0.0:8000
  Again later, by the certificate that is kept:
    denv-gateway --server reconciler.example:7442 --listen 0.0.0.0:8000
  Ask it something:
    curl http://127.0.0.1:8000/v1/chat/completions -H \"Authorization: Bearer $DENV_API_KEY\" \\
      -d '{\"model\": \"MODEL\", \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}'

Logging is set by RUST_LOG, for example RUST_LOG=denv_gateway=debug.";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    log_to_stderr(arguments.log_format);
    denv_link::install_tls_provider();
    runtime(arguments.workers)?.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let token = match arguments.token_file {
        Some(path) => Some(read_token(&path)?),
        None => arguments.token,
    };
    let address = arguments.listen;
    // First of all, so that a port in use is known before a token is spent.
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on `{address}`; stop what listens there, or choose another (--listen)")
    })?;
    let mut settings = Settings::new(arguments.server, arguments.state_dir);
    if arguments.insecure_plain_ingress {
        tracing::warn!("ingresses are reached without TLS");
        settings.ingress = Ingress::Plain;
    }
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let gateway = tokio::select! {
        started = Gateway::start(settings, token.as_ref()) => started?,
        _ = terminated.recv() => return Ok(()),
        _ = interrupted.recv() => return Ok(()),
    };
    tracing::info!(%address, "serving");
    gateway
        .serve(listener, async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
            tracing::info!("stopping: finishing the requests under way");
            // A second signal is not waited with.
            tokio::spawn(async move {
                tokio::select! {
                    _ = terminated.recv() => {}
                    _ = interrupted.recv() => {}
                }
                std::process::exit(130);
            });
        })
        .await;
    Ok(())
}

/// A name is looked up each time it is dialled, so only its form is checked here.
fn host_and_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(1..))) if !host.is_empty() && !host.contains('/') => Ok(text.to_owned()),
        _ => Err("write it as HOST:PORT".to_owned()),
    }
}

fn read_token(path: &PathBuf) -> anyhow::Result<JoinToken> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the join token from `{}`", path.display()))?;
    text.parse().with_context(|| format!("`{}` holds no join token", path.display()))
}

fn runtime(workers: Option<NonZeroUsize>) -> io::Result<Runtime> {
    let workers = match workers {
        Some(workers) => workers,
        None => std::thread::available_parallelism()?,
    };
    let mut builder = match workers.get() {
        // There is no other thread to share work with, and sharing has its price.
        1 => Builder::new_current_thread(),
        workers => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(workers);
            builder
        }
    };
    builder.enable_all().build()
}

fn log_to_stderr(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
