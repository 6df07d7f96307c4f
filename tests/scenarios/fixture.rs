//! A cluster with the simulated engine, ready to serve.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use denv_tests::cluster::{Cluster, Layout};
use denv_tests::process::{engine_port, engines_below};
use denv_tests::traffic::Application;

pub const STAGE: &str = "chat/prod";
/// Longer than anything here takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The engine, its recipe, and the releases `r1` and `r2`.
const SOFTWARE: &str = include_str!("../manifests/simulated.yaml");

/// A cluster in a folder of its own. When a test fails, what every process logged is shown.
pub struct Fixture {
    cluster: Cluster,
    _dir: tempfile::TempDir,
}

impl Deref for Fixture {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.cluster.logs());
        }
    }
}

impl Fixture {
    /// The quickstart with the simulated engine: release `r1` desired, `r2` written; nothing runs.
    pub fn create() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            dir: dir.path().join("cluster"),
            engine_path: denv_tests::programs().unwrap(),
            weights_dir: None,
            poll: "1h".to_owned(),
            reconciler_flags: Vec::new(),
        };
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manifests/quickstart");
        let mut cluster = Cluster::create(layout, &manifests).unwrap();
        let repository = &mut cluster.repository;
        repository.write("software.yaml", SOFTWARE).unwrap();
        repository.edit("service.yaml", "release: smollm2-r1", "release: r1").unwrap();
        repository.edit("service.yaml", "bake: 3s", "bake: 500ms").unwrap();
        repository.edit("service.yaml", "lostAfter: 30s", "lostAfter: 15s").unwrap();
        repository.commit("Use the simulated engine").unwrap();
        Fixture { cluster, _dir: dir }
    }

    /// The same, running, with two units ready.
    pub async fn start() -> Self {
        let mut fixture = Fixture::create();
        fixture.cluster.start(&["host-a", "host-b"]).await.unwrap();
        fixture.ready("r1").await;
        fixture
    }

    pub fn write_release(&mut self, name: &str, flags: &[&str]) {
        let flags = flags.iter().map(|flag| format!("'{flag}'")).collect::<Vec<_>>().join(", ");
        let text = format!(
            "apiVersion: denv.dev/v1
kind: Release
metadata: {{name: {name}}}
spec:
  model: {{name: m}}
  engine: simulated
  recipe: simulated
  topology: {{mode: aggregated, replica: {{cpuSlots: 1}}}}
  config: {{flags: [{flags}]}}
"
        );
        self.repository.write(&format!("release-{name}.yaml"), &text).unwrap();
    }

    /// Points the stage at another release, as a commit.
    pub async fn release(&mut self, from: &str, to: &str) {
        self.repository
            .edit("service.yaml", &format!("release: {from}\n"), &format!("release: {to}\n"))
            .unwrap();
        self.push(&format!("Move to {to}")).await.unwrap();
    }

    /// Waits until the stage runs `release` and nothing else.
    pub async fn ready(&self, release: &str) {
        self.ready_within(PATIENCE, release).await;
    }

    pub async fn ready_within(&self, patience: Duration, release: &str) {
        self.stage_until(STAGE, &format!("two ready units of {release}"), patience, |view| {
            let of_release =
                view.units.iter().all(|unit| unit.release.as_str() == release && unit.status == "ready");
            let is_good = view.good.as_ref().is_some_and(|good| good.as_str() == release);
            let is_over = view.deployment.as_ref().is_none_or(|it| it.over);
            of_release && view.units.len() == 2 && is_good && is_over
        })
        .await
        .unwrap();
    }

    /// The quickstart with a release `first`, whose engines have `flags`, and with edits of the service; running.
    pub async fn start_with(flags: &[&str], edits: &[(&str, &str)]) -> Self {
        let mut fixture = Fixture::create();
        fixture.write_release("first", flags);
        fixture.repository.edit("service.yaml", "release: r1\n", "release: first\n").unwrap();
        for (from, to) in edits {
            fixture.repository.edit("service.yaml", from, to).unwrap();
        }
        fixture.repository.commit("Begin otherwise").unwrap();
        fixture.cluster.start(&["host-a", "host-b"]).await.unwrap();
        fixture.ready("first").await;
        fixture
    }

    /// The sum of a gateway's figure over its labels.
    pub async fn gateway_figure(&self, name: &str) -> f64 {
        let text =
            reqwest::get(format!("{}/metrics", self.gateway_url())).await.unwrap().text().await.unwrap();
        sum_of(&text, name)
    }

    /// How many requests engines work on, by their own word.
    pub async fn engines_running(&self) -> f64 {
        self.running_by_engine().await.iter().sum()
    }

    /// How many requests each engine works on, by its own word.
    pub async fn running_by_engine(&self) -> Vec<f64> {
        let mut running = Vec::new();
        for (pid, _) in engines_below(&self.layout.dir) {
            let url = format!("http://127.0.0.1:{}/metrics", engine_port(pid).unwrap());
            let text = reqwest::get(url).await.unwrap().text().await.unwrap();
            running.push(sum_of(&text, "vllm:num_requests_running"));
        }
        running
    }

    pub fn application(&self) -> Application {
        self.cluster.application("smollm2").unwrap()
    }

    /// How often each member's engine was started, by the engines' own logs.
    pub fn starts(&self, host: &str) -> std::collections::BTreeMap<String, usize> {
        let logs = self.layout.dir.join(host).join("logs");
        let mut starts = std::collections::BTreeMap::new();
        for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().replace(".1", "").replace(".log", "");
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            *starts.entry(name).or_default() += text.matches("simulated engine starting").count();
        }
        starts
    }
}

fn sum_of(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
