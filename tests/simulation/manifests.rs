//! The manifests of a simulated world.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use denv_schema::tree::Files;
use denv_schema::{Catalog, Digest, Name, StageId};

/// What one unit of a stage takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// On one host.
    Gpus(u32),
    /// On the hosts of one domain.
    Wide(u32),
    /// So many for prefill and as many for decode, in one domain.
    Pair(u32),
    Slots(u32),
}

/// Hosts that are alike.
#[derive(Clone, Debug)]
pub struct FleetShape {
    pub hosts: u32,
    /// 0: its hosts have CPU slots.
    pub gpus: u32,
    pub slots: u32,
    /// Hosts of one scale-up domain.
    pub domain: u32,
}

impl FleetShape {
    pub fn of_gpus(hosts: u32, gpus: u32) -> Self {
        FleetShape { hosts, gpus, slots: 0, domain: 1 }
    }

    pub fn of_slots(hosts: u32, slots: u32) -> Self {
        FleetShape { hosts, gpus: 0, slots, domain: 1 }
    }
}

#[derive(Clone, Debug)]
pub struct StageShape {
    pub needs: Needs,
    pub fleets: Vec<usize>,
    /// How many more units than the least each fleet may have. Later fleets are for bursts.
    pub more: u32,
    pub replace: bool,
    /// Surge where there is room, else replace.
    pub auto: bool,
    pub max_unavailable: u32,
    pub bake: u32,
    pub pauses: bool,
    /// Its windows, freezes and approval, as its manifest has them. A world begins on 2027-01-15, a Friday, at 08:00 UTC.
    pub when: Option<String>,
    /// Its parity suite, alarms and deadlines.
    pub gates: GateShape,
}

/// What lets a stage's releases take traffic, and go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct GateShape {
    /// The suite `golden`, before and after, against the release before.
    pub parity: bool,
    /// The same against what the other stage serves, in its place.
    pub beside: bool,
    /// How many seconds the gate may take.
    pub deadline: Option<u32>,
    /// The alarm `errors`, and what it does where it has too little to say.
    pub alarm: Option<&'static str>,
}

/// What does not change in a world's life.
#[derive(Clone, Debug)]
pub struct Shape {
    pub fleets: Vec<FleetShape>,
    pub stages: Vec<StageShape>,
    pub gateways: u32,
    /// The most seconds that a message takes.
    pub lag: u64,
}

impl Shape {
    /// One stage on CPU slots, one gateway, and messages that take no time.
    pub fn simple(hosts: u32, slots: u32, replace: bool) -> Self {
        let stage = StageShape {
            needs: Needs::Slots(1),
            fleets: vec![0],
            more: 0,
            replace,
            auto: false,
            max_unavailable: u32::from(replace),
            bake: 5,
            pauses: false,
            when: None,
            gates: GateShape::default(),
        };
        Shape { fleets: vec![FleetShape::of_slots(hosts, slots)], stages: vec![stage], gateways: 1, lag: 0 }
    }

    pub fn hosts(&self) -> Vec<(Name, usize)> {
        let named = |(fleet, shape): (usize, &FleetShape)| {
            (0..shape.hosts).map(move |host| (format!("h{fleet}{host}").parse().unwrap(), fleet))
        };
        self.fleets.iter().enumerate().flat_map(named).collect()
    }
}

/// What the manifests say now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Desired {
    pub stages: Vec<DesiredStage>,
    /// Hosts that no manifest has; hosts that take nothing new.
    pub removed: Vec<usize>,
    pub cordoned: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DesiredStage {
    pub present: bool,
    pub release: u8,
    /// In each of its fleets.
    pub units: u32,
}

const ENVIRONMENTS: [&str; 2] = ["chat", "code"];

pub fn stage_id(index: usize) -> StageId {
    format!("{}/prod", ENVIRONMENTS[index]).parse().unwrap()
}

/// 0 and 1 work, 2 ends at once, 3 never becomes healthy, 4 crashes again and again, 5 means what 0 means, 6 answers
/// wrongly.
pub const RELEASES: u8 = 7;

pub fn release(stage: usize, number: u8) -> String {
    let kind = match number {
        0 | 1 => "good",
        2 => "bad",
        3 => "hang",
        4 => "crash",
        6 => "wrong",
        _ => return format!("{}-good-0-again", ENVIRONMENTS[stage]),
    };
    format!("{}-{kind}-{number}", ENVIRONMENTS[stage])
}

