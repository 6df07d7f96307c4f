//! An operator who does what a script says, and writes down what people would read meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use denv_planner::actions::scale;
use denv_planner::{Deployment, Plan, StageRecord, Subject, status, wanted};
use denv_schema::manifest::Kind;
use denv_schema::tree::Files;
use denv_schema::{StageId, UnitId};
use jiff::Timestamp;
use serde_json::json;

use crate::saved;
use crate::script::{Fault, Line, State, Verb};
use crate::world::Simulation;

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
const WHO: &str = "ada";

pub struct Operator {
    /// Where files are that a script names.
    folder: PathBuf,
    world: Option<Simulation>,
    /// What each stage was said to wait on last.
    waiting: BTreeMap<StageId, String>,
    told: usize,
    transcript: String,
}

impl Operator {
    pub fn new(folder: &Path) -> Self {
        Operator {
            folder: folder.to_owned(),
            world: None,
            waiting: BTreeMap::new(),
            told: 0,
            transcript: String::new(),
        }
    }

    /// The transcript of the whole story, or where it does not go as it is told.
    pub fn follow(mut self, file: &str, lines: &[Line]) -> Result<String, String> {
        for line in lines {
            self.line(line).map_err(|error| {
                format!("{file}:{}: `{}`: {error}\n\n{}", line.number, line.text, self.transcript)
            })?;
        }
        self.show()?;
        Ok(self.transcript)
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        if let Some(at) = line.at {
            let world = self.world()?;
            let at = i64::try_from(at.as_secs()).map_err(|error| error.to_string())?;
            let left = u32::try_from(at - world.second()).map_err(|_| "it is later than that already")?;
            self.pass(left)?;
        }
        writeln!(self.transcript, "> {}", line.text).map_err(|error| error.to_string())?;
        self.act(&line.verb)?;
        self.tell()
    }

    fn world(&mut self) -> Result<&mut Simulation, String> {
        self.world.as_mut().ok_or_else(|| "a script begins with `world FILE`".to_owned())
    }

    fn act(&mut self, verb: &Verb) -> Result<(), String> {
        match verb {
            Verb::World(file) => return self.begin(file),
            Verb::Wait(time) => return self.pass(seconds(*time)),
            Verb::Until { stage, state } => return self.until(stage, state),
            Verb::Show => return self.show(),
            Verb::Push { kind, name, pointer, value } => {
                if let Err(refused) = self.world()?.push(*kind, name, pointer, value) {
                    writeln!(self.transcript, "refused, and changes nothing: {refused}").unwrap();
                }
            }
            Verb::Spoil { release, how } => {
                let flags = json!(["--release", format!("{release}-{how}")]);
                self.world()?.push(Kind::Release, release, "/spec/config/flags", &flags)?;
            }
            Verb::Expect { stage, state } => {
                let world = self.world()?;
                if !is(world, stage, state) {
                    return Err(format!("it is not so\n{}", told(world)));
                }
            }
            Verb::Fault { fault, on } => self.fault(*fault, on)?,
            Verb::Kill(time) => self.world()?.restart(seconds(*time)),
            Verb::Rollout(action, stage) => {
                if let Err(refused) = self.world()?.asked(stage, *action, WHO) {
                    writeln!(self.transcript, "refused: {refused}").unwrap();
                }
            }
            Verb::Scale(stage, units) => {
                let world = self.world()?;
                let spec = world.catalog.stages.get(stage).ok_or_else(|| format!("there is no {stage}"))?;
                match scale(spec, stage, *units, WHO, world.now) {
                    Ok(steps) => world.carry_out(&steps),
                    Err(refused) => writeln!(self.transcript, "refused: {refused}").unwrap(),
                }
            }
            Verb::Alarm(stage, says) => {
                let world = self.world()?;
                let index = world.stages.iter().position(|it| it == stage);
                world.runs.says.insert(index.ok_or_else(|| format!("there is no {stage}"))?, *says);
            }
        }
        Ok(())
    }

    fn begin(&mut self, file: &str) -> Result<(), String> {
        let path = self.folder.join(file);
        let bytes = std::fs::read(&path).map_err(|error| format!("cannot read it: {error}"))?;
        // A Friday, at 08:00 UTC.
        let begins = Timestamp::from_second(1_800_000_000).map_err(|error| error.to_string())?;
        self.world = Some(if file.ends_with(".json") {
            Simulation::saved(&saved::read(&String::from_utf8_lossy(&bytes))?, 0, 0)?
        } else {
            Simulation::written(Files::from([(file.to_owned(), bytes)]), begins, 1)?
        });
        Ok(())
    }

    fn fault(&mut self, fault: Fault, on: &str) -> Result<(), String> {
        let world = self.world()?;
        let now = world.now;
        if let Some(gateway) = world.gateways.iter_mut().find(|gateway| gateway.name.as_str() == on) {
            match fault {
                Fault::Cut => gateway.cut = true,
                Fault::Lose | Fault::Crash => gateway.die(now),
                Fault::Heal => (gateway.cut, gateway.alive) = (false, true),
                Fault::Reclaim | Fault::Refuse => return Err(format!("`{on}` is a gateway")),
            }
            return Ok(());
        }
        let host = world.hosts.iter_mut().find(|host| host.name.as_str() == on);
        let host = host.ok_or_else(|| format!("there is no host or gateway `{on}`"))?;
        match fault {
            Fault::Cut => host.cut = true,
            Fault::Lose => {
                host.lose_state();
                host.cut = true;
            }
            Fault::Reclaim => host.reclaim = Some(now + jiff::SignedDuration::from_mins(2)),
            Fault::Crash => (0..host.engines.len()).rev().for_each(|engine| host.crash(engine, now)),
            Fault::Refuse => host.refuses = true,
            Fault::Heal => (host.cut, host.refuses, host.reclaim) = (false, false, None),
        }
        Ok(())
    }

