//! Scenarios an operator would recognise, over the real processes and the simulated engine.

#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, reason = "tests")]

mod clients;
mod fixture;
mod recovery;
mod refusals;
mod rollout;
