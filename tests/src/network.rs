//! Hosts with networks of their own: each in a network namespace, on one switch in a namespace between them. Nothing
//! leaves these namespaces, and nothing of them is left behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, setns};
use nix::unistd::Uid;

use crate::process::kill_process;

/// What every namespace of a test is called by; what follows is the process that made it.
const PREFIX: &str = "denv-test-";
/// Where everything is that is not on a host.
const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

pub struct Network {
    /// Begins the names of its namespaces.
    name: String,
    hosts: BTreeMap<String, Ipv4Addr>,
    /// Where this thread was before.
    outside: File,
}

impl Network {
    /// Makes a namespace for each host and one between them. From then on this thread is in that between them, with
    /// all that it binds, dials and starts, until the network is dropped.
    pub fn create(hosts: &[&str]) -> anyhow::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !Uid::effective().is_root() {
            bail!("only root may make network namespaces");
        }
        sweep()?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let address =
            |index: usize| Ipv4Addr::from(u32::from(MIDDLE) + 1 + u32::try_from(index).unwrap_or(0));
        let network = Network {
            name: format!("{PREFIX}{}-{number}", std::process::id()),
            hosts: hosts.iter().enumerate().map(|(at, host)| ((*host).to_owned(), address(at))).collect(),
            outside: File::open("/proc/thread-self/ns/net").context("cannot tell this thread's network")?,
        };
        let middle = network.namespace("middle");
        ip(&["netns", "add", &middle])?;
        ip(&["-n", &middle, "link", "set", "lo", "up"])?;
        ip(&["-n", &middle, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", &middle, "address", "add", &format!("{MIDDLE}/24"), "dev", "switch"])?;
        ip(&["-n", &middle, "link", "set", "switch", "up"])?;
        for (host, address) in &network.hosts {
            let own = network.namespace(host);
            ip(&["netns", "add", &own])?;
            ip(&["-n", &own, "link", "set", "lo", "up"])?;
            ip(&[
                "-n", &middle, "link", "add", host, "type", "veth", "peer", "name", "uplink", "netns", &own,
            ])?;
            ip(&["-n", &own, "address", "add", &format!("{address}/24"), "dev", "uplink"])?;
            ip(&["-n", &own, "link", "set", "uplink", "up"])?;
            ip(&["-n", &middle, "link", "set", host, "master", "switch", "up"])?;
        }
        network.enter("middle")?;
        Ok(network)
    }

    /// What the names of its namespaces begin with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where this thread is reached from hosts.
    pub fn middle(&self) -> Ipv4Addr {
        MIDDLE
    }

    pub fn address(&self, host: &str) -> Option<Ipv4Addr> {
        self.hosts.get(host).copied()
    }

    /// Does something on a host, such as starting a process there, if it is one of this network.
    pub fn inside<T>(&self, host: &str, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if !self.hosts.contains_key(host) {
            return act();
        }
        self.enter(host)?;
        let done = act();
        self.enter("middle")?;
        done
    }

    /// Pulls a host's cable: whatever is under way on it hangs.
    pub fn cut(&self, host: &str) -> anyhow::Result<()> {
        ip(&["-n", &self.namespace("middle"), "link", "set", host, "down"])
    }

    pub fn heal(&self, host: &str) -> anyhow::Result<()> {
        ip(&["-n", &self.namespace("middle"), "link", "set", host, "up"])
    }

    fn namespace(&self, place: &str) -> String {
        format!("{}-{place}", self.name)
    }

    fn enter(&self, place: &str) -> anyhow::Result<()> {
        let path = Path::new("/run/netns").join(self.namespace(place));
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter {}", path.display()))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = setns(&self.outside, CloneFlags::CLONE_NEWNET);
        for place in self.hosts.keys().map(String::as_str).chain(["middle"]) {
            let _ = remove(&self.namespace(place));
        }
    }
}

/// Removes what tests left behind whose processes are no more.
fn sweep() -> anyhow::Result<()> {
    for line in asked(&["netns", "list"])?.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Another test may be sweeping too.
            let _ = remove(name);
        }
    }
    Ok(())
}

/// Ends what still runs in a namespace, but for this process, and the namespace.
fn remove(namespace: &str) -> anyhow::Result<()> {
    let own = i32::try_from(std::process::id()).context("pids are positive")?;
    let pids = asked(&["netns", "pids", namespace])?;
    for pid in pids.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid != own) {
        let _ = kill_process(pid);
    }
    ip(&["netns", "delete", namespace])
}

/// Runs `ip` with these arguments: the one that `make test` has set up, or the machine's.
fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    asked(arguments).map(drop)
}

fn asked(arguments: &[&str]) -> anyhow::Result<String> {
    let program = std::env::var_os("DENV_IP").unwrap_or_else(|| OsString::from("ip"));
    let output = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{}`; `make test` sets it up", program.to_string_lossy()))?;
    if !output.status.success() {
        bail!("`ip {}`: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
