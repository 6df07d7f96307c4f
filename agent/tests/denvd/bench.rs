//! A host in a temporary folder, with a runner and engines that really run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use denv_agent::journal::store::{Disk, JournalFile};
use denv_agent::runner::{MemberView, Runner, Setup};
use denv_agent::runtimes::EnginePath;
use denv_agent::weights::{Access, WeightStore};
use denv_schema::MemberId;
use denv_schema::launch::{Claim, LaunchSpec, Probe};
use denv_schema::quantity::Period;
use denv_schema::wire::{Action, Command, CommandOutcome, Generation, MemberState, Term};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Nothing in these tests takes this long unless it is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        Host { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.state_dir().join("journal.json")
    }

    pub(crate) async fn runner(&self) -> Runner {
        self.runner_on(Arc::new(JournalFile::new(self.journal()))).await
    }

    pub(crate) async fn runner_on(&self, disk: Arc<dyn Disk>) -> Runner {
        let setup = Setup {
            state_dir: self.state_dir(),
            engine_path: EnginePath::new(vec![engine_dir()], std::env::var_os("PATH")),
            weights: Arc::new(WeightStore::new(self.state_dir(), Access::default())),
            images: None,
        };
        Runner::resume(setup, disk).await.unwrap()
    }

    /// The processes that were started for members of this host.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mark = format!("DENV_AGENT={}", self.state_dir().display());
        let pids = std::fs::read_dir("/proc").unwrap();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            let env = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            env.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        })
        .collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

pub(crate) fn engine_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/denvd")
}

pub(crate) const MEMBER: &str = "chat.prod.1.0";

/// A spec that is quick to check.
pub(crate) fn spec(arguments: &[&str]) -> LaunchSpec {
    let argv = ["engine.py", "--port", "${port}"].iter().chain(arguments).map(ToString::to_string).collect();
    LaunchSpec {
        model: "tiny".to_owned(),
        argv,
        env: BTreeMap::from([("TINY_PORT".to_owned(), "${port}".to_owned())]),
        weights: None,
        probe: Some(Probe {
            path: "/health".to_owned(),
            interval: Period::from_millis(50),
            timeout: Period::from_millis(500),
            failures: 3,
        }),
        metrics_path: None,
        start_timeout: Period::from_secs(10),
        stop_timeout: Period::from_secs(5),
        claim: Claim::default(),
        hand_over: None,
        container: None,
    }
}

pub(crate) fn start(term: Term, generation: Generation, spec: LaunchSpec) -> Command {
    Command::new(term, MEMBER.into(), generation, Action::Start(spec))
}

pub(crate) fn stop(term: Term, generation: Generation) -> Command {
    Command::new(term, MEMBER.into(), generation, Action::Stop {})
}

/// Gives a command and waits for its answer.
pub(crate) async fn ask(runner: &Runner, command: Command) -> CommandOutcome {
    let handle = runner.handle();
    let id = command.id.clone();
    let mut answers = handle.answers();
    let mut number = 0;
    while let Some((next, _, _)) = answers.borrow_and_update().after(number) {
        number = next;
    }
    handle.command(command).await;
    let answered = async {
        loop {
            while let Some((next, other, outcome)) = answers.borrow_and_update().after(number) {
                if *other == id {
                    return outcome.clone();
                }
                number = next;
            }
            answers.changed().await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, answered).await.expect("the command is answered")
}

pub(crate) async fn accepted(runner: &Runner, command: Command) {
    assert_eq!(ask(runner, command).await, CommandOutcome::Accepted);
}

/// The member, once `wanted` holds of it.
pub(crate) async fn until(runner: &Runner, wanted: impl Fn(&MemberView) -> bool) -> MemberView {
    let mut view = runner.handle().view();
    let id = MemberId::from(MEMBER);
    let seen = view.wait_for(|view| view.members.get(&id).is_some_and(&wanted));
    match tokio::time::timeout(DEADLINE, seen).await {
        Ok(view) => view.unwrap().members[&id].clone(),
        Err(_) => panic!("it never came to that: {:?}", runner.handle().view().borrow().members.get(&id)),
    }
}

pub(crate) async fn until_state(runner: &Runner, state: MemberState) -> MemberView {
    until(runner, |member| member.report.state == state).await
}

/// Polls until `wanted` holds.
pub(crate) async fn eventually(what: &str, wanted: impl Fn() -> bool) {
    let polled = async {
        while !wanted() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, polled).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What the engine says about itself.
pub(crate) async fn engine(member: &MemberView) -> serde_json::Value {
    let port = member.port.expect("the engine runs");
    let body = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /self HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    });
    serde_json::from_str(&body.await.unwrap()).unwrap()
}

pub(crate) async fn pid(member: &MemberView) -> i32 {
    i32::try_from(engine(member).await["pid"].as_i64().unwrap()).unwrap()
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}
