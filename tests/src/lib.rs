//! denv as its users run it: real processes, a real repository, real TLS, on loopback or in networks of its own. The scenarios, the demo and the
//! benchmarks stand on this.

pub mod client;
pub mod cluster;
pub mod containers;
pub mod network;
pub mod process;
pub mod repository;
pub mod traffic;

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
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

/// Below those that the system gives to connections and to whoever asks for any: only tests ask for these.
const PORTS: std::ops::Range<u16> = 20_000..28_000;

/// A port that is free, and that no other test on this machine is given while this process lives.
pub fn free_port() -> anyhow::Result<u16> {
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = std::env::temp_dir().join("denv-test-ports");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Processes begin at different places, so that they seldom meet.
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(97) % count;
    for step in 0..count {
        let port = PORTS.start + u16::try_from((first + step) % count)?;
        let file = File::create(folder.join(port.to_string())).context("cannot claim a port")?;
        if file.try_lock().is_err() || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err() {
            continue;
        }
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(file);
        return Ok(port);
    }
    bail!("all ports from {} to {} are taken", PORTS.start, PORTS.end)
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
