use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use denv_schema::MemberId;
use denv_schema::wire::Generation;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::engine::{Body, Engine, LOOK_EVERY, Launch, LaunchError, leader_runs};
use super::procfs;
use crate::journal::EngineRecord;

/// An engine's process and its group, as far as its record does not say.
#[derive(Debug)]
pub(super) struct Process {
    /// None: adopted, so its status goes to another parent.
    child: Option<Child>,
    member: MemberId,
    marks: Marks,
}

/// Variables by which a process that the journal does not know is recognised as started by this denvd.
#[derive(Clone, Debug)]
pub struct Marks {
    /// Tells this denvd from another on the same machine.
    agent: String,
}

const AGENT: &str = "DENV_AGENT";
const MEMBER: &str = "DENV_MEMBER";
const GENERATION: &str = "DENV_GENERATION";
const PORT: &str = "DENV_PORT";

/// Longer than this denvd does not wait for what it cannot kill.
const TAKE_OVER_BOUND: Duration = Duration::from_secs(10);

impl Marks {
    pub fn new(state_dir: &Path) -> Self {
        Marks { agent: state_dir.to_string_lossy().into_owned() }
    }

    /// What tells this denvd's containers from others.
    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    /// Everything that runs outside containers and was started by this denvd.
    fn processes(&self) -> Vec<Marked> {
        procfs::pids().filter_map(|pid| self.read(pid)).collect()
    }

    fn read(&self, pid: i32) -> Option<Marked> {
        let env: BTreeMap<String, String> = procfs::environment(pid).into_iter().collect();
        (env.get(AGENT)? == &self.agent).then_some(())?;
        let stat = procfs::stat(pid).filter(|stat| !stat.ended)?;
        let member = MemberId::from(env.get(MEMBER)?.as_str());
        let (generation, port) = (env.get(GENERATION)?.parse().ok()?, env.get(PORT)?.parse().ok()?);
        Some(Marked { pid, stat, member, generation, port })
    }
}

/// A process with marks.
struct Marked {
    pid: i32,
    stat: procfs::Stat,
    member: MemberId,
    generation: Generation,
    port: u16,
}

pub(super) fn launch(launch: &Launch<'_>) -> Result<Engine, LaunchError> {
    let (program, arguments) = launch.argv.split_first().ok_or(LaunchError::NoProgram)?;
    let found = launch
        .path
        .find(program)
        .ok_or_else(|| LaunchError::NotFound { program: program.clone(), path: launch.path.to_string() })?;
    let log_error = |source| LaunchError::Log { path: launch.log.path().to_owned(), source };
    let (log, log_offset) = launch.log.open().map_err(log_error)?;
    let stderr = log.try_clone().map_err(log_error)?;
    let spawn_error = |source| LaunchError::Spawn { program: program.clone(), source };
    // Whatever can fail is done before there is a process to lose.
    let boot = procfs::boot().map_err(spawn_error)?;
    let mut command = Command::new(&found);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", launch.path.joined())
        // Some engines end without a home; denvd itself may have been started without one.
        .env("HOME", std::env::var_os("HOME").unwrap_or_else(|| launch.dir.into()))
        .env("LANG", std::env::var_os("LANG").unwrap_or_else(|| "C.UTF-8".into()))
        .envs(std::env::var_os("TMPDIR").map(|dir| ("TMPDIR", dir)))
        .envs(&launch.environment.variables)
        .env(AGENT, &launch.marks.agent)
        .env(MEMBER, launch.member.as_str())
        .env(GENERATION, launch.generation.to_string())
        .env(PORT, launch.port.to_string())
        .current_dir(launch.dir)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(stderr);
    let child = command.spawn().map_err(spawn_error)?;
    let pid =
        child.id().and_then(|pid| i32::try_from(pid).ok()).expect("a child that was just started has a pid");
    let record = EngineRecord {
        generation: launch.generation,
        pid,
        // One that ended at once is still a zombie here, so there is always something to read.
        started_ticks: procfs::stat(pid).map_or(0, |stat| stat.started_ticks),
        boot,
        port: launch.port,
        log_offset,
        container: None,
    };
    let (member, marks) = (launch.member.clone(), launch.marks.clone());
    let process = Process { child: Some(child), member, marks };
    Ok(Engine { record, body: Body::Process(Box::new(process)) })
}

/// SIGTERM to the whole group.
pub(super) fn terminate(record: &EngineRecord) {
    signal_group(record.pid, Signal::SIGTERM);
}

/// SIGKILL to the whole group.
pub(super) fn kill(record: &EngineRecord) {
    signal_group(record.pid, Signal::SIGKILL);
}

