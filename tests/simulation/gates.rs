//! Gates and alarms: who runs trials and reads measures in a simulated world, and that no release takes traffic before
//! its gate.

use std::collections::BTreeMap;

use denv_gates::Outcome;
use denv_gates::alarm::Reading;
use denv_planner::checker::{Violation, check};
use denv_planner::{
    AlarmObserved, Asked, Deployment, Part, Phase, Plan, Step, Trial, TrialObserved, UnitRecord,
};
use denv_schema::api::RolloutAction;
use denv_schema::{Name, StageId};
use jiff::{SignedDuration, Timestamp};

use crate::events::Event;
use crate::host::release;
use crate::manifests::{GateShape, Shape, StageShape, stage_id};
use crate::world::Simulation;

/// What runs trials, beside the planner.
#[derive(Default)]
pub struct Runs {
    /// When each that is under way comes to an end.
    due: BTreeMap<(StageId, u64, Part, u32), Timestamp>,
    /// What came of them, in the store.
    kept: BTreeMap<StageId, TrialObserved>,
    /// Engines that are asked do not answer.
    pub deaf: bool,
    /// What each stage's alarm says.
    pub says: BTreeMap<usize, u8>,
}

impl Runs {
    /// What came of trials before.
    pub fn keep(&mut self, trials: BTreeMap<StageId, TrialObserved>) {
        self.kept = trials;
    }

    /// The store is lost.
    pub fn forget(&mut self) {
        self.due.clear();
        self.kept.clear();
    }
}

impl Simulation {
    /// What a reconciler that runs does about gates in a second.
    pub fn gates_act(&mut self) {
        let mut open: Vec<(StageId, u64, Part, Trial)> = Vec::new();
        for (stage, record) in &self.records.stages {
            let Some(deployment) = record.deployment.as_ref().filter(|it| !it.phase.is_over()) else {
                continue;
            };
            let trials = deployment.gates.trials.iter().filter(|(_, trial)| trial.ended.is_none());
            open.extend(trials.map(|(part, trial)| (stage.clone(), deployment.number, *part, trial.clone())));
        }
        let key = |(stage, number, part, trial): &(StageId, u64, Part, Trial)| {
            (stage.clone(), *number, *part, trial.attempt)
        };
        self.runs.due.retain(|known, _| open.iter().any(|open| key(open) == *known));
        for one in open {
            let takes = i64::try_from(self.random() % 6).unwrap() + 1;
            let at = self.now + SignedDuration::from_secs(takes);
            if *self.runs.due.entry(key(&one)).or_insert(at) > self.now {
                continue;
            }
            let (stage, deployment, part, trial) = one;
            let outcome = self.answer(part, &trial.asked);
            let seen = TrialObserved {
                deployment,
                part,
                attempt: trial.attempt,
                outcome,
                reason: "seen".to_owned(),
            };
            self.runs.kept.insert(stage, seen);
        }
        let alarms = self.alarms();
        if self.observed.trials != self.runs.kept || self.observed.alarms != alarms {
            (self.observed.trials, self.observed.alarms) = (self.runs.kept.clone(), alarms);
            self.wakes();
        }
    }

    fn answer(&self, part: Part, asked: &Asked) -> Outcome {
        let Asked::Unit(asked) = asked else { return Outcome::Pass };
        let serves = self.serving().contains(&(asked.member.clone(), asked.generation));
        let linked = self.hosts.iter().any(|host| host.name == asked.host && host.linked);
        if !serves || !linked || self.runs.deaf {
            return Outcome::Inconclusive;
        }
        let unit = self.records.units.get(&asked.unit);
        let is_wrong = part != Part::Reference && unit.is_some_and(|unit| answers_wrongly(unit));
        if is_wrong { Outcome::Fail } else { Outcome::Pass }
    }

