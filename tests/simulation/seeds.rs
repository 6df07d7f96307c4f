//! Worlds by number: the same seed is always the same world with the same life, so that a failure can be looked at again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::events::Event;
use crate::manifests::Shape;
use crate::world::Simulation;
use crate::{event, shape};

/// A world and what happens to it.
#[derive(Clone, Debug)]
pub struct Life {
    shape: Shape,
    seed: u64,
    events: Vec<Event>,
}

impl Life {
    pub fn of(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let life = (shape(), prop::collection::vec(event(), 0..40));
        let (shape, events) = life.new_tree(&mut runner).unwrap().current();
        Life { shape, seed, events }
    }

    /// What is wrong with how it went, if something is.
    pub fn trouble(&self) -> Option<String> {
        let run = || {
            let mut simulation = Simulation::new(self.shape.clone(), self.seed);
            for event in &self.events {
                simulation.apply(*event);
                simulation.run(3);
            }
            simulation.heal();
            simulation.settle()
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(text.unwrap_or_else(|| "it panicked".to_owned()))
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
pub fn run(seeds: std::ops::Range<u64>) {
    // A failure is told once, at its end, and not at every try to shorten it.
    std::panic::set_hook(Box::new(|_| {}));
    let failed = seeds.into_iter().find(|seed| Life::of(*seed).trouble().is_some());
    let told = failed.map(|seed| {
        let short = Life::of(seed).shortened();
        format!(
            "seed {seed} fails; with {} of its events:\n{:?}\n{}\nTo see it again: make soak SEED={seed}",
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
    run(number * 250..(number + 1) * 250);
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

/// As many as `SEEDS` says, on all cores, or the one that `SEED` names.
#[test]
#[ignore = "for `make soak`"]
fn soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        return run(seed..seed + 1);
    }
    let (seeds, first) = (number("SEEDS").unwrap_or(10_000), number("FROM").unwrap_or(1_000));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let share = seeds.div_ceil(threads);
    let began = std::time::Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let from = first + thread * share;
            std::thread::spawn(move || run(from..(from + share).min(first + seeds)))
        })
        .collect();
    for worker in workers {
        if let Err(panic) = worker.join() {
            std::panic::resume_unwind(panic);
        }
    }
    println!("{seeds} seeds from {first} on, in {:.0?}", began.elapsed());
}
