//! The demo: from a commit to an answered request, with a real engine and a real model, on this machine.
//!
//! `denv-demo run` tells the whole story and stops everything; `up` leaves it running, `down` stops that.

mod story;
mod tell;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use denv_tests::cluster::{Cluster, Layout};

/// Shows denv at work on this machine, with llama.cpp and a small model.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Where the engine was set up (examples/engines/llama-cpp/setup.sh).
    #[arg(long, default_value = "target/engines/llama-cpp", global = true)]
    engine: PathBuf,
    /// The manifests to begin with.
    #[arg(long, default_value = "examples/manifests/quickstart", global = true)]
    manifests: PathBuf,
    /// Where everything is kept; it is emptied first.
    #[arg(long, default_value = "target/demo", global = true)]
    dir: PathBuf,
}

#[derive(Subcommand)]
enum Verb {
    /// Tell the whole story, then stop everything.
    Run,
    /// Start everything and leave it running.
    Up,
    /// Stop what `up` left running.
    Down,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.verb {
        Verb::Run => run(&arguments).await,
        Verb::Up => up(&arguments).await,
        Verb::Down => down(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell::trouble(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut cluster = create(arguments)?;
    let told = story::tell(&mut cluster).await;
    if told.is_err() {
        tell::trouble(&format!("the processes' logs are in {}", arguments.dir.display()));
        cluster.reconciler.iter().for_each(|process| tell::log(&process.logged()));
    }
    told
}

async fn up(arguments: &Arguments) -> anyhow::Result<()> {
    // What a former `up` left would hold the same folder.
    down(arguments)?;
    let mut cluster = create(arguments)?;
    story::begin(&mut cluster).await?;
    let env = format!(
        "export DENV_SERVER={}\nexport DENV_TOKEN_FILE={}\nexport DENV_GATEWAY={}\nexport DENV_API_KEY={}\n",
        cluster.api_url(),
        cluster.admin_token_file().display(),
        cluster.gateway_url(),
        cluster.key,
    );
    let path = arguments.dir.join("env");
    std::fs::write(&path, env).with_context(|| format!("cannot write {}", path.display()))?;
    let pids = cluster.pids().iter().map(u32::to_string).collect::<Vec<_>>().join("\n");
    std::fs::write(arguments.dir.join("pids"), pids)?;
    tell::what_next(&path, &cluster.repository.path);
    cluster.detach();
    Ok(())
}

fn down(arguments: &Arguments) -> anyhow::Result<()> {
    let pids = std::fs::read_to_string(arguments.dir.join("pids")).unwrap_or_default();
    let dir = arguments.dir.canonicalize().unwrap_or_else(|_| arguments.dir.clone());
    let ours = |pid: i32| {
        // A pid may have been given to a stranger since.
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&*dir.to_string_lossy())
    };
    let mut stopped = 0;
    for pid in pids.lines().filter_map(|line| line.parse().ok()).filter(|pid| ours(*pid)) {
        denv_tests::process::kill_process(pid)?;
        stopped += 1;
    }
    for (pid, _) in denv_tests::process::engines_below(&dir) {
        denv_tests::process::kill_process(pid)?;
        stopped += 1;
    }
    if stopped > 0 {
        tell::line(&format!("stopped {stopped} processes"));
    }
    let _ = std::fs::remove_file(arguments.dir.join("pids"));
    Ok(())
}

fn create(arguments: &Arguments) -> anyhow::Result<Cluster> {
    if arguments.dir.exists() {
        let shown = arguments.dir.display();
        std::fs::remove_dir_all(&arguments.dir).with_context(|| format!("cannot empty {shown}"))?;
    }
    std::fs::create_dir_all(&arguments.dir)?;
    let absolute =
        |path: &Path| path.canonicalize().with_context(|| format!("{} is not there", path.display()));
    let engine = absolute(&arguments.engine).context("set the engine up first: make engine")?;
    let layout = Layout { poll: "15s".to_owned(), ..Layout::with_engine(absolute(&arguments.dir)?, &engine) };
    Cluster::create(layout, &arguments.manifests)
}
