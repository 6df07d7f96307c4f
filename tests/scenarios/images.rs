//! Engines from images, by a real podman from a real registry: pulled before anything stops, adopted after a crash of denvd,
//! and nothing of them left when they stop.

use std::path::Path;
use std::sync::Arc;

use denv_agent::runtimes::{EnginePath, ImageError, Images, Podman};
use denv_schema::api::StageView;
use denv_tests::containers::{Containers, Registry};
use nix::sys::signal::Signal;

use crate::fixture::{Fixture, PATIENCE, STAGE};

const HOSTS: [&str; 2] = ["host-a", "host-b"];

/// A cluster on hosts with podman. Dropped before its containers are.
struct Scene {
    fixture: Fixture,
    registry: Registry,
    containers: Containers,
}

/// Nothing, where there is no podman.
fn containers() -> Option<Containers> {
    let containers = match Containers::create() {
        Ok(containers) => containers,
        Err(error) => {
            eprintln!("SKIPPED, for there can be no containers here: {error:#}");
            return None;
        }
    };
    assert!(
        containers.is_some() || std::env::var_os("CI").is_none(),
        "DENV_CONTAINERS must be set in CI: run `make test`"
    );
    if containers.is_none() {
        eprintln!("SKIPPED, for DENV_CONTAINERS is not set; `make test` sets podman up");
    }
    containers
}

