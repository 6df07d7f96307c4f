//! Worlds by number: the same seed is always the same world with the same life, so that a failure can be looked at again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use denv_planner::Snapshot;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::events::Event;
use crate::manifests::Shape;
use crate::world::Simulation;
use crate::{event, saved, shape};

/// What seeds make of a world.
#[derive(Clone, Debug)]
pub enum Origin {
    /// One of its own, from nothing.
    Nothing,
    /// A saved one goes on. `rests`: left alone, it comes to rest as it should be.
    Saved { snapshot: Arc<Snapshot>, rests: bool },
}

impl Origin {
    /// And why the saved world does not come to rest when it is left alone, if it does not: then only what must never
    /// happen is looked for.
    pub fn of_snapshot(snapshot: Arc<Snapshot>) -> (Self, Option<String>) {
        let begins = Begins::Saved(Arc::clone(&snapshot));
        let restless = match (Life { begins, rests: true, seed: 0, events: Vec::new() }).live() {
            Ok(restless) => restless,
            Err(broken) => panic!("left alone: {broken}"),
        };
        (Origin::Saved { snapshot, rests: restless.is_none() }, restless)
    }
}

#[derive(Clone, Debug)]
enum Begins {
    Shaped(Shape),
    Saved(Arc<Snapshot>),
}

/// A world and what happens to it.
#[derive(Clone, Debug)]
struct Life {
    begins: Begins,
    /// It comes to rest when it is left alone.
    rests: bool,
    seed: u64,
    events: Vec<Event>,
}

impl Life {
    fn of(seed: u64, origin: &Origin) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let life = (shape(), prop::collection::vec(event(), 0..40));
        let (shape, events) = life.new_tree(&mut runner).unwrap().current();
        let (begins, rests) = match origin {
            Origin::Nothing => (Begins::Shaped(shape), true),
            Origin::Saved { snapshot, rests } => (Begins::Saved(Arc::clone(snapshot)), *rests),
        };
        Life { begins, rests, seed, events }
    }

    fn begin(&self) -> Simulation {
        match &self.begins {
            Begins::Shaped(shape) => Simulation::new(shape.clone(), self.seed),
            Begins::Saved(snapshot) => Simulation::saved(snapshot, self.seed % 4, self.seed).unwrap(),
        }
    }

    /// What is wrong with how it went, if something is.
    fn trouble(&self) -> Option<String> {
        match self.live() {
            Ok(restless) => restless.filter(|_| self.rests),
            Err(broken) => Some(broken),
        }
    }

    /// Why it is not at rest in the end, if it is not; or what happened that must never happen.
    fn live(&self) -> Result<Option<String>, String> {
        let run = || {
            let mut simulation = self.begin();
            for event in &self.events {
                simulation.apply(*event);
                simulation.run(3);
            }
            simulation.heal();
            simulation.settle()
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            text.unwrap_or_else(|| "it panicked".to_owned())
        })
    }

    /// The same trouble with as few events as will do: what is left out is tried in halves, then singly.
    fn shortened(mut self) -> Self {
        let mut size = self.events.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.events.len() {
                let mut fewer = self.clone();
                fewer.events.drain(at..(at + size).min(self.events.len()));
                if fewer.trouble().is_some() { self = fewer } else { at += size }
            }
            if size == 1 {
                return self;
            }
            size = size.div_ceil(2);
        }
    }
}

/// Runs these seeds, and tells of the first that fails, shortly.
pub fn run(seeds: std::ops::Range<u64>, origin: &Origin) {
    // A failure is told once, at its end, and not at every try to shorten it.
    std::panic::set_hook(Box::new(|_| {}));
    let failed = seeds.into_iter().find(|seed| Life::of(*seed, origin).trouble().is_some());
    let told = failed.map(|seed| {
        let short = Life::of(seed, origin).shortened();
        let again = if matches!(origin, Origin::Nothing) { "" } else { "WORLD=… " };
        format!(
            "seed {seed} fails; with {} of its events:\n{:?}\n{}\nTo see it again: make soak {again}SEED={seed}",
            short.events.len(),
            short.events,
            short.trouble().unwrap_or_default()
        )
    });
    drop(std::panic::take_hook());
    if let Some(told) = told {
        panic!("{told}");
    }
}

/// A quarter of the thousand worlds that every build looks at.
fn quarter(number: u64) {
    run(number * 250..(number + 1) * 250, &Origin::Nothing);
}

#[test]
fn seeds_of_the_first_quarter() {
    quarter(0);
}

#[test]
fn seeds_of_the_second_quarter() {
    quarter(1);
}

#[test]
fn seeds_of_the_third_quarter() {
    quarter(2);
}

#[test]
fn seeds_of_the_last_quarter() {
    quarter(3);
}

/// As many as `SEEDS` says, on all cores, or the one that `SEED` names; in the world that `WORLD` holds, if it is given.
#[test]
#[ignore = "for `make soak`"]
fn soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let world = std::env::var("WORLD").ok().filter(|path| !path.is_empty());
    let mut origin = Origin::Nothing;
    if let Some(path) = world {
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
        let snapshot = saved::read(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (saved, restless) = Origin::of_snapshot(Arc::new(snapshot));
        origin = saved;
        if let Some(restless) = restless {
            println!("left alone, this world does not come to rest, and need not after faults: {restless}");
        }
    }
    if let Some(seed) = number("SEED") {
        return run(seed..seed + 1, &origin);
    }
    let usual = if matches!(origin, Origin::Nothing) { 10_000 } else { 100 };
    let (seeds, first) = (number("SEEDS").unwrap_or(usual), number("FROM").unwrap_or(1_000));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let share = seeds.div_ceil(threads);
    let began = std::time::Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (from, origin) = (first + thread * share, origin.clone());
            std::thread::spawn(move || run(from..(from + share).min(first + seeds), &origin))
        })
        .collect();
    for worker in workers {
        if let Err(panic) = worker.join() {
            std::panic::resume_unwind(panic);
        }
    }
    println!("{seeds} seeds from {first} on, in {:.0?}", began.elapsed());
}
