//! Scenarios an operator would recognise, over the real processes and the simulated engine.

#![allow(clippy::unwrap_used, clippy::print_stderr, unreachable_pub, reason = "tests")]

mod alarms;
mod approvals;
mod caches;
mod certificates;
mod changes;
mod clients;
mod departures;
mod desired_state;
mod fixture;
mod gates;
mod images;
mod members;
mod networks;
mod partitions;
mod providers;
mod pull_requests;
mod recovery;
mod refusals;
mod rollout;
mod secrets;
mod streams;
mod troubles;
mod weights;