    fn alarms(&self) -> BTreeMap<StageId, BTreeMap<Name, AlarmObserved>> {
        let mut found = BTreeMap::new();
        for (index, id) in self.stages.iter().enumerate() {
            let (Some(spec), Some(record)) = (self.catalog.stages.get(id), self.records.stages.get(id))
            else {
                continue;
            };
            let moves = |it: &&Deployment| {
                matches!(it.phase, Phase::Rolling { .. } | Phase::Baking { .. } | Phase::Verifying)
            };
            let moving = record.deployment.as_ref().filter(moves).map(|deployment| deployment.digest);
            let Some(of) = moving.or(record.good.as_ref().map(|good| good.digest)) else { continue };
            let outcome = match self.runs.says.get(&index).copied().unwrap_or(0) {
                0 => Outcome::Pass,
                1 => Outcome::Fail,
                2 => Outcome::Inconclusive,
                _ => continue,
            };
            let reading = Reading { outcome, reason: "read".to_owned(), samples: 1 };
            let seen = AlarmObserved { of, reading };
            let of_stage = spec.alarms.iter().map(|alarm| (alarm.clone(), seen.clone()));
            found.insert(id.clone(), of_stage.collect());
        }
        found
    }

    /// What is withheld gets nothing, and neither does a release that answers wrongly where a suite is asked first.
    pub fn look_at_gates(&self) {
        for (id, unit) in &self.records.units {
            let front = &unit.front().id;
            let sends = self.gateways.iter().any(|gateway| gateway.sends_to(front, unit.generation));
            let stage = self.catalog.stages.get(&unit.stage);
            let gated = stage.and_then(|stage| stage.parity.as_ref()).is_some_and(|parity| parity.before);
            let is_wrong = gated && !self.overruled && answers_wrongly(unit);
            assert!(!sends || !unit.withheld && !is_wrong, "`{id}` takes traffic\n{}", self.transcript());
        }
    }
}

fn answers_wrongly(unit: &UnitRecord) -> bool {
    release(&unit.front().spec.argv).contains("wrong")
}

fn gated(gates: GateShape) -> Shape {
    let mut shape = Shape::simple(3, 2, false);
    shape.stages[0].gates = gates;
    shape
}

/// Two units of release 0, and a release that was just asked for.
fn begun(gates: GateShape, release: u8) -> Simulation {
    let mut simulation = Simulation::new(gated(gates), 40);
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    simulation.apply(Event::Release(0, release));
    simulation
}

const PARITY: GateShape = GateShape { parity: true, beside: false, deadline: None, alarm: None };

fn alarm(what: &'static str) -> GateShape {
    GateShape { parity: false, beside: false, deadline: None, alarm: Some(what) }
}

fn deployment(simulation: &Simulation) -> &Deployment {
    simulation.records.stages[&stage_id(0)].deployment.as_ref().unwrap()
}

#[test]
fn a_release_takes_traffic_only_after_its_gate() {
    let mut simulation = begun(PARITY, 1);
    let mut seen = Vec::new();
    for _ in 0..200 {
        simulation.run(1);
        let phase = deployment(&simulation).phase;
        if seen.last() != Some(&phase) {
            seen.push(phase);
        }
        if phase == Phase::Gating {
            let new = simulation.records.units.values().filter(|unit| unit.release.as_str() == "chat-good-1");
            assert!(new.clone().count() <= 1 && new.into_iter().all(|unit| unit.withheld));
        }
        assert!(simulation.ready() >= 2, "{}", simulation.transcript());
    }
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
    assert_eq!(
        seen[..3],
        [Phase::Pending, Phase::Gating, Phase::Rolling { batch: 0 }],
        "{}",
        simulation.transcript()
    );
    let gates = &deployment(&simulation).gates;
    let outcomes = |part| gates.trials[&part].ended.as_ref().map(|ended| ended.outcome);
    for part in [Part::Reference, Part::Before, Part::After] {
        assert_eq!(outcomes(part), Some(Outcome::Pass), "{part:?}");
    }
}

#[test]
fn a_release_that_answers_wrongly_goes_back_without_ever_having_served() {
    for pauses in [false, true] {
        let mut shape = gated(PARITY);
        shape.stages[0].pauses = pauses;
        let mut simulation = Simulation::new(shape, 41);
        simulation.run(200);
        simulation.apply(Event::Release(0, 6));
        for _ in 0..200 {
            simulation.run(1);
            assert!(simulation.ready() >= 2, "{}", simulation.transcript());
        }
        let waiting = simulation.waiting();
        let said = if pauses {
            "paused: parity suite `golden`"
        } else {
            "held at `chat-good-0`, because `chat-wrong-6` failed"
        };
        assert!(waiting.contains(said), "{waiting}");
        let releases =
            if pauses { vec![("chat-good-0", 2), ("chat-wrong-6", 1)] } else { vec![("chat-good-0", 2)] };
        assert_eq!(simulation.running(), releases, "{}", simulation.transcript());
        simulation.apply(Event::Release(0, 1));
        simulation.run(300);
        assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
    }
}

