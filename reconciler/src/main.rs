//! Wires the control plane together and runs it.

mod arguments;
mod tenant;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use arguments::{Arguments, LogFormat};
use clap::Parser as _;
use denv_link::Authority;
use denv_reconciler::api::{self, Listener, TlsFiles};
use denv_reconciler::link::{self, Links};
use denv_reconciler::store::Store;
use denv_schema::Digest;
use futures::future::select_all;
use jiff::Timestamp;
use rand::Rng as _;
use tenant::{Shared, Tenant};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    denv_link::install_tls_provider();
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match arguments.log_format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.context("cannot start").and_then(|runtime| {
        let done = runtime.block_on(run(arguments));
        // A look at Git may be waiting for its remote; nobody waits for that look any more.
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Before anything uses Git.
    denv_git_transport::register();
    let dir = &arguments.state_dir;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
        format!("cannot make the state folder `{}`; choose one with --state-dir", dir.display())
    })?;
    let _lock = lock(dir)?;
    let sources = arguments.sources()?;
    let shared = Shared {
        authority: Arc::new(authority(dir)?),
        admin_token: admin_token(dir)?,
        forget: sources.forget,
        certificate_lifetime: arguments.certificate_lifetime.get(),
        manifest_secrets: Arc::new(arguments.manifest_secret.iter().cloned().collect()),
    };
    let store = Store::open(&dir.join("denv.db"), &denv_link::identity::tenant()).await?;
    let tls = arguments.api_tls_certificate.as_deref().zip(arguments.api_tls_key.as_deref());
    let tls = tls.map(|(certificate, key)| TlsFiles { certificate, key });
    let api_listener = Listener::bind(arguments.api_listen, tls).await?;
    let link_listener = TcpListener::bind(arguments.link_listen).await.with_context(|| {
        format!(
            "cannot listen on {} for hosts and gateways; choose another with --link-listen",
            arguments.link_listen
        )
    })?;
    let mut tenants = Vec::new();
    for (name, configs) in sources.of_tenant {
        let store = store.of_tenant(&name);
        tenants.push(Tenant::new(name, configs, store, &shared).await?);
    }
    tracing::info!(api = %arguments.api_listen, link = %arguments.link_listen, "listening");

    let stop = CancellationToken::new();
    let links = Links::new(tenants.iter().map(|tenant| Arc::clone(&tenant.link)));
    let routes = api::routers(tenants.iter().map(|tenant| (tenant.name.clone(), Arc::clone(&tenant.api))));
    let running = select_all(tenants.into_iter().map(|tenant| Box::pin(tenant.run())));
    tokio::select! {
        (ended, ..) = running => ended,
        served = link::serve(links, shared.authority, link_listener, stop.clone()) => served.context("the link ended"),
        served = api_listener.serve(routes, stop.clone()) => served.context("the API ended"),
        () = asked_to_stop() => {
            tracing::info!("stopping; hosts and gateways go on");
            Ok(())
        }
    }
}

async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("a signal handler can be set");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Two processes on one state folder would fight over it; the second one says so.
fn lock(dir: &Path) -> anyhow::Result<fs::File> {
    let path = dir.join("lock");
    let file = fs::File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!(
                "another denv-reconciler runs on `{}`; stop it, or choose another --state-dir",
                dir.display()
            )
        }
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock `{}`", path.display()))
        }
    }
}

fn authority(dir: &Path) -> anyhow::Result<Authority> {
    let (certificate, key) = (dir.join("authority.pem"), dir.join("authority-key.pem"));
    if key.exists() {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
        };
        return Authority::from_pem(&read(&certificate)?, &read(&key)?)
            .with_context(|| format!("`{}` and its key are damaged", certificate.display()));
    }
    let authority = Authority::generate(Timestamp::now())?;
    write_private(&certificate, authority.certificate_pem())?;
    write_private(&key, &authority.key_pem())?;
    Ok(authority)
}

/// The hash of the token that may ask anything; the token itself is only in its file.
fn admin_token(dir: &Path) -> anyhow::Result<Digest> {
    let path = dir.join("admin-token");
    if !path.exists() {
        let mut bytes = [0u8; 32];
        rand::rng().fill(&mut bytes);
        let random = Digest::from_bytes(bytes).to_string();
        write_private(&path, &format!("denv-{}\n", random.trim_start_matches("sha256:")))?;
    }
    let token = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(Digest::of_bytes(token.trim().as_bytes()))
}

/// Writes a file that only its owner can read, whole or not at all.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let partial = path.with_extension("partial");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let write = || {
        let mut file = options.open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}
