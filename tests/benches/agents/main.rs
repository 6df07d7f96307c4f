//! The figures with many agents: thousands of simulated hosts on one reconciler, over the real link. They share this
//! machine with it, which real ones do not.
//!
//!     cargo bench -p denv-tests --bench agents

#![allow(clippy::print_stdout, reason = "a benchmark's output is its result")]

mod bounds;
mod desired;
mod host;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use denv_link::{Authority, Identity, Role, alive};
use denv_tests::cluster::{Cluster, Layout};
use denv_tests::programs;
use jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use bounds::Bounds;
use desired::{HOSTS, STAGES, UNITS};
use host::{Host, Taken, Told};

const PATIENCE: Duration = Duration::from_secs(300);
/// Hosts that dial at once, on this machine.
const DIALS: usize = 256;
const SETTLES: Duration = Duration::from_secs(45);
/// How long nothing changes while the work at rest is measured: whole rounds of the questions whether hosts are there, which come
/// in waves after all have dialled at once, and one round of reports.
const REST: Duration = alive::DIALLER_ASKS.saturating_mul(4);
/// Of the reconciler, in MB.
const MOST_MEMORY: f64 = 1500.0;
/// Of a core, in percent.
const MOST_AT_REST: f64 = 5.0;
const SLOWEST_CHANGE: Duration = Duration::from_secs(60);
const SLOWEST_RETURN: Duration = Duration::from_secs(5);
/// Files that each of the two processes opens beside the connections of hosts.
const OTHER_FILES: u64 = 200;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    raise_limit()?;
    let dir = tempfile::tempdir()?;
    let manifests = dir.path().join("manifests");
    fs::create_dir_all(&manifests)?;
    desired::write(&manifests)?;
    let layout = Layout {
        dir: dir.path().join("cluster"),
        engine_path: programs()?,
        weights_dir: None,
        poll: "1h".to_owned(),
        reconciler_flags: Vec::new(),
    };
    let mut cluster = Cluster::create(layout, &manifests)?;
    cluster.start_reconciler().await?;
    println!("{HOSTS} hosts, {} units, {}", STAGES * UNITS, load());
    let (sender, mut commands) = mpsc::unbounded_channel();
    let told =
        Arc::new(Told { dials: Semaphore::new(DIALS), welcomed: AtomicUsize::new(0), commands: sender });
    let began = Instant::now();
    begin(&cluster, &told)?;
    all_welcomed(&told).await?;
    let connected = began.elapsed();
    println!(
        "  all hosts connected: {connected:.1?}, of which the reconciler worked {:.1?}",
        worked(&cluster)?
    );
    settled(&cluster, "one").await?;
    println!("  all units run: {:.1?}", began.elapsed());
    while commands.try_recv().is_ok() {}

    let mut bounds = Bounds::default();
    at_rest(&cluster, &mut bounds).await?;
    change(&mut cluster, &mut commands, &mut bounds).await?;
    kill(&mut cluster, &mut commands, &told, &mut bounds).await?;
    bounds.at_most("resident memory at the end, in MB:", megabytes(&cluster)?, MOST_MEMORY);
    bounds.kept()
}

/// A connection is an open file, here and in the reconciler.
fn raise_limit() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = HOSTS as u64 + OTHER_FILES;
    anyhow::ensure!(most >= needed, "at most {most} files may be open; {needed} are needed (`ulimit -Hn`)");
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// Starts the hosts. Their certificates are signed right here: how hosts join is measured nowhere.
fn begin(cluster: &Cluster, told: &Arc<Told>) -> anyhow::Result<()> {
    let state = cluster.layout.dir.join("reconciler");
    let read = |name: &str| {
        fs::read_to_string(state.join(name)).context("the authority is kept in the state folder")
    };
    let authority = Authority::from_pem(&read("authority.pem")?, &read("authority-key.pem")?)?;
    let (tenant, now) = (denv_link::identity::tenant(), Timestamp::now());
    for number in 0..HOSTS {
        let identity = Identity::new(&tenant, Role::Host, &desired::host(number).parse()?);
        let credentials = authority.issue(&identity, now, Duration::from_secs(86_400))?;
        tokio::spawn(Host::new(&credentials, cluster.link_address(), Arc::clone(told))?.run());
    }
    Ok(())
}

