//! Containers of engines: made, ended, adopted. It owns how podman is told of them; it refuses to know of images.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use denv_schema::wire::Generation;
use denv_schema::{Digest, MemberId};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde::Deserialize;

use super::mounts::mounts;
use super::{Podman, PodmanError, SHORT, cdi};
use crate::journal::EngineRecord;
use crate::runtimes::engine::{Body, Engine, LOOK_EVERY, Launch, LaunchError, Room, leader_runs};
use crate::runtimes::process::Marks;
use crate::runtimes::procfs;

/// Why there is no container.
#[derive(Debug, thiserror::Error)]
pub enum ContainerFailure {
    #[error(
        "the path `{0}` cannot be mounted, since it holds a comma, a quote or a line break; choose another"
    )]
    Path(PathBuf),
    #[error("the variable `{0}` of the engine would steer podman itself; give it its value, not a reference")]
    Steers(String),
    #[error("the folder `{path}` cannot be made: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("there is no program `{0}` in the image")]
    NoProgram(String),
    #[error("{said}")]
    Refused { said: String },
    #[error(transparent)]
    Podman(#[from] PodmanError),
}

impl ContainerFailure {
    pub(in crate::runtimes) fn is_permanent(&self) -> bool {
        match self {
            ContainerFailure::Path(_) | ContainerFailure::Steers(_) | ContainerFailure::NoProgram(_) => true,
            ContainerFailure::Folder { .. }
            | ContainerFailure::Refused { .. }
            | ContainerFailure::Podman(_) => false,
        }
    }
}

/// Making a container's file system of an image's layers takes no longer.
const START: Duration = Duration::from_secs(180);
/// By this variable of podman's own a start that a denvd before has not seen the end of is known.
const STARTS: &str = "DENV_STARTS_FOR";
/// So long it may go on.
const STARTS_BOUND: Duration = Duration::from_secs(60);
/// What catatonit, podman's first process, says and ends.
const NO_PROGRAM: &str = "failed to exec pid1";
/// What network cards of this kind are used by.
const INFINIBAND: &str = "/dev/infiniband";

/// An engine's container, as far as its record does not say.
pub(in crate::runtimes) struct Contained {
    /// None: adopted, and podman is not there any more.
    podman: Option<Podman>,
    /// Once the engine has ended. It is gone on with where it was, whoever gave up waiting for it meanwhile.
    burial: Option<Burial>,
}

type Burial = Pin<Box<dyn Future<Output = String> + Send>>;

impl fmt::Debug for Contained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contained").field("podman", &self.podman).finish_non_exhaustive()
    }
}

/// By these a container is known as a member's.
const AGENT: &str = "dev.denv.agent";
const MEMBER: &str = "dev.denv.member";
const GENERATION: &str = "dev.denv.generation";
const PORT: &str = "dev.denv.port";