/// An engine `name` from `image`, its recipe, and a release of it with that name.
fn software(name: &str, image: &str, program: &str, token: &Path) -> String {
    format!(
        "apiVersion: denv.dev/v1
kind: Engine
metadata: {{name: {name}}}
spec: {{kind: vllm, version: \"0\", command: [{program}], image: '{image}'}}
---
apiVersion: denv.dev/v1
kind: Recipe
metadata: {{name: {name}}}
spec:
  model: m
  engine: {name}
  hardware: {{accelerator: cpu}}
  startTimeout: 20s
  stopTimeout: 5s
  env: {{HF_TOKEN: 'file:{}'}}
---
apiVersion: denv.dev/v1
kind: Release
metadata: {{name: {name}}}
spec:
  model: {{name: m}}
  engine: {name}
  recipe: {name}
  topology: {{mode: aggregated, replica: {{cpuSlots: 1}}}}
",
        token.display()
    )
}

impl Scene {
    /// Release `r1`, of plain processes, is ready; images of `one` and `two` are in the registry; `gone` is not.
    async fn start() -> Option<Self> {
        let mut containers = containers()?;
        let registry = containers.registry().await.unwrap();
        let one = containers.push(&registry, "engine", "one").unwrap();
        let two = containers.push(&registry, "engine", "two").unwrap();
        let (name, _) = one.split_once('@').unwrap();
        let gone = format!("{name}@sha256:{}", "0".repeat(64));
        let mut fixture = Fixture::create();
        let token = fixture.layout.dir.join("token");
        std::fs::write(&token, "planted-secret").unwrap();
        for (name, image, program) in [
            ("one", &one, "simulated-engine"),
            ("two", &two, "simulated-engine"),
            ("absent", &two, "no-such-engine"),
            ("gone", &gone, "simulated-engine"),
        ] {
            fixture
                .repository
                .write(&format!("{name}.yaml"), &software(name, image, program, &token))
                .unwrap();
        }
        fixture.repository.commit("Have engines from images").unwrap();
        let mut scene = Scene { fixture, registry, containers };
        scene.fixture.start_reconciler().await.unwrap();
        for host in HOSTS {
            scene.start_host(host).await;
        }
        scene.fixture.start_gateway().await.unwrap();
        scene.fixture.ready("r1").await;
        Some(scene)
    }

    async fn start_host(&mut self, host: &str) {
        let podman = self.containers.host(host).unwrap();
        let programs = denv_tests::programs().unwrap();
        self.fixture.layout.engine_path = format!("{}:{}", podman.display(), programs.display()).into();
        self.fixture.start_host(host).await.unwrap();
    }

    /// The ids of the containers on each host, by which one is told from another of the same name.
    fn running(&self) -> [Vec<String>; 2] {
        HOSTS.map(|host| {
            let ids = self.containers.podman(host, &["ps", "--all", "--quiet", "--no-trunc"]).unwrap();
            ids.lines().map(str::to_owned).collect()
        })
    }

    fn starts(&self) -> [usize; 2] {
        HOSTS.map(|host| self.fixture.starts(host).values().sum())
    }

    async fn held(&mut self, from: &str, to: &str) -> String {
        self.fixture.release(from, to).await;
        let is_held = |view: &StageView| {
            view.held.as_ref().is_some_and(|held| held.release.as_str() == to)
                && view.deployment.as_ref().is_some_and(|deployment| deployment.over)
        };
        let view =
            self.fixture.stage_until(STAGE, "the release to be held", PATIENCE, is_held).await.unwrap();
        view.held.unwrap().reason
    }
}

#[tokio::test]
async fn images_are_on_the_hosts_before_anything_stops_and_a_registry_that_is_away_is_waited_for() {
    let Some(mut scene) = Scene::start().await else { return };
    scene.registry.close();
    let before = scene.starts();
    scene.fixture.release("r1", "one").await;
    let view = scene
        .fixture
        .stage_until(STAGE, "both hosts to say that the registry is away", PATIENCE, |view| {
            view.waiting.iter().any(|it| it.on.contains("connection refused"))
        })
        .await
        .unwrap();
    assert!(view.held.is_none(), "{view:?}");
    assert!(view.units.iter().all(|it| it.release.as_str() == "r1" && it.status == "ready"), "{view:?}");
    assert_eq!(scene.starts(), before);

    scene.registry.open().await.unwrap();
    scene.fixture.ready("one").await;
    assert!(scene.running().iter().all(|ids| ids.len() == 1), "{:?}", scene.running());
    scene.fixture.application().ask("Hello", 3).await.unwrap();
    // The engine has the secret, and no command line or log does.
    let host = HOSTS[0];
    let ids = scene.running();
    let told =
        scene.containers.podman(host, &["inspect", "--format", "{{.Config.Env}}", &ids[0][0]]).unwrap();
    assert!(told.contains("HF_TOKEN=planted-secret"), "{told}");
    assert!(!scene.fixture.logs().contains("planted-secret"));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains("HF_TOKEN=planted-secret"), "{:?}", entry.path());
    }

    let before = scene.starts();
    let reason = scene.held("one", "gone").await;
    assert!(reason.contains("cannot be pulled") && reason.contains("manifest"), "{reason}");
    scene.fixture.ready("one").await;
    assert_eq!((scene.running(), scene.starts()), (ids, before), "something moved: {reason}");

    let reason = scene.held("gone", "absent").await;
    assert!(reason.contains("there is no program `no-such-engine` in the image"), "{reason}");
    scene.fixture.ready("one").await;
}

