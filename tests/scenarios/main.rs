//! Scenarios an operator would recognise, over the real processes and the simulated engine.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "tests")]

mod fixture;
mod rollout;
