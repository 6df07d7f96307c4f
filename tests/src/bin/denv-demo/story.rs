//! What the demo shows, in order. Each part checks what it shows.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use denv_schema::api::StageView;
use denv_tests::cluster::Cluster;
use denv_tests::process::{engines_below, kill_process};
use denv_tests::traffic::Traffic;

use crate::tell;

const STAGE: &str = "chat/prod";
const MODEL: &str = "smollm2";
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) async fn tell(cluster: &mut Cluster) -> anyhow::Result<()> {
    begin(cluster).await?;
    new_release(cluster).await?;
    bad_release(cluster).await?;
    killed_engine(cluster).await?;
    usage(cluster).await?;
    end(cluster).await
}

/// From a repository to an answered question.
pub(crate) async fn begin(cluster: &mut Cluster) -> anyhow::Result<()> {
    tell::chapter("A repository says what should run");
    tell::line(&format!("made {} from examples/manifests/quickstart", cluster.repository.path.display()));
    cluster.start_reconciler().await?;
    tell::line(&format!("denv-reconciler watches it; its API is at {}", cluster.api_url()));

    tell::chapter("Hosts join with one-time tokens, over mutual TLS");
    for host in ["host-a", "host-b"] {
        cluster.start_host(host).await?;
        tell::line(&format!("denvd of {host} dials in"));
    }
    cluster.start_gateway().await?;
    tell::line(&format!("denv-gateway serves at {}", cluster.gateway_url()));
    follow(cluster, "two units to be ready", |view| view.ready == 2 && over(view)).await?;
    command(cluster, &["get", "hosts"]).await?;
    command(cluster, &["get", "units"]).await?;

    tell::chapter("A question goes to the gateway, with an API key");
    let question = "What is the capital of France? Answer in one sentence.";
    tell::line(&format!("asking: {question}"));
    let answer = cluster.application(MODEL)?.ask_streaming(question, 60, tell::piece).await?;
    tell::end_of_answer();
    ensure!(!answer.trim().is_empty(), "the model said nothing");
    Ok(())
}

async fn new_release(cluster: &mut Cluster) -> anyhow::Result<()> {
    tell::chapter("A commit moves the stage to a new release, while a client keeps asking");
    add_release(cluster, "smollm2-r2", "{maxModelLen: 1024, maxConcurrentRequests: 2}")?;
    let traffic = Traffic::start(&cluster.application(MODEL)?, 2, 12);
    move_to(cluster, "smollm2-r1", "smollm2-r2", "Serve with a shorter context").await?;
    follow(cluster, "the new release to succeed", |view| succeeded(view, "smollm2-r2")).await?;
    let (answered, failures) = traffic.stop().await;
    ensure!(failures.is_empty(), "requests failed during the roll: {failures:?}");
    tell::line(&format!("{answered} requests were answered during the roll, and not one failed"));
    Ok(())
}

async fn bad_release(cluster: &mut Cluster) -> anyhow::Result<()> {
    tell::chapter("A commit moves the stage to a release that can't start");
    let flags = "{maxModelLen: 1024, maxConcurrentRequests: 2, flags: [--ctx-sise, \"1024\"]}";
    add_release(cluster, "smollm2-r3", flags)?;
    move_to(cluster, "smollm2-r2", "smollm2-r3", "Tune the context (with a typo in a flag)").await?;
    let view = follow(cluster, "the rollback to end", |view| {
        view.deployment.as_ref().is_some_and(|deployment| deployment.phase == "rolled-back")
            && view.ready == 2
    })
    .await?;
    let held = view.held.context("the stage is held after a rollback")?;
    tell::line(&format!(
        "the stage is held at smollm2-r2; smollm2-r3 is not tried again because: {}",
        held.reason
    ));
    ensure!(held.reason.contains("--ctx-sise"), "the reason names the flag: {}", held.reason);
    command(cluster, &["get", "stages"]).await?;
    Ok(())
}

async fn killed_engine(cluster: &mut Cluster) -> anyhow::Result<()> {
    tell::chapter("An engine is killed");
    let (pid, member) =
        engines_below(&cluster.layout.dir).into_iter().next().context("engines run on this machine")?;
    let traffic = Traffic::start(&cluster.application(MODEL)?, 2, 12);
    kill_process(pid)?;
    tell::line(&format!("SIGKILL to process {pid}, the engine of {member}; a client keeps asking"));
    let view = follow(cluster, "denvd to bring the engine back", |view| {
        view.ready == 2 && view.units.iter().any(|unit| unit.restarts > 0)
    })
    .await?;
    let restarted = view.units.iter().find(|unit| unit.restarts > 0).context("a unit was restarted")?;
    let (answered, failures) = traffic.stop().await;
    ensure!(failures.is_empty(), "requests failed: {failures:?}");
    tell::line(&format!("denvd on {} brought unit {} back", restarted.host, restarted.unit));
    tell::line(&format!(
        "{answered} requests were answered meanwhile, by the other unit too, and not one failed"
    ));
    Ok(())
}