async fn all_welcomed(told: &Told) -> anyhow::Result<()> {
    let welcomed = async {
        while told.welcomed.load(Ordering::Relaxed) < HOSTS {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, welcomed).await;
    waited.with_context(|| format!("only {} hosts are connected", told.welcomed.load(Ordering::Relaxed)))
}

/// Waits until all stages run the release, and only it.
async fn settled(cluster: &Cluster, release: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    for number in 0..STAGES {
        let stage = desired::stage(number);
        loop {
            let view = cluster.client()?.stage(&stage).await?;
            let good = view.good.as_ref().is_some_and(|good| good.as_str() == release);
            if good && view.units.len() == UNITS && view.deployment.as_ref().is_some_and(|it| it.over) {
                break;
            }
            let waiting: Vec<_> = view.waiting.iter().take(3).collect();
            anyhow::ensure!(
                began.elapsed() < PATIENCE,
                "{stage} does not settle at {release}: {} units, {:?}, {waiting:?}",
                view.units.len(),
                view.deployment
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

async fn at_rest(cluster: &Cluster, bounds: &mut Bounds) -> anyhow::Result<()> {
    // What has just happened is saved, memory given back, and the time over after which each new unit is looked at once more.
    tokio::time::sleep(SETTLES).await;
    let (before, began) = (worked(cluster)?, Instant::now());
    tokio::time::sleep(REST).await;
    let share = (worked(cluster)? - before).as_secs_f64() / began.elapsed().as_secs_f64();
    bounds.at_most("work at rest, in % of a core:", share * 100.0, MOST_AT_REST);
    bounds.at_most("resident memory at rest, in MB:", megabytes(cluster)?, MOST_MEMORY);
    Ok(())
}

/// Another release for all units, all at once.
async fn change(
    cluster: &mut Cluster,
    commands: &mut mpsc::UnboundedReceiver<Taken>,
    bounds: &mut Bounds,
) -> anyhow::Result<()> {
    let pushed = push(cluster, &desired::stages("two", "[100%]")).await?;
    let first = starts(commands, 1).await?;
    let last = starts(commands, STAGES * UNITS - 1).await?;
    println!("  a change of {} units, from its push: first host {:.1?}", STAGES * UNITS, first - pushed);
    bounds.at_most("every host", last - pushed, SLOWEST_CHANGE);
    settled(cluster, "two").await?;
    println!("  all of it done {:.1?}, {}", pushed.elapsed(), load());
    while commands.try_recv().is_ok() {}
    Ok(())
}

/// SIGKILL once a part of the hosts have been told to start. What is stopped for the others is planned by the next process.
async fn kill(
    cluster: &mut Cluster,
    commands: &mut mpsc::UnboundedReceiver<Taken>,
    told: &Told,
    bounds: &mut Bounds,
) -> anyhow::Result<()> {
    push(cluster, &desired::stages("one", "[100%]")).await?;
    starts(commands, STAGES * UNITS / 4).await?;
    cluster.reconciler.as_mut().context("the reconciler runs")?.crash()?;
    let killed = Instant::now();
    while commands.try_recv().is_ok() {}
    let (started, acted) = tokio::join!(cluster.start_reconciler(), acting(commands));
    started?;
    let (first, stop) = acted?;
    bounds.at_most(
        "kill -9 in a rollout: from the next start to the first command",
        first - killed,
        SLOWEST_RETURN,
    );
    bounds.at_most("to the first that was planned after it", stop - killed, SLOWEST_RETURN);
    all_welcomed(told).await?;
    let connected = killed.elapsed();
    println!(
        "  all hosts connected again {connected:.1?}, of which the reconciler worked {:.1?}",
        worked(cluster)?
    );
    settled(cluster, "one").await?;
    println!("  the rollout done {:.1?}, {}", killed.elapsed(), load());
    Ok(())
}

/// When the first command was taken up, and when the first stop.
async fn acting(commands: &mut mpsc::UnboundedReceiver<Taken>) -> anyhow::Result<(Instant, Instant)> {
    let acting = async {
        let first = commands.recv().await?;
        let mut stop = Some(first).filter(|first| !first.is_start);
        while stop.is_none() {
            stop = Some(commands.recv().await?).filter(|taken| !taken.is_start);
        }
        Some((first.at, stop?.at))
    };
    let acted = tokio::time::timeout(PATIENCE, acting).await.context("nothing was told to any host")?;
    acted.context("hosts run as long as this")
}

/// Gives the time of the push.
async fn push(cluster: &mut Cluster, stages: &str) -> anyhow::Result<Instant> {
    cluster.repository.write("stages.yaml", stages)?;
    cluster.repository.commit("Move")?;
    let pushed = Instant::now();
    cluster.client()?.refresh().await?;
    Ok(pushed)
}

/// When so many starts more had been taken up.
async fn starts(commands: &mut mpsc::UnboundedReceiver<Taken>, count: usize) -> anyhow::Result<Instant> {
    let mut seen = 0;
    loop {
        let taken = tokio::time::timeout(PATIENCE, commands.recv()).await;
        let taken = taken.with_context(|| format!("only {seen} of {count} hosts were told to start"))?;
        let taken = taken.context("hosts run as long as this")?;
        seen += usize::from(taken.is_start);
        if seen == count {
            return Ok(taken.at);
        }
    }
}

/// The processor time that the reconciler has used.
fn worked(cluster: &Cluster) -> anyhow::Result<Duration> {
    cluster.reconciler.as_ref().context("the reconciler runs")?.processor_time()
}

fn megabytes(cluster: &Cluster) -> anyhow::Result<f64> {
    let bytes = cluster.reconciler.as_ref().context("the reconciler runs")?.resident_memory()?;
    Ok(bytes as f64 / (1 << 20) as f64)
}

/// What else the machine has to do falsifies the figures.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {}", load.split(' ').take(2).collect::<Vec<_>>().join(" "))
}