#[test]
fn a_gate_that_says_nothing_is_run_again_and_then_left_to_a_person() {
    let mut simulation = begun(PARITY, 1);
    simulation.apply(Event::Deaf(true));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "nothing moves before the reference has answered");
    let waiting = simulation.waiting();
    assert!(waiting.contains("the reference of parity suite `golden` is away"), "{waiting}");
    simulation.run(700);
    assert!(simulation.waiting().contains("paused: the gate says nothing"), "{}", simulation.waiting());
    simulation.apply(Event::Action(0, RolloutAction::Resume));
    simulation.run(300);
    let waiting = simulation.waiting();
    assert!(waiting.is_empty() || waiting.contains("golden"), "a person has decided: {waiting}");
    assert!(simulation.running().contains(&("chat-good-1", 2)), "{}", simulation.transcript());
}

#[test]
fn a_gate_that_is_late_fails_as_its_deadline_says() {
    let mut simulation = begun(GateShape { deadline: Some(60), ..PARITY }, 1);
    simulation.apply(Event::Deaf(true));
    simulation.run(100);
    let waiting = simulation.waiting();
    assert!(waiting.contains("the gate did not say enough in time; last: seen"), "{waiting}");
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
}

#[test]
fn a_passed_gate_is_not_run_again_after_a_restart_and_a_lost_host_is_no_failure() {
    let mut simulation = begun(PARITY, 1);
    simulation.run(3);
    while !deployment(&simulation).gates.trials.contains_key(&Part::Before) {
        simulation.run(1);
    }
    let asked = deployment(&simulation).gates.trials[&Part::Before].asked.clone();
    let Asked::Unit(asked) = asked else { panic!("a unit") };
    let host = simulation.hosts.iter().position(|host| host.name == asked.host).unwrap();
    simulation.apply(Event::HostVanishes(host));
    simulation.run(300);
    assert_eq!(deployment(&simulation).phase, Phase::Succeeded, "{}", simulation.transcript());
    let attempts = deployment(&simulation).gates.trials[&Part::Before].attempt;
    assert!(attempts > 1, "{}", simulation.transcript());
    simulation.apply(Event::Restart(5));
    simulation.run(60);
    assert_eq!(deployment(&simulation).gates.trials[&Part::Before].attempt, attempts);
}

#[test]
fn what_is_lost_while_a_gate_is_waited_for_is_replaced() {
    let mut simulation = begun(PARITY, 1);
    simulation.run(3);
    while !deployment(&simulation).gates.trials.contains_key(&Part::Before) {
        simulation.run(1);
    }
    simulation.apply(Event::Deaf(true));
    let host = simulation.host_of_a_unit();
    simulation.apply(Event::HostVanishes(host));
    simulation.run(200);
    assert_eq!(deployment(&simulation).phase, Phase::Gating, "{}", simulation.transcript());
    let running = [("chat-good-0", 3), ("chat-good-1", 1)];
    assert_eq!(simulation.running(), running, "one of them is out of reach\n{}", simulation.transcript());
    assert_eq!(simulation.ready(), 2, "and the new one takes no traffic");
}

#[test]
fn a_gate_can_be_left_at_any_point() {
    for seconds in 1..40 {
        for release in [None, Some(0), Some(1)] {
            let mut simulation = begun(PARITY, 6);
            simulation.run(seconds);
            match release {
                Some(release) => simulation.apply(Event::Release(0, release)),
                None => simulation.apply(Event::Action(0, RolloutAction::Abort)),
            }
            simulation.run(200);
            let wanted = if release == Some(1) { "chat-good-1" } else { "chat-good-0" };
            assert_eq!(simulation.running(), [(wanted, 2)], "{seconds} s\n{}", simulation.transcript());
        }
    }
}

#[test]
fn an_alarm_that_fires_already_stops_a_start() {
    let mut simulation = begun(alarm("pause"), 0);
    simulation.apply(Event::AlarmSays(0, 1));
    simulation.run(5);
    simulation.apply(Event::Release(0, 1));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    assert!(simulation.waiting().contains("alarm `errors-pause` fires already"), "{}", simulation.waiting());
    simulation.apply(Event::AlarmSays(0, 0));
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-1", 2)], "{}", simulation.transcript());
}

