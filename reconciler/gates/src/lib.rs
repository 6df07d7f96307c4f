//! The pure core of gates: answers in, a verdict with its reasons out.
//!
//! [`parity`] judges a release by its answers to a suite's prompts, [`alarm`] by what was measured while it served.
//! This crate refuses to know clocks, the network and the store: who asked whom, and when, are values. What can't be
//! judged is [`Outcome::Inconclusive`], never an error.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod alarm;
pub mod parity;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What comes of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The release is as it should be.
    Pass,
    /// The release is not as it should be.
    Fail,
    /// Nothing can be said of the release: a reference or a host was away, or too little was measured.
    Inconclusive,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Pass => "passed",
            Outcome::Fail => "failed",
            Outcome::Inconclusive => "inconclusive",
        })
    }
}