#[tokio::test]
async fn engines_in_containers_outlive_denvd_and_leave_nothing_when_they_stop() {
    let Some(mut scene) = Scene::start().await else { return };
    scene.fixture.release("r1", "one").await;
    scene.fixture.ready("one").await;
    let (first, starts) = (scene.running(), scene.starts());
    let host = HOSTS[0];

    // A crash, and one in the instant before the engine was written down, with a container that nobody wants.
    for forgets in [false, true] {
        scene.fixture.hosts.get_mut(host).unwrap().crash().unwrap();
        if forgets {
            let path = scene.fixture.layout.dir.join(host).join("journal.json");
            let mut journal: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            for (_, entry) in journal["members"].as_object_mut().unwrap() {
                entry["facts"]["engine"] = serde_json::Value::Null;
            }
            std::fs::write(&path, journal.to_string()).unwrap();
            let agent = scene.fixture.layout.dir.join(host).canonicalize().unwrap();
            let label = format!("dev.denv.agent={}", agent.display());
            let image = scene.containers.podman(host, &["images", "--quiet"]).unwrap();
            let stray =
                ["run", "--detach", "--pull=never", "--network=host", "--log-driver=none", "--label", &label];
            let command = ["--entrypoint", "[\"simulated-engine\"]", image.trim(), "--port", "1"];
            let arguments: Vec<&str> = [&stray[..], &command].concat();
            scene.containers.podman(host, &arguments).unwrap();
        }
        scene.start_host(host).await;
        scene.fixture.ready("one").await;
        denv_tests::until("nothing but the first containers", PATIENCE, || async {
            Ok((scene.running() == first).then_some(()))
        })
        .await
        .unwrap();
        assert_eq!(scene.starts(), starts, "an engine that ran was started again");
    }

    // An engine that is killed is started again by its host, in a new container.
    let pid =
        scene.containers.podman(host, &["inspect", "--format", "{{.State.Pid}}", &first[0][0]]).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    denv_tests::until("a new container", PATIENCE, || async {
        let ids = scene.running();
        Ok((ids[0].len() == 1 && ids[0] != first[0]).then_some(()))
    })
    .await
    .unwrap();
    scene.fixture.ready("one").await;
    assert!(scene.fixture.logs().contains("status 137, as after SIGKILL"), "how it ended is not told");

    // Those of the next release take their places, and are pulled by each host once.
    let second = scene.running();
    scene.fixture.release("one", "two").await;
    scene.fixture.ready("two").await;
    let third = scene.running();
    assert!(third.iter().all(|ids| ids.len() == 1), "{third:?}");
    assert!(third.iter().zip(&second).all(|(new, old)| new != old), "{third:?}");
    scene.fixture.release("two", "r1").await;
    scene.fixture.ready("r1").await;
    assert!(scene.running().iter().all(Vec::is_empty), "{:?}", scene.running());
}

#[tokio::test]
async fn a_full_disk_loses_the_images_that_were_pulled_first_and_nothing_needs() {
    let Some(mut containers) = containers() else { return };
    let registry = containers.registry().await.unwrap();
    let names = ["one", "two", "three", "four"];
    let pushed = names.map(|mark| containers.push(&registry, "engine", mark).unwrap());
    let bin = containers.host("small").unwrap();
    let bytes = std::fs::metadata(denv_tests::programs().unwrap().join("simulated-engine")).unwrap().len();
    // Each image is the engine and a few libraries: two of them fit, and not three.
    containers.limit("small", u32::try_from(bytes * 27 / 10 / 1_048_576).unwrap() + 6).unwrap();
    let podman = Podman::find(&EnginePath::new(vec![bin], None)).unwrap();
    let state = tempfile::tempdir().unwrap();
    let images = Arc::new(Images::new(podman, state.path()));
    let needed = pushed[1].clone();
    images.keep(move || [needed.clone()].into());
    let here = || {
        let listed = containers.podman("small", &["images", "--format", "{{.Digest}}"]).unwrap();
        let is_here = |image: &&String| listed.contains(image.rsplit('@').next().unwrap());
        names
            .into_iter()
            .zip(&pushed)
            .filter(|(_, image)| is_here(image))
            .map(|(mark, _)| mark)
            .collect::<Vec<_>>()
    };
    for image in &pushed[..2] {
        Arc::clone(&images).prepare(image.clone()).await.unwrap();
    }
    assert_eq!(here(), ["one", "two"]);
    Arc::clone(&images).prepare(pushed[2].clone()).await.unwrap();
    assert_eq!(here(), ["two", "three"]);
    Arc::clone(&images).prepare(pushed[3].clone()).await.unwrap();
    assert_eq!(here(), ["two", "four"], "what a host needs was removed");

    let lone = Arc::new(Images::new(images.podman().clone(), &state.path().join("of-another")));
    lone.keep(|| [].into());
    let error = lone.prepare(pushed[0].clone()).await.unwrap_err();
    assert!(matches!(&error, ImageError::Pull { said, .. } if said.contains("no space left")), "{error}");
    assert!(!error.may_pass());
    assert_eq!(here(), ["two", "four"], "images of somebody else were removed");
}
