//! The figures of the whole: from a push to the first command on a host, and resident memory. Real processes, the
//! simulated engine, the demo's size.
//!
//!     cargo bench -p denv-tests

#![allow(clippy::print_stdout, reason = "a benchmark's output is its result")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use denv_tests::cluster::{Cluster, Layout};
use denv_tests::traffic::Traffic;
use denv_tests::until;

const STAGE: &str = "chat/prod";
const PATIENCE: Duration = Duration::from_secs(60);
const PUSHES: usize = 30;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let layout = Layout {
        dir: dir.path().join("cluster"),
        engine_path: denv_tests::programs()?,
        weights_dir: None,
        poll: "1h".to_owned(),
        reconciler_flags: Vec::new(),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cluster = Cluster::create(layout, &root.join("examples/manifests/quickstart"))?;
    let software = include_str!("../manifests/simulated.yaml");
    cluster.repository.write("software.yaml", software)?;
    cluster.repository.edit("service.yaml", "release: smollm2-r1\n", "release: r1\n")?;
    cluster.repository.edit("service.yaml", "bake: 3s", "bake: 0s")?;
    cluster.repository.commit("Use the simulated engine")?;
    cluster.start(&["host-a", "host-b"]).await?;
    settled(&cluster, "r1").await?;

    let mut times = Vec::new();
    for number in 0..PUSHES {
        let (from, to) = if number % 2 == 0 { ("r1", "r2") } else { ("r2", "r1") };
        cluster.repository.edit(
            "service.yaml",
            &format!("release: {from}\n"),
            &format!("release: {to}\n"),
        )?;
        let pushed = Instant::now();
        cluster.push("Move").await?;
        until("the first command to be taken up", PATIENCE, || async {
            let view = cluster.client()?.stage(STAGE).await?;
            let taken = view.units.iter().any(|unit| unit.release.as_str() == to && unit.status != "planned");
            Ok(taken.then_some(()))
        })
        .await?;
        times.push(pushed.elapsed());
        settled(&cluster, to).await?;
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100).saturating_sub(1)];
    println!(
        "push, told by a hook, to the first command on a host ({PUSHES} pushes; seen by asking every 50 ms):"
    );
    println!("  p50 {:?}, p99 {:?} (wanted: p99 at most 1 s)", at(50), at(99));

    println!("resident memory after {PUSHES} rollouts:");
    let megabytes = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let reconciler = cluster.reconciler.as_ref().context("the reconciler runs")?;
    println!(
        "  reconciler with 2 hosts {:.1} MB (wanted: at most 60)",
        megabytes(reconciler.resident_memory()?)
    );
    for (name, host) in &cluster.hosts {
        println!("  denvd of {name} {:.1} MB (wanted: at most 30)", megabytes(host.resident_memory()?));
    }
    let gateway = cluster.gateway.as_ref().context("the gateway runs")?;
    println!("  gateway, idle {:.1} MB (wanted: at most 30)", megabytes(gateway.resident_memory()?));

    let traffic = Traffic::start(&cluster.application("smollm2")?, 8, 20);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (answered, failures) = traffic.stop().await;
    anyhow::ensure!(failures.is_empty(), "{failures:?}");
    println!("  gateway, after {answered} requests {:.1} MB", megabytes(gateway.resident_memory()?));
    Ok(())
}

async fn settled(cluster: &Cluster, release: &str) -> anyhow::Result<()> {
    let what = format!("{release} to settle");
    let settled = cluster.stage_until(STAGE, &what, PATIENCE, |view| {
        let of_release =
            view.units.iter().all(|unit| unit.release.as_str() == release && unit.status == "ready");
        of_release && view.units.len() == 2 && view.deployment.as_ref().is_some_and(|it| it.over)
    });
    settled.await.map(drop)
}
