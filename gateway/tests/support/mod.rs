//! A whole gateway between a fake control plane and fake hosts, over real sockets and real mutual TLS.

// Each test file uses a part of it; when it breaks, so does the test.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod control_plane;
pub(crate) mod ingress;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use denv_gateway::process::{Gateway, Settings};
use denv_gateway::{Disk, Files};
use denv_schema::launch::HandOver;
use denv_schema::wire::{
    GatewayConfig, MemberRoute, PrefillRoute, Rotation, UnitReport, UnitRoute, UsageRecord,
};
use denv_schema::{Digest, MemberId, StageId, UnitId};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use control_plane::FakeControlPlane;
use ingress::FakeIngress;

pub(crate) const KEY: &str = "sk-denv-test";
pub(crate) const ASK: &str = r#"{"model":"small","messages":[{"role":"user","content":"hello"}]}"#;
pub(crate) const ASK_STREAM: &str = r#"{"model":"small","messages":[{"content":"hello"}],"stream":true}"#;

pub(crate) struct World {
    pub(crate) control_plane: FakeControlPlane,
    pub(crate) hosts: Vec<FakeIngress>,
    pub(crate) state: tempfile::TempDir,
    pub(crate) gateway: Option<Running>,
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

pub(crate) fn stage() -> StageId {
    "chat/prod".parse().unwrap()
}

pub(crate) fn config() -> GatewayConfig {
    serde_json::from_value(serde_json::json!({
        "endpoints": {"public": {"models": [{"name": "small", "stage": "chat/prod"}]}},
        "customers": {"acme": {}},
        "keys": {"acme-1": {"customer": "acme", "hash": Digest::of_bytes(KEY.as_bytes())}},
        "routing": {"chat/prod": {"maxInflightPerUnit": 4}},
    }))
    .unwrap()
}

pub(crate) fn unit(ordinal: u64) -> UnitId {
    UnitId::new(&stage(), ordinal)
}

impl World {
    /// A gateway with one ready unit on each of `hosts` hosts.
    pub(crate) async fn with_units(hosts: usize) -> Self {
        let mut world = World::new(hosts).await;
        world.start(Arc::new(Files)).await;
        world.set_units(&vec![Rotation::In; hosts]);
        world.until_in_rotation(hosts).await;
        world
    }

    /// The same without a gateway.
    pub(crate) async fn new(hosts: usize) -> Self {
        denv_link::install_tls_provider();
        let control_plane = FakeControlPlane::start();
        control_plane.heard.config.send_replace(Some(config()));
        let mut ingresses = Vec::new();
        for host in 0..hosts {
            ingresses.push(FakeIngress::start(&control_plane.heard.authority, &host_name(host)).await);
        }
        World { control_plane, hosts: ingresses, state: tempfile::tempdir().unwrap(), gateway: None }
    }

    pub(crate) async fn start(&mut self, disk: Arc<dyn Disk>) {
        let mut settings =
            Settings::new(self.control_plane.address.to_string(), self.state.path().to_owned());
        settings.disk = disk;
        settings.engine_silence = Duration::from_secs(2);
        self.gateway = Some(start(settings, &self.control_plane).await);
    }

    /// As SIGKILL would: nothing is finished, nothing said.
    pub(crate) async fn kill_gateway(&mut self) {
        let gateway = self.gateway.take().unwrap();
        gateway.task.abort();
        let _ = gateway.task.await;
        // Nothing it reported before is true any more.
        self.control_plane.heard.report.send_replace(None);
    }

    pub(crate) async fn stop_gateway(&mut self) {
        let gateway = self.gateway.take().unwrap();
        gateway.stop.send(()).unwrap();
        gateway.task.await.unwrap();
        self.control_plane.heard.report.send_replace(None);
    }

    /// As many units of two members, each on a host of its own: first the one that reads prompts.
    pub(crate) async fn with_pairs(units: usize, hand_over: HandOver) -> Self {
        let mut world = World::new(2 * units).await;
        world.start(Arc::new(Files)).await;
        let pair = |number: usize| UnitRoute {
            at: world.member(&unit(number as u64), 1, 2 * number + 1),
            prefill: Some(PrefillRoute {
                at: world.member(&unit(number as u64), 0, 2 * number),
                hand_over: hand_over.clone(),
            }),
            unit: unit(number as u64),
            ..world.route(0, Rotation::In)
        };
        world.control_plane.heard.units.send_replace((0..units).map(pair).collect());
        world.until_in_rotation(units).await;
        world
    }