    fn pass(&mut self, seconds: u32) -> Result<(), String> {
        for _ in 0..seconds {
            self.world()?.run(1);
            self.tell()?;
        }
        Ok(())
    }

    fn until(&mut self, stage: &StageId, state: &State) -> Result<(), String> {
        for _ in 0..seconds(PATIENCE) {
            // What was just asked for has been looked at once before it is said to be there.
            self.pass(1)?;
            if is(self.world()?, stage, state) {
                return Ok(());
            }
        }
        let told = told(self.world()?);
        Err(format!("waited {} h in vain\n{told}", PATIENCE.as_secs() / 3600))
    }

    /// What has happened since it was last said, and what stages wait on where that is something else.
    fn tell(&mut self) -> Result<(), String> {
        let (Some(world), transcript) = (&self.world, &mut self.transcript) else { return Ok(()) };
        for (second, event) in &world.events[self.told..] {
            writeln!(transcript, "{} {event}", clock(*second)).map_err(|error| error.to_string())?;
        }
        self.told = world.events.len();
        if world.down_until.is_some() {
            return Ok(());
        }
        let planned = world.plan();
        for stage in &world.stages {
            let now = waits(&planned, stage);
            let before = self.waiting.insert(stage.clone(), now.clone()).unwrap_or_default();
            if now != before && !now.is_empty() {
                let said = format!("stage {stage} waits: {now}");
                writeln!(transcript, "{} {said}", clock(world.second()))
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn show(&mut self) -> Result<(), String> {
        let told = told(self.world()?);
        self.transcript.push_str(&told);
        Ok(())
    }
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// `1:02:03` since the world began.
fn clock(second: i64) -> String {
    let (hours, minutes) = (second / 3600, second / 60 % 60);
    format!("{:>8}", format!("{hours}:{minutes:02}:{:02}", second % 60))
}

fn waits(planned: &Plan, stage: &StageId) -> String {
    planned.waiting.get(&Subject::Stage(stage.clone())).map_or_else(String::new, ToString::to_string)
}

fn record<'w>(world: &'w Simulation, stage: &StageId) -> Option<&'w StageRecord> {
    world.records.stages.get(stage)
}

fn is(world: &Simulation, stage: &StageId, state: &State) -> bool {
    let record = record(world, stage);
    let deployment = record.and_then(|record| record.deployment.as_ref());
    match state {
        State::Paused => deployment.is_some_and(|deployment| deployment.paused),
        State::Held => record.is_some_and(|record| record.hold.is_some()),
        State::Phase(phase) => deployment.is_some_and(|it| phase_of(it) == *phase),
        State::Runs(release) => runs(world, stage, release),
        State::Waits(words) => {
            let mut waiting = world.plan().waiting.into_iter();
            waiting.any(|(subject, on)| {
                let of_stage = match &subject {
                    Subject::Stage(id) => id == stage,
                    Subject::Unit(unit) => world.records.units.get(unit).is_some_and(|it| it.stage == *stage),
                };
                of_stage && on.to_string().contains(words)
            })
        }
        State::Settled => {
            let (Some(spec), Some(record)) = (world.catalog.stages.get(stage), record) else { return false };
            let over = deployment.is_some_and(|deployment| deployment.phase.is_over());
            let good = record.hold.as_ref().and(record.good.as_ref()).map(|good| &good.release);
            over && runs(world, stage, good.unwrap_or(&spec.release).as_str())
        }
    }
}

fn runs(world: &Simulation, stage: &StageId, release: &str) -> bool {
    let Some(spec) = world.catalog.stages.get(stage) else { return false };
    let units: Vec<_> = world.records.units.iter().filter(|(_, unit)| unit.stage == *stage).collect();
    let planned = world.world();
    units.len() == wanted(spec, record(world, stage)) as usize
        && units
            .iter()
            .all(|(id, unit)| unit.release.as_str() == release && status(&planned, id, unit).is_ready())
}

/// The name of its phase, without the batch.
fn phase_of(deployment: &Deployment) -> String {
    deployment.phase.to_string().split(' ').next().unwrap_or_default().to_owned()
}

/// What runs and what waits.
fn told(world: &Simulation) -> String {
    let mut text = String::new();
    for (stage, record) in &world.records.stages {
        let spec = world
            .catalog
            .stages
            .get(stage)
            .map_or_else(String::new, |spec| format!(" wants {}", spec.release));
        let phase = record
            .deployment
            .as_ref()
            .map_or_else(String::new, |it| format!("; deployment {} {}", it.number, it.phase));
        writeln!(text, "  {stage}{spec}{phase}").unwrap();
    }
    let planned = world.world();
    let units: Vec<(&UnitId, _)> = world.records.units.iter().collect();
    for (id, unit) in units {
        let host = &unit.front().host;
        writeln!(text, "  {id} {} on {host}: {}", unit.release, status(&planned, id, unit).as_str()).unwrap();
    }
    for (subject, on) in world.plan().waiting {
        writeln!(text, "  {subject} waits: {on}").unwrap();
    }
    text
}
