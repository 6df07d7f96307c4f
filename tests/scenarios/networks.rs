//! A host that is cut off from the network, and healed: each host has a network namespace of its own. Its engines run on
//! and nothing on it ends; what was under way hangs, as behind a cable that was pulled.

use std::collections::BTreeMap;
use std::time::Duration;

use denv_schema::api::UnitView;
use denv_tests::network::Network;
use denv_tests::process::engines_below;
use denv_tests::traffic::Traffic;

use crate::fixture::{Fixture, PATIENCE, STAGE};

const HOSTS: [&str; 3] = ["host-a", "host-b", "host-c"];

/// Nothing, where namespaces can't be made: they need root, and a kernel that lets it.
fn network() -> Option<Network> {
    match Network::create(&HOSTS) {
        Ok(network) => Some(network),
        Err(error) => {
            eprintln!("SKIPPED, for there can be no network namespaces here: {error:#}");
            None
        }
    }
}

/// Three hosts with room for one unit each, and two units on them.
async fn start(lost_after: &str) -> Option<Fixture> {
    let network = network()?;
    let mut fixture = Fixture::create();
    fixture.network = Some(network);
    let edits = [
        ("service.yaml", "lostAfter: 15s".to_owned(), format!("lostAfter: {lost_after}")),
        ("capacity.yaml", "hosts: {min: 2, max: 2}".to_owned(), "hosts: {min: 3, max: 3}".to_owned()),
    ];
    for (file, from, to) in &edits {
        fixture.repository.edit(file, from, to).unwrap();
    }
    let capacity = fixture.repository.file("capacity.yaml").unwrap().replace("cpuSlots: 2", "cpuSlots: 1");
    let third = "---\napiVersion: denv.dev/v1\nkind: Host\nmetadata: {name: host-c}\nspec: {fleet: local, cpuSlots: 1}\n";
    fixture.repository.write("capacity.yaml", &format!("{capacity}{third}")).unwrap();
    fixture.repository.commit("Have three hosts").unwrap();
    fixture.start(&HOSTS).await.unwrap();
    fixture.ready("r1").await;
    Some(fixture)
}

async fn units(fixture: &Fixture) -> Vec<UnitView> {
    fixture.client().unwrap().stage(STAGE).await.unwrap().units
}

/// How often engines were started on each host, by what they logged themselves.
fn starts(fixture: &Fixture) -> BTreeMap<&'static str, usize> {
    let started = HOSTS.map(|host| (host, fixture.starts(host).values().sum()));
    started.into_iter().filter(|(_, starts)| *starts > 0).collect()
}

async fn until_state(fixture: &Fixture, host: &str, state: &str) {
    denv_tests::until(&format!("{host} to be {state}"), PATIENCE, || async {
        let hosts = fixture.client()?.hosts().await?;
        Ok(hosts.iter().any(|it| it.host.as_str() == host && it.state == state).then_some(()))
    })
    .await
    .unwrap();
}

/// How many units the gateway would send a request to.
async fn until_in_rotation(fixture: &Fixture, units: f64) {
    denv_tests::until(&format!("{units} units in the gateway's rotation"), PATIENCE, || async {
        Ok((fixture.gateway_figure("denv_gateway_unit_in_rotation").await == units).then_some(()))
    })
    .await
    .unwrap();
}

/// Requests that are answered all the time.
async fn busy(fixture: &Fixture) -> Traffic {
    let traffic = Traffic::start(&fixture.application(), 4, 5);
    denv_tests::until("traffic", PATIENCE, || async { Ok((traffic.answered() > 8).then_some(())) })
        .await
        .unwrap();
    traffic
}

/// Those who were in the middle of a streamed answer from the host that is cut off, two at most, are told to ask
/// again; everybody else is answered by the other host.
async fn noticed(traffic: Traffic) {
    let (answered, failures) = traffic.stop().await;
    assert!(answered > 0);
    assert!(failures.len() <= 2, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.contains("the request may be sent again")), "{failures:?}");
}