impl Process {
    /// How the engine ended, once nothing of its group is left: children that outlive their leader would hold
    /// GPUs, so they are killed. May be called again after it was given up.
    pub(super) async fn ended(&mut self, record: &EngineRecord) -> String {
        let how = match &mut self.child {
            Some(child) => match child.wait().await {
                Ok(status) => describe(status),
                Err(error) => format!("ended, and its status cannot be read: {error}"),
            },
            None => {
                while leader_runs(record) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                "ended (its status is unknown: it was started before denvd)".to_owned()
            }
        };
        let marks = &self.marks;
        bury(|| {
            let strays = marks.processes().into_iter();
            let strays =
                strays.filter(|stray| stray.member == self.member && stray.generation == record.generation);
            // Children that made groups of their own are known by their marks.
            let group = group_runs(record.pid).then_some(record.pid);
            strays.map(|stray| stray.stat.group).chain(group).collect()
        })
        .await;
        how
    }
}

/// Kills groups until there are none.
async fn bury(groups: impl Fn() -> Vec<i32>) {
    let mut wait = LOOK_EVERY / 10;
    loop {
        let left = groups();
        if left.is_empty() {
            return;
        }
        for group in left {
            signal_group(group, Signal::SIGKILL);
        }
        tokio::time::sleep(wait).await;
        // One that the kernel cannot end yet (a driver holds it) is not asked in a busy loop.
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

/// Adopts the engines of `known` that run, and ends groups whose leader ended meanwhile, and processes that nobody wrote
/// down. Of those a leader that `is_wanted` is adopted too. All of it is one look: an engine that ends after it was
/// adopted is buried like any other.
pub(super) async fn take_over(
    marks: &Marks,
    boot: &str,
    known: Vec<(MemberId, EngineRecord)>,
    is_wanted: impl Fn(&MemberId, Generation) -> bool,
) -> BTreeMap<MemberId, Engine> {
    let mut adopted: BTreeMap<MemberId, Engine> = BTreeMap::new();
    let mut adopt = |member: MemberId, record: EngineRecord| {
        let process = Process { child: None, member: member.clone(), marks: marks.clone() };
        adopted.insert(member, Engine { record, body: Body::Process(Box::new(process)) });
    };
    let mut kept: BTreeMap<MemberId, Generation> = BTreeMap::new();
    let mut killed: Vec<i32> = Vec::new();
    for (member, record) in known {
        if leader_runs(&record) {
            kept.insert(member.clone(), record.generation);
            adopt(member, record);
        } else if procfs::stat(record.pid).is_none_or(|stat| stat.started_ticks == record.started_ticks) {
            // No other process has the pid, so the group, if there is one, is still this engine's.
            killed.push(record.pid);
        }
    }
    let strays = marks.processes();
    for stray in strays.iter().filter(|stray| stray.stat.group == stray.pid) {
        let (member, generation) = (&stray.member, stray.generation);
        if kept.contains_key(member) || !is_wanted(member, generation) {
            continue;
        }
        kept.insert(member.clone(), generation);
        let record = EngineRecord {
            generation,
            pid: stray.pid,
            started_ticks: stray.stat.started_ticks,
            boot: boot.to_owned(),
            port: stray.port,
            log_offset: 0,
            container: None,
        };
        adopt(member.clone(), record);
    }
    for stray in strays.iter().filter(|stray| kept.get(&stray.member) != Some(&stray.generation)) {
        let (member, generation) = (&stray.member, stray.generation);
        tracing::warn!(%member, generation, pid = stray.pid, "killed a process that was left behind");
        killed.push(stray.stat.group);
    }
    let gone = bury(|| killed.iter().copied().filter(|group| group_runs(*group)).collect());
    if tokio::time::timeout(TAKE_OVER_BOUND, gone).await.is_err() {
        tracing::error!(?killed, "processes that were left behind cannot be killed; they may hold GPUs");
    }
    adopted
}

fn group_runs(group: i32) -> bool {
    if killpg(Pid::from_raw(group), None) == Err(Errno::ESRCH) {
        return false;
    }
    // Zombies count for the kernel but hold nothing.
    procfs::pids().filter_map(procfs::stat).any(|stat| stat.group == group && !stat.ended)
}

fn signal_group(group: i32, signal: Signal) {
    // 0 and 1 would mean denvd's own group and every process.
    if group <= 1 {
        return;
    }
    match killpg(Pid::from_raw(group), signal) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(group, %signal, %error, "cannot signal a process group"),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by {signal}"),
            Err(_) => format!("killed by signal {number}"),
        },
        (None, None) => "ended".to_owned(),
    }
}