async fn usage(cluster: &Cluster) -> anyhow::Result<()> {
    tell::chapter("Every token was metered once");
    // The gateway's ledger is collected every few seconds.
    denv_tests::until("usage to be collected", PATIENCE, || async {
        let usage = cluster.client()?.usage().await?;
        Ok(usage.iter().any(|row| row.tokens.output > 0).then_some(()))
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    command(cluster, &["usage"]).await
}

async fn end(cluster: &mut Cluster) -> anyhow::Result<()> {
    tell::chapter("A commit asks for no units; all is stopped");
    cluster.repository.edit("service.yaml", "units: {min: 2}", "units: {min: 0}")?;
    cluster.repository.edit("service.yaml", "release: smollm2-r3", "release: smollm2-r2")?;
    cluster.push("Run nothing").await?;
    let awaiting =
        cluster.client()?.source().await?.awaiting.context("what ends every unit waits for a person")?;
    tell::line("that would end every unit, so a person has to approve it");
    command(cluster, &["source", "approve", "main", &awaiting.revision.commit]).await?;
    follow(cluster, "all engines to stop", |view| view.units.is_empty()).await?;
    let gateway = cluster.gateway.as_mut().context("the gateway runs")?.stop(Duration::from_secs(15))?;
    let mut statuses = vec![gateway];
    for host in cluster.hosts.values_mut() {
        statuses.push(host.stop(Duration::from_secs(15))?);
    }
    statuses.push(cluster.reconciler.as_mut().context("the reconciler runs")?.stop(Duration::from_secs(15))?);
    ensure!(statuses.iter().all(|status| *status == Some(0)), "exit statuses: {statuses:?}");
    ensure!(engines_below(&cluster.layout.dir).is_empty(), "an engine was left");
    tell::line("gateway, hosts and reconciler ended with status 0, and no engine is left");
    Ok(())
}

fn add_release(cluster: &mut Cluster, name: &str, config: &str) -> anyhow::Result<()> {
    let software = cluster.repository.file("software.yaml")?.to_owned();
    let start = software.rfind("---").context("software.yaml has several documents")?;
    let mut release = software[start..].replacen("name: smollm2-r1", &format!("name: {name}"), 1);
    let old = release.rfind("config: ").context("the release has a config")?;
    release.truncate(old);
    let text = format!("{release}config: {config}\n");
    cluster.repository.write(&format!("{name}.yaml"), text.trim_start_matches("---\n"))
}

async fn move_to(cluster: &mut Cluster, from: &str, to: &str, message: &str) -> anyhow::Result<()> {
    cluster.repository.edit("service.yaml", &format!("release: {from}\n"), &format!("release: {to}\n"))?;
    tell::line(&format!("git commit -m \"{message}\""));
    cluster.push(message).await
}

fn over(view: &StageView) -> bool {
    view.deployment.as_ref().is_some_and(|deployment| deployment.over)
}

fn succeeded(view: &StageView, release: &str) -> bool {
    let deployed = view.deployment.as_ref().is_some_and(|it| it.succeeded && it.to.as_str() == release);
    deployed && view.ready == 2 && view.units.len() == 2
}

/// Tells events as they come until the stage is as wanted.
async fn follow(
    cluster: &Cluster,
    what: &str,
    wanted: impl Fn(&StageView) -> bool,
) -> anyhow::Result<StageView> {
    let client = cluster.client()?;
    let (began, mut last) = (Instant::now(), seen(cluster));
    loop {
        for event in client.events(last).await? {
            last = event.id;
            if !event.message.starts_with("a join token") {
                tell::event(&event.subject, &event.message);
            }
        }
        remember(cluster, last);
        let view = client.stage(STAGE).await?;
        if wanted(&view) {
            return Ok(view);
        }
        ensure!(began.elapsed() < PATIENCE, "waited in vain for {what}; last seen: {view:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The last event that was told, kept beside the cluster's state.
fn seen(cluster: &Cluster) -> i64 {
    let text = std::fs::read_to_string(cluster.layout.dir.join("told")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn remember(cluster: &Cluster, last: i64) {
    // Telling an event twice is all that can come of it.
    let _ = std::fs::write(cluster.layout.dir.join("told"), last.to_string());
}

/// Runs `denv` as a person would, and shows what it says.
async fn command(cluster: &Cluster, arguments: &[&str]) -> anyhow::Result<()> {
    let denv = denv_tests::programs()?.join("denv");
    let output = tokio::process::Command::new(denv)
        .args(arguments)
        .env("DENV_SERVER", cluster.api_url())
        .env("DENV_TOKEN_FILE", cluster.admin_token_file())
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let trouble = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`denv {}` failed: {trouble}", arguments.join(" "));
    tell::output(&format!("denv {}", arguments.join(" ")), &said);
    Ok(())
}
