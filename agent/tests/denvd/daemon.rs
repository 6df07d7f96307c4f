//! The program `denvd` as a whole, against a control plane of the tests' own.

use std::path::PathBuf;
use std::process::Stdio;

use denv_link::{Authority, Role};
use denv_schema::MemberId;
use denv_schema::wire::{CommandOutcome, HostInstruction, HostReport, MemberState};
use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::bench::*;
use crate::peers::*;

/// How to start a denvd.
struct Denvd {
    server: String,
    state_dir: PathBuf,
    token: Option<String>,
    ingress: Option<String>,
    options: Vec<String>,
}

impl Denvd {
    fn new(host: &Host, server: impl ToString) -> Self {
        Denvd {
            server: server.to_string(),
            state_dir: host.state_dir(),
            token: None,
            ingress: None,
            options: vec![],
        }
    }

    fn with_options(self, options: &[&str]) -> Self {
        Denvd { options: options.iter().map(ToString::to_string).collect(), ..self }
    }

    fn with_token(self, token: impl ToString) -> Self {
        Denvd { token: Some(token.to_string()), ..self }
    }

    fn start(&self) -> Child {
        let ingress = self.ingress.clone().unwrap_or_else(|| format!("127.0.0.1:{}", free_port()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_denvd"));
        command
            .args(["run", "--server", &self.server, "--ingress-listen", &ingress])
            .arg("--state-dir")
            .arg(&self.state_dir)
            .arg("--engine-path")
            .arg(engine_dir())
            .args(&self.options)
            .env_remove("DENV_JOIN_TOKEN")
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(token) = &self.token {
            command.env("DENV_JOIN_TOKEN", token);
        }
        command.spawn().unwrap()
    }

    /// What it says when it ends by itself, which must be with an error.
    async fn fails(&self) -> String {
        let output = tokio::time::timeout(DEADLINE, self.start().wait_with_output()).await;
        let output = output.expect("it ends by itself").unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn ends(mut denvd: Child) -> String {
    send(i32::try_from(denvd.id().unwrap()).unwrap(), Signal::SIGTERM);
    let status = tokio::time::timeout(DEADLINE, denvd.wait()).await.unwrap().unwrap();
    assert!(status.success());
    let mut log = String::new();
    denvd.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
    log
}

fn resident_kib(denvd: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", denvd.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn in_state(report: &HostReport, state: MemberState) -> bool {
    report.members.get(&MemberId::from(MEMBER)).is_some_and(|member| member.state == state)
}

#[tokio::test]
async fn a_host_joins_runs_its_queue_and_outlives_everybody() {
    let host = Host::new();
    let authority = authority();
    let mut plane = Fake::start(&authority).await;
    let address = plane.address;
    let denvd = Denvd::new(&host, address).with_token(&plane.token).start();

    let mut session = plane.session().await;
    assert_eq!(session.peer.as_ref().map(ToString::to_string).as_deref(), Some("host `gpu-1`"));
    assert!(session.hello.report.inventory.cpus > 0 && session.hello.ingress.starts_with("127.0.0.1:"));
    session.welcome(3).await;
    let mut counted = spec(&[]);
    counted.env.insert("SECRET".to_owned(), "do-not-log-me".to_owned());
    let command = start(3, 1, counted.clone());
    session.command(command.clone()).await;
    let result = session.result().await;
    assert_eq!((&result.id, result.outcome), (&command.id, CommandOutcome::Accepted));
    session.report(|report| in_state(report, MemberState::Healthy)).await;
    let processes = host.processes();
    let resident_kib = resident_kib(&denvd);
    assert!(resident_kib <= 30 << 10, "denvd takes {resident_kib} KiB");

    // Delivered again, in a later term too: answered again, and nothing else.
    session.command(command.clone()).await;
    assert_eq!(session.result().await.outcome, CommandOutcome::Accepted);
    session.command(start(3, 1, spec(&["--stubborn"]))).await;
    assert!(matches!(session.result().await.outcome, CommandOutcome::Refused { .. }));
    session.command(stop(2, 1)).await;
    assert!(matches!(session.result().await.outcome, CommandOutcome::Refused { .. }));

    // The control plane dies and comes back: an answer that it has not taken comes again.
    plane.die().await;
    drop(session);
    let mut plane = Fake::start_on(&authority, TcpListener::bind(address).await.unwrap()).await;
    let mut session = plane.session().await;
    assert!(in_state(&session.hello.report, MemberState::Healthy));
    session.welcome(3).await;
    let untaken = session.result().await.id;
    session.instruct(HostInstruction::ResultTaken { id: untaken }).await;

    // denvd ends and starts again, without its token: the engine is the same.
    let log = ends(denvd).await;
    assert!(!log.contains("do-not-log-me") && !log.contains(SECRET), "{log}");
    assert_eq!(host.processes(), processes);
    let mut denvd = Denvd::new(&host, address).start();
    let session = plane.session().await;
    assert!(in_state(&session.hello.report, MemberState::Healthy));
    assert_eq!(host.processes(), processes);
    // And when it is killed.
    denvd.kill().await.unwrap();
    let denvd = Denvd::new(&host, address).start();
    let mut session = plane.session().await;
    assert!(in_state(&session.hello.report, MemberState::Healthy));
    assert_eq!(host.processes(), processes);
    session.welcome(3).await;
    session.command(stop(3, 1)).await;
    assert_eq!(session.result().await.outcome, CommandOutcome::Accepted);
    session.report(|report| in_state(report, MemberState::Stopped)).await;
    assert_eq!(host.processes(), Vec::<i32>::new());
    ends(denvd).await;
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_and_changes_nothing_else() {
    let host = Host::new();
    let mut plane = Fake::start(&authority()).await;
    let denvd = Denvd::new(&host, plane.address).with_token(&plane.token).start();
    let mut session = plane.session().await;
    let clock = Timestamp::now() + SignedDuration::from_mins(10);
    session.instruct(HostInstruction::Welcome { term: 1, clock }).await;
    let report = session.report(|report| !report.problems.is_empty()).await;
    assert!(report.problems[0].contains("behind the control plane's; set it (NTP)"), "{:?}", report.problems);
    // Set right, it is a problem no more.
    session.welcome(1).await;
    session.report(|report| report.problems.is_empty()).await;
    ends(denvd).await;
}

#[tokio::test]
async fn a_host_says_where_it_stands_and_that_it_goes_away() {
    let host = Host::new();
    let mut plane = Fake::start(&authority()).await;
    let notice = host.state_dir().join("notice");
    let options =
        ["--domain", "rack-1", "--failure-domain", "row-a", "--reclaim-notice", notice.to_str().unwrap()];
    let denvd = Denvd::new(&host, plane.address).with_token(&plane.token).with_options(&options).start();
    let mut session = plane.session().await;
    let report = &session.hello.report;
    let place = |name: &Option<denv_schema::Name>| name.as_ref().map(ToString::to_string);
    let inventory = &report.inventory;
    assert_eq!(
        place(&inventory.domain).zip(place(&inventory.failure_domain)),
        Some(("rack-1".to_owned(), "row-a".to_owned()))
    );
    assert_eq!(report.reclaim, None);
    session.welcome(1).await;
    std::fs::write(&notice, "2027-01-01T00:02:00Z").unwrap();
    let report = session.report(|report| report.reclaim.is_some()).await;
    assert_eq!(report.reclaim, Some("2027-01-01T00:02:00Z".parse().unwrap()));
    ends(denvd).await;
}

#[tokio::test]
async fn a_host_waits_for_a_control_plane_that_is_not_there_yet() {
    let host = Host::new();
    let authority = authority();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let token = denv_link::JoinToken { secret: SECRET.to_owned(), authority: authority.fingerprint() };
    let denvd = Denvd::new(&host, address).with_token(token).start();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let mut plane = Fake::start_on(&authority, TcpListener::bind(address).await.unwrap()).await;
    plane.session().await;
    ends(denvd).await;
}

#[tokio::test]
async fn tokens_that_do_not_fit_end_it_with_a_remedy() {
    let host = Host::new();
    let plane = Fake::start(&authority()).await;
    let denvd = || Denvd::new(&host, plane.address);
    let none = denvd().fails().await;
    assert!(none.contains("has not joined") && none.contains("denv host token NAME"), "{none}");
    let malformed = denvd().with_token("hello").fails().await;
    assert!(malformed.contains("not a join token") && !malformed.contains("hello"), "{malformed}");

    let mut token = plane.token.clone();
    token.secret = "wrong".to_owned();
    let wrong = denvd().with_token(&token).fails().await;
    assert!(wrong.contains("the control plane refused") && wrong.contains("get a new one"), "{wrong}");
    assert!(!wrong.contains("wrong."), "{wrong}");

    let elsewhere = denv_link::JoinToken { authority: authority().fingerprint(), ..plane.token.clone() };
    let elsewhere = denvd().with_token(&elsewhere).fails().await;
    assert!(elsewhere.contains("is not the denv control plane"), "{elsewhere}");
}

/// Puts a certificate with this life into the host's state folder.
fn keep_certificate(host: &Host, authority: &Authority, role: Role, began: Timestamp) {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let identity = denv_link::Identity::new(&denv_link::identity::tenant(), role, &"gpu-1".parse().unwrap());
    let certificate = authority.sign(&request, &identity, began, HOUR).unwrap();
    let chain = format!("{certificate}{}", authority.certificate_pem());
    let dir = host.state_dir().join("credentials");
    denv_link::Credentials::save(&dir, &chain, &key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn a_certificate_that_ended_needs_a_token() {
    let host = Host::new();
    let authority = authority();
    let mut plane = Fake::start(&authority).await;
    keep_certificate(&host, &authority, Role::Host, Timestamp::now() - SignedDuration::from_hours(3));
    let ended = Denvd::new(&host, plane.address).fails().await;
    assert!(ended.contains("ended at") && ended.contains("denv host token NAME"), "{ended}");
    let denvd = Denvd::new(&host, plane.address).with_token(&plane.token).start();
    plane.session().await;
    ends(denvd).await;

    keep_certificate(&host, &authority, Role::Gateway, Timestamp::now());
    let not_a_host = Denvd::new(&host, plane.address).fails().await;
    assert!(not_a_host.contains("that of a gateway"), "{not_a_host}");
}

#[tokio::test]
async fn what_is_wrong_with_the_machine_is_said() {
    let host = Host::new();
    let plane = Fake::start(&authority()).await;
    let denvd = || Denvd::new(&host, plane.address).with_token(&plane.token);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = Denvd { ingress: Some(taken.local_addr().unwrap().to_string()), ..denvd() }.fails().await;
    assert!(in_use.contains("cannot listen on") && in_use.contains("--ingress-listen"), "{in_use}");

    let file = host.state_dir().join("file");
    std::fs::write(&file, "").unwrap();
    let unwritable = Denvd { state_dir: file.join("below"), ..denvd() }.fails().await;
    assert!(
        unwritable.contains("cannot write the state folder") && unwritable.contains("--state-dir"),
        "{unwritable}"
    );

    std::fs::write(host.journal(), "{\"term\": 1, \"mem").unwrap();
    let damaged = denvd().fails().await;
    assert!(damaged.contains("journal.json` is damaged"), "{damaged}");
    std::fs::remove_file(host.journal()).unwrap();

    let first = denvd().start();
    eventually("the first one claims the folder", || host.state_dir().join("credentials").exists()).await;
    let second = denvd().fails().await;
    assert!(second.contains("another denvd uses"), "{second}");
    ends(first).await;
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_ends_and_the_next_dial_uses_it() {
    let host = Host::new();
    let authority = authority();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let life = std::time::Duration::from_secs(3);
    let began = std::time::Instant::now();
    let mut plane = Fake::signing_for(&authority, listener, life).await;
    let address = plane.address;
    let denvd = Denvd::new(&host, address).with_token(&plane.token).start();
    let session = plane.session().await;
    let dir = host.state_dir().join("credentials");
    let ends_at = || denv_link::Credentials::load(&dir).unwrap().unwrap().validity().unwrap().1;
    eventually("it is renewed", || ends_at() > Timestamp::now() + SignedDuration::from_mins(30)).await;
    assert!(began.elapsed() < life + std::time::Duration::from_secs(1));
    tokio::time::sleep((life + std::time::Duration::from_secs(1)).saturating_sub(began.elapsed())).await;
    plane.die().await;
    drop(session);
    let mut plane = Fake::start_on(&authority, TcpListener::bind(address).await.unwrap()).await;
    plane.session().await;
    ends(denvd).await;
}