#[test]
fn an_alarm_that_fires_on_the_way_turns_back() {
    let mut simulation = begun(alarm("pause"), 1);
    while !matches!(deployment(&simulation).phase, Phase::Baking { .. }) {
        simulation.run(1);
    }
    simulation.apply(Event::AlarmSays(0, 1));
    simulation.run(100);
    assert_eq!(simulation.running(), [("chat-good-0", 2)], "{}", simulation.transcript());
    assert!(simulation.waiting().contains("alarm `errors-pause` fires: read"), "{}", simulation.waiting());
}

#[test]
fn an_alarm_with_too_little_to_say_does_as_its_manifest_says() {
    for (what, release) in [("pass", "chat-good-1"), ("fail", "chat-good-0")] {
        for says in [2, 3] {
            let mut simulation = begun(alarm(what), 0);
            simulation.apply(Event::AlarmSays(0, says));
            simulation.apply(Event::Release(0, 1));
            simulation.run(200);
            assert_eq!(simulation.running(), [(release, 2)], "{}", simulation.transcript());
        }
    }
    let mut simulation = begun(alarm("pause"), 0);
    simulation.apply(Event::AlarmSays(0, 2));
    simulation.apply(Event::Release(0, 1));
    simulation.run(200);
    let waiting = simulation.waiting();
    assert!(waiting.contains("paused: alarm `errors-pause` has too little to say"), "{waiting}");
    // Whoever resumes it decides for this batch.
    simulation.apply(Event::Action(0, RolloutAction::Resume));
    simulation.run(100);
    assert!(simulation.running().contains(&("chat-good-1", 2)), "{}", simulation.transcript());
}

/// What the checker finds in a plan of just these steps.
fn found(simulation: &Simulation, steps: Vec<Step>) -> Vec<Violation> {
    check(&simulation.world(), &Plan { steps, ..Plan::default() })
}

#[test]
fn a_gate_that_is_skipped_is_caught() {
    let mut simulation = begun(PARITY, 1);
    let withheld = loop {
        simulation.run(1);
        let new = simulation.records.units.iter().find(|(_, unit)| unit.withheld);
        if let Some((id, unit)) = new {
            break (id.clone(), unit.clone());
        }
    };
    let (stage, at, (unit, record)) = (stage_id(0), simulation.now, withheld);
    let rolling =
        Step::MoveDeployment { stage: stage.clone(), phase: Phase::Rolling { batch: 0 }, reason: None, at };
    assert_eq!(found(&simulation, vec![rolling]), [Violation::BegunUngated { stage: stage.clone() }]);
    let admitted = Violation::AdmittedUngated { unit: unit.clone() };
    let admit = Step::AdmitUnit { unit: unit.clone(), at };
    let ready = Step::MarkReady { unit, at };
    let each = [found(&simulation, vec![admit]), found(&simulation, vec![ready])];
    assert_eq!(each, [vec![admitted.clone()], vec![admitted]]);
    let open = denv_planner::UnitRecord { withheld: false, ..(*record).clone() };
    let start = Step::StartUnit { unit: denv_schema::UnitId::new(&stage, 99), record: open };
    let violations = found(&simulation, vec![start]);
    assert!(violations.iter().any(|it| matches!(it, Violation::AdmittedUngated { .. })), "{violations:?}");
}

#[test]
fn what_another_stage_serves_can_be_the_reference() {
    let mut shape = gated(GateShape { beside: true, ..PARITY });
    let other = StageShape { gates: GateShape::default(), ..shape.stages[0].clone() };
    shape.stages.push(other);
    let mut simulation = Simulation::new(shape, 42);
    simulation.apply(Event::Scale(1, 0));
    simulation.run(100);
    let waiting = simulation.waiting();
    assert!(waiting.contains("is away: no unit of stage `code/prod` is ready"), "{waiting}");
    assert_eq!(simulation.units().len(), 0, "nothing moves before it is there");
    simulation.apply(Event::Scale(1, 1));
    simulation.run(200);
    assert_eq!(simulation.running(), [("chat-good-0", 2), ("code-good-0", 1)], "{}", simulation.transcript());
    let Asked::Unit(asked) = &deployment(&simulation).gates.trials[&Part::Reference].asked else {
        panic!("a unit")
    };
    assert_eq!(asked.release.as_str(), "code-good-0");
}
