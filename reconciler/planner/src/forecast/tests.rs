use std::fmt::Write as _;
use std::sync::Arc;

use denv_schema::Catalog;
use denv_schema::tree::Files;
use denv_schema::wire::{GatewayReport, MemberReport, MemberState, Rotation, UnitReport};
use insta::assert_snapshot;

use super::*;
use crate::records::UnitPhase;
use crate::world::{GatewayObserved, HostObserved, Observed};

struct Scene {
    records: Records,
    observed: Observed,
    now: Timestamp,
}

fn catalog(release: &str, slots: u32, strategy: &str) -> Catalog {
    catalog_when(release, slots, strategy, "")
}

/// `when`: what else its rollout says.
fn catalog_when(release: &str, slots: u32, strategy: &str, when: &str) -> Catalog {
    let mut text = String::new();
    let mut add = |kind: &str, name: &str, spec: &str| {
        write!(
            text,
            "---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
        )
        .unwrap();
    };
    add("Provider", "p", "kind: owned");
    add(
        "Fleet",
        "f",
        "provider: p, region: r, purchase: owned, accelerator: cpu, hosts: {min: 0, max: 9}, \
         price: {amount: '0.10', per: host-hour}",
    );
    for host in ["a", "b"] {
        add("Host", host, &format!("fleet: f, cpuSlots: {slots}"));
    }
    add("Engine", "e", "kind: llama-cpp, version: '1', command: [serve]");
    add(
        "Recipe",
        "r",
        "model: m, engine: e, hardware: {accelerator: cpu}, startTimeout: 2m, stopTimeout: 20s",
    );
    for (name, length) in [("one", 1024), ("two", 2048)] {
        let spec = format!(
            "model: {{name: m}}, engine: e, recipe: r, topology: {{mode: aggregated, replica: {{cpuSlots: 1}}}}, \
             config: {{maxModelLen: {length}}}"
        );
        add("Release", name, &spec);
    }
    add("Environment", "chat", "stages: [prod]");
    let unavailable = u32::from(strategy == "replace");
    let spec = format!(
        "environment: chat, release: {release}, fleets: [{{name: f, units: {{min: 2}}}}], rollout: {{strategy: \
         {strategy}, maxUnavailable: {unavailable}, batches: [1, 100%], bake: 1m, drainTimeout: 30s{when}}}"
    );
    add("Stage", "prod", &spec);
    let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
    Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"))
}

impl Scene {
    /// Two connected hosts, a gateway, and nothing that runs.
    fn empty() -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let host = HostObserved {
            connected: true,
            last_seen: now,
            version: String::new(),
            ingress: "127.0.0.1:1".to_owned(),
            report: Arc::default(),
        };
        let gateway = GatewayObserved {
            connected: true,
            first_heard: now,
            last_seen: now,
            version: String::new(),
            report: GatewayReport::default(),
        };
        let names = |names: [&str; 2]| names.map(|name| name.parse::<Name>().unwrap());
        let hosts = names(["a", "b"]).into_iter().map(|name| (name, host.clone())).collect();
        let gateways = [("g".parse().unwrap(), gateway)].into();
        Scene {
            records: Records::default(),
            observed: Observed { hosts, gateways, since: now, ..Observed::default() },
            now,
        }
    }

    /// What the catalog wants runs, each unit ready 40 s after it was started.
    fn at_rest(catalog: &Catalog) -> Self {
        let mut scene = Scene::empty();
        for _ in 0..40 {
            scene.carry_out(catalog);
            for (id, unit) in &scene.records.units {
                for member in &unit.members {
                    let report = MemberReport {
                        generation: 1,
                        spec: member.digest,
                        state: MemberState::Healthy,
                        since: scene.now,
                        claim: Some(member.spec.claim.clone()),
                        restarts: 0,
                        ends_in_a_row: 0,
                        reason: None,
                    };
                    let host = scene.observed.hosts.get_mut(&member.host).unwrap();
                    Arc::make_mut(&mut host.report).members.insert(member.id.clone(), report);
                }
                let route =
                    UnitReport { generation: 1, rotation: Rotation::In, in_rotation: true, inflight: 0 };
                let gateway = scene.observed.gateways.values_mut().next().unwrap();
                gateway.report.units.insert(id.clone(), route);
            }
            scene.now += SignedDuration::from_secs(40);
        }
        assert!(scene.records.units.values().all(|unit| unit.phase == UnitPhase::Ready));
        assert_eq!((scene.records.units.len(), scene.carry_out(catalog)), (2, 0));
        scene
    }

    fn world<'a>(&'a self, catalog: &'a Catalog) -> World<'a> {
        World { catalog, records: &self.records, observed: &self.observed, now: self.now }
    }

    fn carry_out(&mut self, catalog: &Catalog) -> usize {
        let planned = deployment::plan(&self.world(catalog));
        planned.steps.iter().for_each(|step| self.records.apply(step));
        planned.steps.len()
    }
}