#[tokio::test]
async fn a_host_cut_off_for_longer_than_patience_costs_one_start_and_no_request_once_it_is_noticed() {
    let Some(fixture) = start("15s").await else { return };
    let before = units(&fixture).await;
    let cut = before[0].host.clone();
    let spare = HOSTS.into_iter().find(|host| before.iter().all(|unit| unit.host.as_str() != *host)).unwrap();
    let network = fixture.network.as_ref().unwrap();

    let early = busy(&fixture).await;
    network.cut(cut.as_str()).unwrap();
    until_in_rotation(&fixture, 1.0).await;
    let late = Traffic::start(&fixture.application(), 4, 5);
    noticed(early).await;
    fixture
        .stage_until(
            STAGE,
            "a unit on the third host in place of that of the host cut off",
            PATIENCE,
            |view| {
                let ready = |unit: &&UnitView| unit.status == "ready" && unit.host != cut;
                view.units.iter().filter(ready).any(|unit| unit.host.as_str() == spare)
                    && view.units.iter().filter(ready).count() == 2
            },
        )
        .await
        .unwrap();
    assert_eq!(engines_below(&fixture.layout.dir).len(), 3, "that of the host cut off runs on");
    until_in_rotation(&fixture, 2.0).await;

    network.heal(cut.as_str()).unwrap();
    until_state(&fixture, cut.as_str(), "connected").await;
    fixture.ready("r1").await;
    denv_tests::until("two engines, and no more", PATIENCE, || async {
        Ok((engines_below(&fixture.layout.dir).len() == 2).then_some(()))
    })
    .await
    .unwrap();
    // And so it stays.
    tokio::time::sleep(Duration::from_secs(3)).await;
    fixture.ready("r1").await;
    let engines = engines_below(&fixture.layout.dir);
    let after = units(&fixture).await;
    assert_eq!(engines.len(), after.len(), "{engines:?}\n{after:#?}");
    for unit in &after {
        let of_unit = engines.iter().filter(|(_, member)| member.starts_with(&unit.unit.to_string())).count();
        assert_eq!(of_unit, 1, "exactly one engine of {}: {engines:?}", unit.unit);
    }
    assert_eq!(
        starts(&fixture),
        HOSTS.map(|host| (host, 1)).into(),
        "two at first, and the one in its place"
    );
    let (answered, failures) = late.stop().await;
    assert!(answered > 0 && failures.is_empty(), "{failures:?}");
}

#[tokio::test]
async fn a_host_cut_off_for_less_than_patience_starts_and_stops_nothing() {
    let Some(fixture) = start("120s").await else { return };
    let (before, engines) = (units(&fixture).await, engines_below(&fixture.layout.dir));
    let (cut, started) = (before[0].host.clone(), starts(&fixture));
    let network = fixture.network.as_ref().unwrap();

    let early = busy(&fixture).await;
    network.cut(cut.as_str()).unwrap();
    until_state(&fixture, cut.as_str(), "silent").await;
    until_in_rotation(&fixture, 1.0).await;
    let late = Traffic::start(&fixture.application(), 4, 5);
    noticed(early).await;
    network.heal(cut.as_str()).unwrap();
    until_state(&fixture, cut.as_str(), "connected").await;
    until_in_rotation(&fixture, 2.0).await;
    fixture.ready("r1").await;
    let (answered, failures) = late.stop().await;
    assert!(answered > 0 && failures.is_empty(), "{failures:?}");

    let told = |units: &[UnitView]| {
        let told = |unit: &UnitView| (unit.unit.clone(), unit.host.clone(), unit.generation, unit.restarts);
        units.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(told(&units(&fixture).await), told(&before));
    assert_eq!(engines_below(&fixture.layout.dir), engines, "the very same processes");
    assert_eq!((starts(&fixture), started.len()), (started.clone(), 2));
}

#[test]
fn nothing_is_left_of_a_network_whose_test_fails() {
    let (told, name) = std::sync::mpsc::channel();
    let failing = std::thread::spawn(move || {
        let Some(network) = network() else { return };
        told.send(network.name().to_owned()).unwrap();
        let sleep = || Ok(std::process::Command::new("sleep").arg("600").spawn()?);
        let mut sleeping = network.inside("host-a", sleep).unwrap();
        std::thread::spawn(move || sleeping.wait().unwrap());
        panic!("on purpose");
    });
    let Ok(name) = name.recv() else { return };
    assert!(failing.join().is_err());
    let left = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|namespace| namespace.starts_with(&name)), "{left:?}");
}