pub(in crate::runtimes) async fn launch(launch: &Launch<'_>, room: &Room<'_>) -> Result<Engine, LaunchError> {
    let (program, arguments) = launch.argv.split_first().ok_or(LaunchError::NoProgram)?;
    let name = name(launch);
    let log_error = |source| LaunchError::Log { path: launch.log.path().to_owned(), source };
    let boot = procfs::boot().map_err(log_error)?;
    let mut run = room.podman.command(["run", "--detach", "--name", &name]);
    run.args(SETTINGS).env(STARTS, launch.marks.agent()).process_group(0);
    for (label, value) in [
        (AGENT, launch.marks.agent()),
        (MEMBER, launch.member.as_str()),
        (GENERATION, &launch.generation.to_string()),
        (PORT, &launch.port.to_string()),
    ] {
        run.arg("--label").arg(format!("{label}={value}"));
    }
    if room.accelerated {
        run.args(accelerators());
    }
    for mount in mounts(room)? {
        run.arg("--mount").arg(mount);
    }
    let (variables, inherited) = variables(launch)?;
    run.args(variables).envs(inherited);
    let entrypoint = serde_json::Value::from(vec![program.as_str()]).to_string();
    run.arg("--entrypoint").arg(entrypoint).arg(&room.container.image).args(arguments);

    let (log, log_offset) = launch.log.open().map_err(log_error)?;
    run.stderr(log.try_clone().map_err(log_error)?).stdout(log);
    let record = |pid| EngineRecord {
        generation: launch.generation,
        pid,
        started_ticks: procfs::stat(pid).map_or(0, |stat| stat.started_ticks),
        boot: boot.clone(),
        port: launch.port,
        log_offset,
        container: Some(name.clone()),
    };
    let cannot_run = |source| ContainerFailure::Podman(room.podman.cannot_run(source));
    let mut child = run.spawn().map_err(cannot_run)?;
    let slow = || PodmanError::Slow { verb: "run".to_owned(), seconds: START.as_secs() };
    let status = match tokio::time::timeout(START, child.wait()).await {
        Ok(status) => status.map_err(cannot_run)?,
        Err(_) => {
            let _ = child.kill().await;
            return undone(ContainerFailure::Podman(slow()), room.podman, record(0)).await;
        }
    };
    if !status.success() {
        let said = launch.log.tail(log_offset, &launch.environment.secrets);
        return undone(ContainerFailure::Refused { said }, room.podman, record(0)).await;
    }
    let pid = match room.podman.call(["inspect", "--format", "{{.State.Pid}}", &name], SHORT).await {
        Ok(pid) => pid.trim().parse().unwrap_or(0),
        Err(error) => return undone(ContainerFailure::Podman(error), room.podman, record(0)).await,
    };
    if pid == 0 && launch.log.tail(log_offset, &[]).contains(NO_PROGRAM) {
        return undone(ContainerFailure::NoProgram(program.clone()), room.podman, record(0)).await;
    }
    Ok(engine(record(pid), Some(room.podman.clone())))
}

fn engine(record: EngineRecord, podman: Option<Podman>) -> Engine {
    Engine { record, body: Body::Container(Contained { podman, burial: None }) }
}

/// Nothing was started, once what there may be of it is gone. While that can't be had, it is an engine that is to be buried.
async fn undone(
    failure: ContainerFailure,
    podman: &Podman,
    record: EngineRecord,
) -> Result<Engine, LaunchError> {
    let name = record.container.as_deref().unwrap_or_default();
    if remove(podman, name).await {
        return Err(failure.into());
    }
    tracing::error!(container = name, "not started, and not removed yet: {failure}");
    Ok(engine(record, Some(podman.clone())))
}

/// Engines say whether they are well by the probe, write to denvd's log, wait for SIGTERM behind a first process that
/// collects orphans, and use as much of the machine as engines outside of containers.
const SETTINGS: [&str; 14] = [
    "--replace",
    "--pull=never",
    "--init",
    "--log-driver=passthrough",
    "--network=host",
    "--ipc=host",
    "--pids-limit=-1",
    "--security-opt=label=disable",
    "--no-healthcheck",
    "--systemd=false",
    "--sdnotify=ignore",
    "--http-proxy=false",
    "--env-host=false",
    "--restart=no",
];

/// Told apart from those of another denvd on the same machine.
fn name(launch: &Launch<'_>) -> String {
    let agent = Digest::of_bytes(launch.marks.agent().as_bytes()).short();
    let agent = agent.rsplit(':').next().unwrap_or_default().to_owned();
    format!("denv-{}-{}-{agent}", launch.member, launch.generation)
}

/// All of the host's, so that an accelerator has the same number inside and outside, and engines of one host can hand over
/// directly. Which ones are the member's is told by its variables, as it is outside of containers.
fn accelerators() -> Vec<String> {
    let mut flags = vec![format!("--device={}=all", cdi::ACCELERATORS)];
    if Path::new(INFINIBAND).exists() {
        let card = format!("--device={INFINIBAND}");
        flags.extend([card, "--cap-add=IPC_LOCK".to_owned(), "--ulimit=memlock=-1:-1".to_owned()]);
    }
    flags
}