    fn member(&self, unit: &UnitId, number: u32, host: usize) -> MemberRoute {
        MemberRoute {
            host: host_name(host).parse().unwrap(),
            ingress: self.hosts[host].address.to_string(),
            member: MemberId::new(unit, number),
            health: "/health".to_owned(),
        }
    }

    pub(crate) fn route(&self, host: usize, rotation: Rotation) -> UnitRoute {
        let unit = unit(host as u64);
        UnitRoute {
            at: self.member(&unit, 0, host),
            prefill: None,
            unit,
            generation: 1,
            stage: stage(),
            release: "r1".parse().unwrap(),
            model: "small".to_owned(),
            rotation,
        }
    }

    /// One unit on each host from the first on.
    pub(crate) fn set_units(&self, rotations: &[Rotation]) {
        let routes = rotations.iter().enumerate().map(|(host, rotation)| self.route(host, *rotation));
        self.control_plane.heard.units.send_replace(routes.collect());
    }

    pub(crate) async fn until_in_rotation(&self, units: usize) {
        self.until_reported("units in rotation", |reports| {
            reports.iter().filter(|(_, report)| report.in_rotation).count() == units
        })
        .await;
    }

    pub(crate) async fn until_reported(&self, what: &str, holds: impl Fn(&[(UnitId, UnitReport)]) -> bool) {
        let mut reports = self.control_plane.heard.report.subscribe();
        let seen = reports.wait_for(|report| {
            report.as_ref().is_some_and(|report| {
                let units: Vec<_> =
                    report.units.iter().map(|(unit, report)| (unit.clone(), *report)).collect();
                holds(&units)
            })
        });
        let seen = tokio::time::timeout(Duration::from_secs(10), seen).await.map(|seen| seen.map(drop));
        assert!(seen.is_ok(), "never reported: {what}; last: {:?}", self.control_plane.heard.report.borrow());
    }

    pub(crate) async fn records(&self, count: usize) -> Vec<UsageRecord> {
        let heard = &self.control_plane.heard;
        until("usage records", || heard.records.lock().unwrap().len() >= count).await;
        let records: Vec<_> = heard.records.lock().unwrap().values().cloned().collect();
        assert_eq!(records.len(), count, "{records:#?}");
        records
    }

    pub(crate) fn takes_records(&self, takes: bool) {
        self.control_plane.heard.takes.store(takes, Ordering::SeqCst);
    }

    pub(crate) async fn chat(&self, body: &str) -> Answered {
        read(self.begin(body).await).await
    }

    pub(crate) async fn begin(&self, body: &str) -> Response<Incoming> {
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.request("POST", "/v1/chat/completions", &headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        read(self.request("GET", path, &[("authorization", &format!("Bearer {KEY}"))], "").await).await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        request(self.gateway.as_ref().unwrap().address, method, path, headers, body).await
    }

    pub(crate) async fn metric(&self, line_start: &str) -> f64 {
        let text = self.get("/metrics").await.text;
        let line = text.lines().find(|line| line.starts_with(line_start));
        let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no `{line_start}` in {text}"))
    }
}

pub(crate) async fn start(settings: Settings, control_plane: &FakeControlPlane) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gateway = Gateway::start(settings, Some(&control_plane.token())).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(gateway.serve(listener, async {
        let _ = stopped.await;
    }));
    Running { address, stop, task }
}

/// Over a connection of its own, which closes when the answer is dropped.
pub(crate) async fn request(
    gateway: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response<Incoming> {
    let stream = TcpStream::connect(gateway).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "gateway");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    tokio::time::timeout(Duration::from_secs(10), sender.send_request(request)).await.unwrap().unwrap()
}

pub(crate) async fn read(response: Response<Incoming>) -> Answered {
    let (head, body) = response.into_parts();
    let whole = tokio::time::timeout(Duration::from_secs(10), body.collect()).await.unwrap().unwrap();
    let text = String::from_utf8(whole.to_bytes().to_vec()).unwrap();
    Answered { status: head.status.as_u16(), headers: head.headers, text }
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn segments(state: &Path) -> Vec<std::path::PathBuf> {
    let ledgers = std::fs::read_dir(state.join("ledger")).unwrap();
    let files = ledgers.flat_map(|ledger| std::fs::read_dir(ledger.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

fn host_name(host: usize) -> String {
    format!("host-{host}")
}
