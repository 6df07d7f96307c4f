//! denv as its users run it: real processes, a real repository, real TLS, on loopback or in networks of its own. The scenarios, the demo and the
//! benchmarks stand on this.

pub mod client;
pub mod cluster;
pub mod network;
pub mod process;
pub mod repository;
pub mod traffic;

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// The folder with the programs that were built along with this one.
pub fn programs() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let mut folder = this.parent().context("a program is in a folder")?;
    if folder.ends_with("deps") {
        folder = folder.parent().context("a target folder has a parent")?;
    }
    for name in ["denv-reconciler", "denvd", "denv-gateway", "denv"] {
        if !folder.join(name).exists() {
            bail!(
                "`{name}` is not in {}; build the whole workspace first: cargo build --workspace",
                folder.display()
            );
        }
    }
    Ok(folder.to_owned())
}

/// A port that is free at this moment.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("loopback has a free port")?;
    Ok(listener.local_addr().context("a listener has an address")?.port())
}

/// Asks again and again until there is an answer, or says what it waited for.
pub async fn until<T, F, Fut>(what: &str, patience: Duration, mut ask: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<Option<T>>>,
{
    let began = Instant::now();
    loop {
        let last = match ask().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => String::new(),
            Err(error) => format!("; last: {error:#}"),
        };
        if began.elapsed() > patience {
            bail!("waited {} s in vain for {what}{last}", patience.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