/// Flags that name the engine's variables, and the values that podman takes from its own environment: an argument could be
/// read by anybody on the host.
type Variables = (Vec<String>, BTreeMap<String, String>);

fn variables(launch: &Launch<'_>) -> Result<Variables, ContainerFailure> {
    let (mut flags, mut inherited) = (Vec::new(), BTreeMap::new());
    for (name, value) in &launch.environment.variables {
        flags.push("--env".to_owned());
        if !steers(name) {
            flags.push(name.clone());
            inherited.insert(name.clone(), value.clone());
        } else if launch.environment.references.contains(name) {
            return Err(ContainerFailure::Steers(name.clone()));
        } else {
            flags.push(format!("{name}={value}"));
        }
    }
    Ok((flags, inherited))
}

/// Whether podman, or what it starts to make a container, heeds this variable itself.
fn steers(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "PATH",
        "HOME",
        "USER",
        "TMPDIR",
        "NOTIFY_SOCKET",
        "DBUS_SESSION_BUS_ADDRESS",
        "GODEBUG",
        "GOGC",
        "GOMAXPROCS",
        "GOMEMLIMIT",
    ];
    const PREFIXES: [&str; 7] = ["LD_", "XDG_", "CONTAINER", "PODMAN", "STORAGE_", "REGISTRY_", "_"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// SIGTERM to the first process, which passes it on.
pub(in crate::runtimes) fn terminate(record: &EngineRecord) {
    signal(record, Signal::SIGTERM);
}

/// SIGKILL to the first process: the kernel ends all others of the container with it.
pub(in crate::runtimes) fn kill(record: &EngineRecord) {
    signal(record, Signal::SIGKILL);
}

fn signal(record: &EngineRecord, signal: Signal) {
    if record.pid <= 1 || !leader_runs(record) {
        return;
    }
    if let Err(error) = signal::kill(Pid::from_raw(record.pid), signal) {
        tracing::warn!(pid = record.pid, %signal, %error, "cannot signal a container's first process");
    }
}

impl Contained {
    /// How the engine ended. Its container is gone then. May be called again after it was given up.
    pub(in crate::runtimes) async fn ended(&mut self, record: &EngineRecord) -> String {
        while leader_runs(record) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (Some(podman), Some(name)) = (&self.podman, &record.container) else {
            return "ended (its status is unknown: podman is not there any more)".to_owned();
        };
        let burial = self.burial.get_or_insert_with(|| Box::pin(bury(podman.clone(), name.clone())));
        let how = burial.await;
        self.burial = None;
        how
    }
}

/// How the engine ended, once podman has nothing of it any more: what it has may still run.
async fn bury(podman: Podman, name: String) -> String {
    let how = how_it_ended(&podman, &name).await.unwrap_or_else(|error| {
        tracing::warn!(container = name, "cannot tell how it ended: {error}");
        "ended (podman does not know how)".to_owned()
    });
    let mut wait = LOOK_EVERY;
    while !remove(&podman, &name).await {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(SHORT);
    }
    how
}

async fn how_it_ended(podman: &Podman, name: &str) -> Result<String, PodmanError> {
    // What watches over the container writes its status down a moment after its end.
    podman.call(["wait", name], SHORT).await?;
    let state =
        podman.call(["inspect", "--format", "{{.State.ExitCode}} {{.State.OOMKilled}}", name], SHORT).await?;
    let (code, out_of_memory) = state.trim().split_once(' ').unwrap_or((state.trim(), ""));
    Ok(match (out_of_memory, code.parse::<i32>()) {
        ("true", _) => "killed, since its memory was at an end".to_owned(),
        (_, Ok(code)) => match Signal::try_from(code - 128) {
            Ok(signal) if code > 128 => format!("exited with status {code}, as after {signal}"),
            _ => format!("exited with status {code}"),
        },
        (_, Err(_)) => "ended".to_owned(),
    })
}

/// Whether it is gone, whatever ran in it.
async fn remove(podman: &Podman, name: &str) -> bool {
    let removed = podman.call(["rm", "--force", "--ignore", "--time=0", name], SHORT).await;
    if let Err(error) = &removed {
        tracing::warn!(container = name, "cannot remove a container: {error}");
    }
    removed.is_ok()
}

/// A container as `podman ps` tells of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    names: Vec<String>,
    labels: Option<BTreeMap<String, String>>,
    state: String,
    #[serde(default)]
    pid: i32,
}

