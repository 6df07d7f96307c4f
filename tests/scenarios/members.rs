//! Units of several members, on hosts of their own: ranks that find each other, and come back together.

use std::net::Ipv4Addr;

use denv_schema::api::{MemberView, StageView, UnitView};
use denv_schema::manifest::PoolName;
use denv_tests::process::{engines_below, kill_process};
use denv_tests::traffic::Traffic;
use denv_tests::until;

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
  hosts: {min: 2, max: 4}
";
const SUITE: &str = "apiVersion: denv.dev/v1
kind: ParitySuite
metadata: {name: golden}
spec:
  cases:
    - {name: one, messages: [{role: user, content: Greet me.}], maxTokens: 1, expect: {text: hello}}
    - {name: three, messages: [{role: user, content: Greet me.}], maxTokens: 3, expect: {text: hello hello hello}}
";
const HOSTS: [&str; 4] = ["host-a", "host-b", "host-c", "host-d"];

const INVENTORY: &str = "cpus: 4
memoryBytes: 1073741824
gpus:
  - {index: 0, model: none, memoryBytes: 1024}
  - {index: 1, model: none, memoryBytes: 1024}
";

fn release(name: &str, topology: &str) -> String {
    format!(
        "apiVersion: denv.dev/v1
kind: Release
metadata: {{name: {name}}}
spec:
  model: {{name: m}}
  engine: simulated
  recipe: simulated
  topology: {topology}
  config: {{flags: [--sim-token-delay, '50', --sim-start-delay, '1500']}}
"
    )
}

/// Racks of two hosts with two GPUs each, every host at an address of its own, and for each rack a unit that takes all of it.
async fn start(topology: &str, racks: usize) -> Fixture {
    let mut fixture = Fixture::create();
    let inventory = fixture.layout.dir.join("inventory.yaml");
    std::fs::write(&inventory, INVENTORY).unwrap();
    fixture.host_flags = vec!["--inventory".to_owned(), inventory.display().to_string()];
    // Members take fixed ports, and other tests run beside this one.
    let [_, _, c, d] = std::process::id().to_be_bytes();
    let (hosts, mut capacity) = (&HOSTS[..2 * racks], CAPACITY.to_owned());
    for (number, host) in (0..).zip(hosts) {
        fixture.addresses.insert((*host).to_owned(), Ipv4Addr::new(127, 100 + number, c, d.max(1)));
        let spec = format!("{{fleet: local, domain: rack-{}}}", number / 2);
        let text =
            format!("---\napiVersion: denv.dev/v1\nkind: Host\nmetadata: {{name: {host}}}\nspec: {spec}\n");
        capacity.push_str(&text);
    }
    fixture.repository.write("capacity.yaml", &capacity).unwrap();
    fixture.repository.write("wide.yaml", &release("wide", topology)).unwrap();
    fixture.repository.edit("service.yaml", "release: r1\n", "release: wide\n").unwrap();
    let wanted = format!("units: {{min: {racks}}}");
    fixture.repository.edit("service.yaml", "units: {min: 2}", &wanted).unwrap();
    fixture.repository.edit("service.yaml", "strategy: surge", "strategy: replace").unwrap();
    fixture.repository.edit("service.yaml", "maxUnavailable: 0", "maxUnavailable: 1").unwrap();
    fixture.repository.commit("Take a unit of two hosts").unwrap();
    fixture.start(hosts).await.unwrap();
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
    let fixture = start("{mode: aggregated, replica: {gpus: 4, parallelism: {data: 4}}}", 1).await;
    let unit = ready(&fixture, "a ready unit", |_| true).await;
    let hosts: Vec<&str> = unit.members.iter().map(|member| member.host.as_str()).collect();
    assert_eq!(hosts, ["host-a", "host-b"]);
    let leader = unit.members[0].member.as_str();
    assert!(log(&fixture, "host-a", leader).contains("ranks [2, 3] of 4 have come"));
    assert_eq!(fixture.application().ask("hi", 2).await.unwrap(), "hello hello ");

    // One of them is killed: the other ends with it, and both start again, here or as another unit.
    let engines = engines_below(&fixture.layout.dir.join("host-b"));
    let [(pid, _)] = engines.as_slice() else { panic!("one engine on the host: {engines:?}") };
    kill_process(*pid).unwrap();
    let again = ready(&fixture, "a ready unit again", |again| {
        again.unit != unit.unit || again.members.iter().all(|member| member.restarts > 0)
    });
    assert_eq!(again.await.members.len(), 2);
    assert_eq!(fixture.application().ask("hi", 2).await.unwrap(), "hello hello ");
}

