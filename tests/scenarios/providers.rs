//! A provider that fails with all that stands on it.

use std::time::Duration;

use denv_schema::api::StageView;
use denv_tests::process::{engines_below, kill_engine};
use denv_tests::traffic::Traffic;
use denv_tests::until;

use crate::fixture::{Fixture, PATIENCE, STAGE};

const CLOUD: &str = "---
apiVersion: denv.dev/v1
kind: Provider
metadata: {name: cloud}
spec: {kind: owned}
---
apiVersion: denv.dev/v1
kind: Fleet
metadata: {name: cloud-fra}
spec:
  provider: cloud
  region: fra
  residency: eu
  purchase: owned
  accelerator: cpu
  hosts: {min: 1, max: 1}
---
apiVersion: denv.dev/v1
kind: Host
metadata: {name: host-b}
spec: {fleet: cloud-fra, cpuSlots: 2}
";

#[tokio::test]
async fn traffic_goes_to_the_other_provider_within_residency_and_units_follow() {
    let mut fixture = Fixture::create();
    let repository = &mut fixture.repository;
    let capacity = repository.file("capacity.yaml").unwrap().to_owned();
    let (local, _) = capacity.rsplit_once("---\n").unwrap();
    let local = local.replace("region: local\n", "region: local\n  residency: eu\n");
    let local = local.replace("hosts: {min: 2, max: 2}", "hosts: {min: 1, max: 1}");
    repository.write("capacity.yaml", &format!("{local}{CLOUD}")).unwrap();
    let fleets = "- {name: cloud-fra, units: {min: 1, max: 1}, priority: 0}\n    \
                  - {name: local, units: {min: 1, max: 2}, priority: 1}";
    repository.edit("service.yaml", "- {name: local, units: {min: 2}}", fleets).unwrap();
    repository.edit("service.yaml", "  lostAfter:", "  residency: [eu]\n  lostAfter:").unwrap();
    repository.commit("Serve from two providers").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("r1").await;
    let on = |view: &StageView, host: &str| {
        view.units.iter().filter(|unit| unit.status == "ready" && unit.host.as_str() == host).count()
    };
    fixture
        .stage_until(STAGE, "a unit at each", PATIENCE, |view| {
            [on(view, "host-a"), on(view, "host-b")] == [1, 1]
        })
        .await
        .unwrap();

    let traffic = Traffic::start(&fixture.application(), 6, 5);
    until("traffic", PATIENCE, || async { Ok((traffic.answered() > 12).then_some(())) }).await.unwrap();
    fixture.hosts.remove("host-b").unwrap().crash().unwrap();
    for (pid, _) in engines_below(&fixture.layout.dir.join("host-b")) {
        kill_engine(pid).unwrap();
    }
    let at_the_fall = traffic.answered();
    until("traffic to go on at once", Duration::from_secs(5), || async {
        Ok((traffic.answered() > at_the_fall + 50).then_some(()))
    })
    .await
    .unwrap();
    fixture
        .stage_until(STAGE, "two units at the other", PATIENCE, |view| on(view, "host-a") == 2)
        .await
        .unwrap();
    let (_, failures) = traffic.stop().await;
    // Streams that were in the middle of an answer, of at most half of the clients.
    assert!(failures.len() <= 3, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.contains("the request may be sent again")), "{failures:?}");
}