impl Listed {
    fn member(&self) -> Option<(MemberId, Generation, u16)> {
        let label = |name| self.labels.as_ref()?.get(name);
        let member = MemberId::from(label(MEMBER)?.as_str());
        Some((member, label(GENERATION)?.parse().ok()?, label(PORT)?.parse().ok()?))
    }
}

/// Adopts the containers of `known` that run, and one that `is_wanted` though nobody wrote it down; removes all others of
/// this denvd.
pub(in crate::runtimes) async fn take_over(
    podman: Option<&Podman>,
    marks: &Marks,
    boot: &str,
    known: Vec<(MemberId, EngineRecord)>,
    is_wanted: impl Fn(&MemberId, Generation) -> bool,
) -> BTreeMap<MemberId, Engine> {
    let adopt = |record| engine(record, podman.cloned());
    let runs = known.into_iter().filter(|(_, record)| leader_runs(record));
    let mut adopted: BTreeMap<MemberId, Engine> =
        runs.map(|(member, record)| (member, adopt(record))).collect();
    let Some(podman) = podman else { return adopted };
    starts_to_end(marks).await;
    let listed = match list(podman, marks).await {
        Ok(listed) => listed,
        Err(error) => {
            tracing::error!(
                "containers that were left behind can't be looked for, and may hold GPUs: {error}"
            );
            return adopted;
        }
    };
    for container in listed {
        let Some(name) = container.names.first() else { continue };
        if adopted.values().any(|engine| engine.record.container.as_ref() == Some(name)) {
            continue;
        }
        let wanted = container.member().filter(|(member, generation, _)| {
            container.state == "running" && !adopted.contains_key(member) && is_wanted(member, *generation)
        });
        let running = procfs::stat(container.pid).filter(|stat| !stat.ended);
        match (wanted, running) {
            (Some((member, generation, port)), Some(stat)) => {
                let record = EngineRecord {
                    generation,
                    pid: container.pid,
                    started_ticks: stat.started_ticks,
                    boot: boot.to_owned(),
                    port,
                    log_offset: 0,
                    container: Some(name.clone()),
                };
                adopted.insert(member, adopt(record));
            }
            _ => {
                tracing::warn!(container = name, "removed a container that was left behind");
                remove(podman, name).await;
            }
        }
    }
    adopted
}

/// A container that is still being made is in no list yet.
async fn starts_to_end(marks: &Marks) {
    let mark = (STARTS.to_owned(), marks.agent().to_owned());
    let is_one = |pid: &i32| {
        procfs::environment(*pid).contains(&mark) && procfs::stat(*pid).is_some_and(|stat| !stat.ended)
    };
    let starts = || procfs::pids().filter(is_one).collect::<Vec<i32>>();
    let ended = async {
        while !starts().is_empty() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(STARTS_BOUND, ended).await.is_err() {
        for pid in starts() {
            tracing::warn!(pid, "killed podman, which still made a container for a denvd before");
            // It may have ended meanwhile.
            let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

async fn list(podman: &Podman, marks: &Marks) -> Result<Vec<Listed>, PodmanError> {
    let filter = format!("label={AGENT}={}", marks.agent());
    let text = podman.call(["ps", "--all", "--format", "json", "--filter", &filter], SHORT).await?;
    serde_json::from_str(&text).map_err(|error| PodmanError::Failed {
        said: format!("its list of containers can't be read: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_podman_heeds_is_not_set_for_it() {
        assert!(["PATH", "LD_PRELOAD", "CONTAINERS_CONF", "HOME"].into_iter().all(steers));
        assert!(!["HF_TOKEN", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "VLLM_X"].into_iter().any(steers));
    }
}
