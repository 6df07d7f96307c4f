//! A child process with its log, killed with this one's interest in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, SysconfVar, sysconf};

#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pub log: PathBuf,
    /// Leave it running when this value is dropped.
    detached: bool,
}

impl Process {
    /// Starts `program` with its output appended to `log`.
    pub fn start(name: &str, program: &Path, arguments: &[String], log: &Path) -> anyhow::Result<Self> {
        let file = fs::OpenOptions::new().create(true).append(true).open(log);
        let file = file.with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned()))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("a log can be shared")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Process { name: name.to_owned(), child, log: log.to_owned(), detached: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn detach(&mut self) {
        self.detached = true;
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL, as a crash would.
    pub fn crash(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// SIGSTOP: its connections stay open and nothing comes out of them, as in a partition.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("pids are positive")?);
        kill(pid, signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }

    /// SIGTERM, and the exit status if it ends in time.
    pub fn stop(&mut self, patience: Duration) -> anyhow::Result<Option<i32>> {
        // It may have ended by itself, which is as good.
        let _ = self.signal(Signal::SIGTERM);
        let began = Instant::now();
        while began.elapsed() < patience {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.crash()?;
        Ok(None)
    }

    /// What it has logged.
    pub fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory in bytes.
    pub fn resident_memory(&self) -> anyhow::Result<u64> {
        resident_memory(self.pid())
    }

    /// The processor time it has used, of all its threads.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).context("the process is gone")?;
        // The name before may hold anything; user and system time are the 12th and 13th field after it.
        let (_, fields) = stat.rsplit_once(')').context("no name")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<_, _>>().context("times are numbers")?;
        let a_second = sysconf(SysconfVar::CLK_TCK)?.and_then(|ticks| u64::try_from(ticks).ok());
        let a_second = a_second.context("a second has ticks")?;
        Ok(Duration::from_secs(ticks) / u32::try_from(a_second)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.detached {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Resident memory of a process in bytes.
pub fn resident_memory(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().context("VmRSS is a number")?;
    Ok(kilobytes * 1024)
}

/// Engines that denvd processes with state below `dir` have started: they outlive denvd on purpose.
pub fn engines_below(dir: &Path) -> Vec<(i32, String)> {
    let marker = format!("DENV_AGENT={}", dir.display());
    let mut engines = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        let variables: Vec<&str> = environment.split('\0').collect();
        if variables.iter().any(|variable| variable.starts_with(&marker)) {
            let member = variables.iter().find_map(|variable| variable.strip_prefix("DENV_MEMBER="));
            engines.push((pid, member.unwrap_or_default().to_owned()));
        }
    }
    engines
}

/// The port that an engine was told to serve on.
pub fn engine_port(pid: i32) -> anyhow::Result<u16> {
    let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).context("the engine is gone")?;
    let mut arguments = arguments.split('\0').skip_while(|argument| *argument != "--port");
    arguments.nth(1).context("the engine has no --port")?.parse().context("a port is a number")
}

/// SIGKILL to an engine and all that it started: vLLM's workers outlive it, and write over what they could be told by.
pub fn kill_engine(pid: i32) -> anyhow::Result<()> {
    killpg(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("cannot kill the engine {pid}"))
}

/// SIGKILL to a process that is not a child of this one.
pub fn kill_process(pid: i32) -> anyhow::Result<()> {
    kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("cannot kill process {pid}"))
}