fn text(forecast: &Forecast) -> String {
    let mut text = String::new();
    for step in &forecast.moves {
        let Move { after, batch, does, .. } = step;
        let batch = batch.map_or(String::new(), |batch| format!(" [{batch}]"));
        let does = match does {
            Does::Start { unit, release, members, .. } => {
                format!("start {unit} of {release} on {}", members[0].host)
            }
            Does::Restart { unit, .. } => format!("restart {unit}"),
            Does::Ready { unit } => format!("ready {unit}"),
            Does::Drain { unit, .. } => format!("drain {unit}"),
            Does::Stop { unit, .. } => format!("stop {unit}"),
            Does::Phase { phase } => phase.clone(),
            Does::Hold { release, .. } => format!("hold {release}"),
            Does::Test { suite, asked, part } => format!("test {suite} {}: {asked}", part.as_str()),
            Does::Wait { on } => format!("wait: {on}"),
        };
        writeln!(text, "{after:>4}s{batch} {does}").unwrap();
    }
    for (stage, forecast) in &forecast.stages {
        let StageForecast { phase, seconds, .. } = forecast;
        writeln!(text, "{stage} {phase} after {seconds:?}").unwrap();
    }
    for (fleet, Room { of, total, free_before, free_least, free_after }) in &forecast.fleets {
        writeln!(text, "{fleet}: {free_before} > {free_least} > {free_after} of {total} {of}").unwrap();
    }
    for HourlyCost { currency, before, most, after } in &forecast.cost {
        writeln!(text, "{before} > {most} > {after} {currency} an hour").unwrap();
    }
    for Wait { since, subject, on } in &forecast.waiting {
        writeln!(text, "{subject} since {since}s: {on}").unwrap();
    }
    writeln!(text, "rest after {:?}", forecast.seconds).unwrap();
    assert!(forecast.violations.is_empty(), "{:?}", forecast.violations);
    text
}

#[test]
fn nothing_to_do_is_an_empty_forecast() {
    let catalog = catalog("one", 2, "surge");
    let scene = Scene::at_rest(&catalog);
    let forecast = forecast(&scene.world(&catalog), Pace::Expected);
    assert_eq!((forecast.moves.len(), forecast.stages.len(), forecast.seconds), (0, 0, Some(0)));
}