fn add(text: &mut String, kind: &str, name: &str, spec: &str) {
    write!(
        text,
        "---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
    .unwrap();
}

pub fn catalog(shape: &Shape, desired: &Desired) -> Catalog {
    let mut text = String::new();
    add(&mut text, "Provider", "p", "kind: owned");
    add(&mut text, "Engine", "e", "kind: llama-cpp, version: '1', command: [serve]");
    add(&mut text, "Engine", "w", "kind: sglang, version: '1', command: [serve]");
    for (name, engine, accelerator) in [("cpu", "e", "cpu"), ("h200", "e", "h200"), ("wide", "w", "h200")] {
        let spec = format!(
            "model: m, engine: {engine}, hardware: {{accelerator: {accelerator}}}, startTimeout: 20s"
        );
        add(&mut text, "Recipe", &format!("r-{name}"), &spec);
    }
    for (index, fleet) in shape.fleets.iter().enumerate() {
        let accelerator = if fleet.gpus > 0 { "h200" } else { "cpu" };
        let spec = format!(
            "provider: p, region: r, purchase: owned, accelerator: {accelerator}, hosts: {{min: 0, max: 99}}, \
             domain: {{hosts: {}}}",
            fleet.domain
        );
        add(&mut text, "Fleet", &format!("f{index}"), &spec);
    }
    for (index, (name, fleet)) in shape.hosts().iter().enumerate() {
        let slots = match &shape.fleets[*fleet] {
            FleetShape { gpus: 0, slots, .. } => format!(", cpuSlots: {slots}"),
            _ => String::new(),
        };
        let cordoned = desired.cordoned.contains(&index);
        if !desired.removed.contains(&index) {
            let place = name.as_str()[2..].parse::<u32>().unwrap() / shape.fleets[*fleet].domain;
            let spec = format!("fleet: f{fleet}, domain: d{fleet}-{place}, cordoned: {cordoned}{slots}");
            add(&mut text, "Host", name.as_str(), &spec);
        }
    }
    let message = "messages: [{role: user, content: '?'}]";
    let cases = format!("[{{name: a, {message}}}, {{name: b, {message}, expect: {{text: b}}}}]");
    let suite = format!("reference: {{kind: previous-release}}, cases: {cases}");
    add(&mut text, "ParitySuite", "golden", &suite);
    if shape.stages.iter().any(|stage| stage.gates.beside) {
        add(&mut text, "Endpoint", "code", "models: [{name: code, stage: code/prod}]");
        let suite = format!("reference: {{kind: endpoint, endpoint: code, model: code}}, cases: {cases}");
        add(&mut text, "ParitySuite", "beside", &suite);
    }
    for what in ["pass", "fail", "pause"] {
        let alarm = format!("metric: error-rate, above: 1%, onInconclusive: {what}");
        add(&mut text, "Alarm", &format!("errors-{what}"), &alarm);
    }
    for (index, (stage, wanted)) in shape.stages.iter().zip(&desired.stages).enumerate() {
        add_releases(&mut text, index, stage.needs);
        if wanted.present {
            add(&mut text, "Environment", ENVIRONMENTS[index], "stages: [prod]");
            add_stage(&mut text, index, stage, *wanted);
        }
    }
    let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
    Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"))
}

fn add_releases(text: &mut String, stage: usize, needs: Needs) {
    let pool = match needs {
        Needs::Gpus(gpus) | Needs::Wide(gpus) | Needs::Pair(gpus) => {
            format!("{{gpus: {gpus}, parallelism: {{tensor: {gpus}}}}}")
        }
        Needs::Slots(slots) => format!("{{cpuSlots: {slots}}}"),
    };
    let (engine, recipe) = match needs {
        Needs::Gpus(_) => ("e", "r-h200"),
        Needs::Wide(_) | Needs::Pair(_) => ("w", "r-wide"),
        Needs::Slots(_) => ("e", "r-cpu"),
    };
    let topology = match needs {
        Needs::Pair(_) => format!("mode: disaggregated, prefill: {pool}, decode: {pool}"),
        _ => format!("mode: aggregated, replica: {pool}"),
    };
    for number in 0..RELEASES {
        let name = release(stage, number);
        let flag = name.trim_end_matches("-again");
        let spec = format!(
            "model: {{name: m, weights: {{source: 'file:{flag}', digest: '{}'}}}}, engine: {engine}, recipe: {recipe}, topology: {{{topology}}}, \
             config: {{flags: [--release, {flag}]}}",
            Digest::of_bytes(flag.as_bytes())
        );
        add(text, "Release", &name, &spec);
    }
}

fn add_stage(text: &mut String, index: usize, shape: &StageShape, wanted: DesiredStage) {
    let units = wanted.units;
    let fleets = shape.fleets.iter().enumerate().map(|(level, fleet)| {
        let most = units + shape.more;
        format!("{{name: f{fleet}, units: {{min: {units}, max: {most}}}, priority: {level}}}")
    });
    let fleets = fleets.collect::<Vec<_>>();
    let strategy = match (shape.auto, shape.replace) {
        (true, _) => "auto",
        (false, true) => "replace",
        (false, false) => "surge",
    };
    let on_alarm = if shape.pauses { "pause" } else { "rollback" };
    let GateShape { parity, beside, deadline, alarm } = shape.gates;
    let parity = match (parity, beside) {
        (true, false) => ", parity: {suite: golden, before: true, after: true}",
        (true, true) => ", parity: {suite: beside, before: true}",
        (false, _) => "",
    };
    let alarms = alarm.map_or_else(String::new, |what| format!(", alarms: [errors-{what}]"));
    let deadlines = deadline.map_or_else(String::new, |gate| format!(", deadlines: {{gate: {gate}s}}"));
    let spec = format!(
        "environment: {}, release: {}, fleets: [{}], lostAfter: 60s, rollout: {{strategy: {strategy}, \
         maxUnavailable: {}, batches: [1, 100%], bake: {}s, drainTimeout: 20s, onAlarm: {on_alarm}{}{deadlines}}}{parity}{alarms}",
        ENVIRONMENTS[index],
        release(index, wanted.release),
        fleets.join(", "),
        shape.max_unavailable,
        shape.bake,
        shape.when.as_ref().map_or_else(String::new, |when| format!(", {when}")),
    );
    // A stage's name is unique within its environment, which its spec names.
    add(text, "Stage", "prod", &spec);
}

/// Catalogs are dear in debug builds, and worlds come back to what they wanted before.
#[derive(Default)]
pub struct Catalogs(BTreeMap<Desired, Catalog>);

impl Catalogs {
    pub fn get(&mut self, shape: &Shape, desired: &Desired) -> Catalog {
        self.0.entry(desired.clone()).or_insert_with(|| catalog(shape, desired)).clone()
    }
}