#[tokio::test]
async fn a_prefill_and_a_decode_pool_are_one_unit() {
    let pool = "{gpus: 2, parallelism: {data: 2}}";
    let topology = format!("{{mode: disaggregated, prefill: {pool}, decode: {pool}}}");
    let mut fixture = start(&topology, 1).await;
    let unit = ready(&fixture, "a ready unit", |_| true).await;
    let pools: Vec<String> = unit.members.iter().map(|member| member.pool.to_string()).collect();
    assert_eq!(pools, ["prefill", "decode"]);
    assert!(unit.members[0].host != unit.members[1].host);
    let application = fixture.application();
    assert_eq!(application.ask("hi", 2).await.unwrap(), "hello hello ");
    assert_eq!(application.ask_streaming("hi", 2, |_| {}).await.unwrap(), "hello hello ");
    let [prefill, decode] = [0, 1].map(|at| &unit.members[at]);
    assert_eq!((taken_over(&fixture, prefill), taken_over(&fixture, decode)), (0, 2));

    // A gate asks both pools too, so that a hand-over that does not work is found before it takes traffic.
    let next = release("next", &topology).replace("'50'", "'40'");
    fixture.repository.write("next.yaml", &format!("{next}---\n{SUITE}")).unwrap();
    let gated = "lostAfter: 15s\n  parity: {suite: golden, before: true}";
    fixture.repository.edit("service.yaml", "lostAfter: 15s", gated).unwrap();
    fixture.release("wide", "next").await;
    let unit = ready(&fixture, "a unit of the next release", |unit| unit.release.as_str() == "next").await;
    assert_eq!([0, 1].map(|at| taken_over(&fixture, &unit.members[at])), [0, 2]);
}

/// How often a member has answered from what another has read.
fn taken_over(fixture: &Fixture, member: &MemberView) -> usize {
    log(fixture, member.host.as_str(), member.member.as_str()).matches("took over").count()
}

/// The unit without one of its members: until all are back, nobody sends to it.
async fn killed_and_back(fixture: &Fixture, pool: PoolName) {
    let unit = ready(fixture, "a ready unit", |_| true).await;
    let member = unit.members.iter().find(|member| member.pool == pool).unwrap();
    let engines = engines_below(&fixture.layout.dir.join(member.host.as_str()));
    let (pid, _) = engines.iter().find(|(_, engine)| *engine == member.member.to_string()).unwrap();
    kill_process(*pid).unwrap();
    let of = |view: &StageView, is: &dyn Fn(&UnitView) -> bool| {
        view.units.iter().find(|other| other.unit == unit.unit).is_some_and(is)
    };
    let wait = async |what: &str, is: &dyn Fn(&UnitView) -> bool| {
        fixture.stage_until(STAGE, what, PATIENCE, |view| of(view, is)).await.unwrap();
    };
    wait("the unit to be unhealthy", &|unit| unit.status == "unhealthy").await;
    wait("the unit to be ready again", &|unit| {
        unit.status == "ready" && unit.members.iter().any(|member| member.pool == pool && member.restarts > 0)
    })
    .await;
}

#[tokio::test]
async fn a_dead_prefill_member_costs_no_request_and_a_dead_decode_member_only_its_streams() {
    let pool = "{gpus: 2, parallelism: {data: 2}}";
    let fixture = start(&format!("{{mode: disaggregated, prefill: {pool}, decode: {pool}}}"), 2).await;
    let both_ready = |view: &StageView| view.units.iter().filter(|unit| unit.status == "ready").count() == 2;
    let begin = async || {
        fixture.stage_until(STAGE, "two ready units", PATIENCE, both_ready).await.unwrap();
        let traffic = Traffic::start(&fixture.application(), 6, 8);
        until("traffic", PATIENCE, || async { Ok((traffic.answered() >= 12).then_some(())) }).await.unwrap();
        traffic
    };

    let traffic = begin().await;
    killed_and_back(&fixture, PoolName::Prefill).await;
    let (answered, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(fixture.gateway_figure("denv_gateway_retries_total").await >= 1.0);
    let view = fixture.client().unwrap().stage(STAGE).await.unwrap();
    let members = view.units.iter().flat_map(|unit| &unit.members);
    let taken_over: usize = members.map(|member| taken_over(&fixture, member)).sum();
    assert_eq!(taken_over as u64, answered, "every prompt was read by a prefill member");

    let traffic = begin().await;
    killed_and_back(&fixture, PoolName::Decode).await;
    let (_, failures) = traffic.stop().await;
    assert!(failures.iter().all(|failure| failure.contains(r#""code":"retryable""#)), "{failures:?}");
}
