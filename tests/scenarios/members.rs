//! Units of several members, on hosts of their own: ranks that find each other, and come back together.

use std::net::Ipv4Addr;

use denv_schema::api::{StageView, UnitView};
use denv_tests::process::engines_below;

use crate::fixture::{Fixture, PATIENCE, STAGE};

const CAPACITY: &str = "apiVersion: denv.dev/v1
kind: Provider
metadata: {name: laptop}
spec: {kind: owned}
---
apiVersion: denv.dev/v1
kind: Fleet
metadata: {name: local}
spec:
  provider: laptop
  region: local
  purchase: owned
  accelerator: cpu
  gpusPerHost: 2
  domain: {hosts: 2}
  hosts: {min: 2, max: 2}
---
apiVersion: denv.dev/v1
kind: Host
metadata: {name: host-a}
spec: {fleet: local, domain: rack}
---
apiVersion: denv.dev/v1
kind: Host
metadata: {name: host-b}
spec: {fleet: local, domain: rack}
";

const INVENTORY: &str = "cpus: 4
memoryBytes: 1073741824
gpus:
  - {index: 0, model: none, memoryBytes: 1024}
  - {index: 1, model: none, memoryBytes: 1024}
";

fn release(topology: &str) -> String {
    format!(
        "apiVersion: denv.dev/v1
kind: Release
metadata: {{name: wide}}
spec: {{model: {{name: m}}, engine: simulated, recipe: simulated, topology: {topology}}}
"
    )
}

/// Two hosts of two GPUs in one domain, each at an address of its own, and a unit that takes all four.
async fn start(topology: &str) -> Fixture {
    let mut fixture = Fixture::create();
    let inventory = fixture.layout.dir.join("inventory.yaml");
    std::fs::write(&inventory, INVENTORY).unwrap();
    fixture.host_flags = vec!["--inventory".to_owned(), inventory.display().to_string()];
    // Members take fixed ports, and other tests run beside this one.
    let [_, _, c, d] = std::process::id().to_be_bytes();
    for (number, host) in (0..).zip(["host-a", "host-b"]) {
        fixture.addresses.insert(host.to_owned(), Ipv4Addr::new(127, 100 + number, c, d.max(1)));
    }
    fixture.repository.write("capacity.yaml", CAPACITY).unwrap();
    fixture.repository.write("wide.yaml", &release(topology)).unwrap();
    fixture.repository.edit("service.yaml", "release: r1\n", "release: wide\n").unwrap();
    fixture.repository.edit("service.yaml", "units: {min: 2}", "units: {min: 1}").unwrap();
    fixture.repository.edit("service.yaml", "strategy: surge", "strategy: replace").unwrap();
    fixture.repository.edit("service.yaml", "maxUnavailable: 0", "maxUnavailable: 1").unwrap();
    fixture.repository.commit("Take a unit of two hosts").unwrap();
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture
}

/// The unit, once it is ready, nothing of its deployment is left to do, and `also` holds.
async fn ready(fixture: &Fixture, when: &str, also: impl Fn(&UnitView) -> bool) -> UnitView {
    let is_ready = |view: &StageView| {
        view.deployment.as_ref().is_some_and(|deployment| deployment.over)
            && view.units.iter().any(|unit| unit.status == "ready" && also(unit))
    };
    let view = fixture.stage_until(STAGE, when, PATIENCE, is_ready).await.unwrap();
    view.units.into_iter().next().unwrap()
}

fn log(fixture: &Fixture, host: &str, member: &str) -> String {
    let path = fixture.layout.dir.join(host).join("logs").join(format!("{member}.log"));
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn ranks_on_two_hosts_serve_together_and_come_back_together() {
    let fixture = start("{mode: aggregated, replica: {gpus: 4, parallelism: {data: 4}}}").await;
    let unit = ready(&fixture, "a ready unit", |_| true).await;
    let hosts: Vec<&str> = unit.members.iter().map(|member| member.host.as_str()).collect();
    assert_eq!(hosts, ["host-a", "host-b"]);
    let leader = unit.members[0].member.as_str();
    assert!(log(&fixture, "host-a", leader).contains("ranks [2, 3] of 4 have come"));
    assert_eq!(fixture.application().ask("hi", 2).await.unwrap(), "hello hello ");

    // One of them is killed: the other ends with it, and both start again, here or as another unit.
    let engines = engines_below(&fixture.layout.dir.join("host-b"));
    let [(pid, _)] = engines.as_slice() else { panic!("one engine on the host: {engines:?}") };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let again = ready(&fixture, "a ready unit again", |again| {
        again.unit != unit.unit || again.members.iter().all(|member| member.restarts > 0)
    });
    assert_eq!(again.await.members.len(), 2);
    assert_eq!(fixture.application().ask("hi", 2).await.unwrap(), "hello hello ");
}

#[tokio::test]
async fn a_prefill_and_a_decode_pool_are_one_unit() {
    let pool = "{gpus: 2, parallelism: {data: 2}}";
    let fixture = start(&format!("{{mode: disaggregated, prefill: {pool}, decode: {pool}}}")).await;
    let unit = ready(&fixture, "a ready unit", |_| true).await;
    let pools: Vec<String> = unit.members.iter().map(|member| member.pool.to_string()).collect();
    assert_eq!(pools, ["prefill", "decode"]);
    assert!(unit.members[0].host != unit.members[1].host);
}