#[test]
fn a_surge_is_told_step_by_step() {
    let scene = Scene::at_rest(&catalog("one", 2, "surge"));
    let after = catalog("two", 2, "surge");
    assert_snapshot!(text(&forecast(&scene.world(&after), Pace::Expected)), @r"
       0s pending
       0s rolling (batch 1)
       0s [1] start chat.prod.2 of two on a
      40s [1] ready chat.prod.2
      40s [1] drain chat.prod.0
      70s [1] stop chat.prod.0
      80s [1] baking (batch 1)
     140s [1] rolling (batch 2)
     140s [2] start chat.prod.3 of two on b
     180s [2] ready chat.prod.3
     180s [2] drain chat.prod.1
     210s [2] stop chat.prod.1
     220s [2] baking (batch 2)
     280s [2] verifying
     280s succeeded
    chat/prod succeeded after Some(280)
    f: 2 > 1 > 2 of 4 CPU slots
    0.2 > 0.2 > 0.2 USD an hour
    rest after Some(280)
    ");
}

#[test]
fn a_surge_without_room_says_what_to_do_instead() {
    let scene = Scene::at_rest(&catalog("one", 1, "surge"));
    let after = catalog("two", 1, "surge");
    assert_snapshot!(text(&forecast(&scene.world(&after), Pace::Expected)), @r"
       0s pending
    chat/prod pending after None
    f: 0 > 0 > 0 of 2 CPU slots
    0.2 > 0.2 > 0.2 USD an hour
    stage chat/prod since 0s: needs 1 CPU slot free on one host of fleet `f`; the most free is 0, on `a`; add hosts to the fleet, free some (without `chat.prod.0` it would fit on `a`), or use `strategy: replace`
    rest after None
    ");
}

#[test]
fn slow_hosts_make_it_longer_and_change_nothing_else() {
    let scene = Scene::at_rest(&catalog("one", 1, "replace"));
    let after = catalog("two", 1, "replace");
    let [expected, slowest] =
        [Pace::Expected, Pace::Slowest].map(|pace| forecast(&scene.world(&after), pace));
    assert!(expected.seconds < slowest.seconds, "{:?} {:?}", expected.seconds, slowest.seconds);
    let does = |forecast: &Forecast| forecast.moves.iter().map(|step| step.does.clone()).collect::<Vec<_>>();
    assert_eq!(does(&expected), does(&slowest));
}

#[test]
fn from_nothing_to_all() {
    let scene = Scene::empty();
    let after = catalog("one", 1, "surge");
    assert_snapshot!(text(&forecast(&scene.world(&after), Pace::Expected)), @r"
       0s pending
       0s rolling (batch 1)
       0s [1] start chat.prod.0 of one on a
      60s [1] ready chat.prod.0
      60s [1] baking (batch 1)
     120s [1] rolling (batch 2)
     120s [2] start chat.prod.1 of one on b
     180s [2] ready chat.prod.1
     180s [2] baking (batch 2)
     240s [2] verifying
     240s succeeded
    chat/prod succeeded after Some(240)
    f: 2 > 0 > 0 of 2 CPU slots
    0 > 0.2 > 0.2 USD an hour
    rest after Some(240)
    ");
}

#[test]
fn a_closed_window_is_waited_for_and_then_it_goes_on() {
    let scene = Scene::at_rest(&catalog("one", 2, "surge"));
    // It is Friday, 08:26:40. The first batch begins in the window, and its end is too late for the second.
    let windows = ", windows: [{days: [friday, monday], from: '10:00', to: '10:02'}]";
    let after = catalog_when("two", 2, "surge", windows);
    assert_snapshot!(text(&forecast(&scene.world(&after), Pace::Expected)), @"
       0s pending
       0s wait: outside its windows until 2027-01-15T10:00:00Z, when `friday, monday 10:00 to 10:02 UTC` is open
    5600s rolling (batch 1)
    5600s [1] start chat.prod.2 of two on a
    5640s [1] ready chat.prod.2
    5640s [1] drain chat.prod.0
    5670s [1] stop chat.prod.0
    5680s [1] baking (batch 1)
    5740s [1] wait: outside its windows until 2027-01-18T10:00:00Z, when `friday, monday 10:00 to 10:02 UTC` is open
    264800s [1] rolling (batch 2)
    264800s [2] start chat.prod.3 of two on b
    264840s [2] ready chat.prod.3
    264840s [2] drain chat.prod.1
    264870s [2] stop chat.prod.1
    264880s [2] baking (batch 2)
    264940s [2] verifying
    264940s succeeded
    chat/prod succeeded after Some(264940)
    f: 2 > 1 > 2 of 4 CPU slots
    0.2 > 0.2 > 0.2 USD an hour
    rest after Some(264940)
    ");
}

#[test]
fn what_a_person_is_to_approve_is_told_as_if_it_were_approved() {
    let scene = Scene::at_rest(&catalog("one", 2, "surge"));
    let after = catalog_when("two", 2, "surge", ", approval: required");
    let forecast = forecast(&scene.world(&after), Pace::Expected);
    assert_eq!(forecast.approvals, ["chat/prod".parse().unwrap()]);
    assert_eq!((forecast.waiting.len(), forecast.seconds), (0, Some(280)));
    let told = text(&forecast);
    assert!(
        told.starts_with(
            "   0s pending\n   0s wait: there is room for `two`, and a person is to approve it: "
        ),
        "{told}"
    );
}

#[test]
fn a_freeze_of_weeks_is_waited_out() {
    let scene = Scene::at_rest(&catalog("one", 2, "surge"));
    let freezes = ", freezes: [{from: 2027-01-01T00:00:00Z, until: 2027-03-01T00:00:00Z, reason: the audit}]";
    let after = catalog_when("two", 2, "surge", freezes);
    let forecast = forecast(&scene.world(&after), Pace::Expected);
    assert_eq!((forecast.waiting.len(), forecast.seconds), (0, Some(44 * 86_400 + 56_000 + 280)));
}
