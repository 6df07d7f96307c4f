//! denvd with real engine processes, real TLS, and a control plane of the tests' own.

#![expect(clippy::unwrap_used, reason = "all of it is tests")]

mod bench;
mod daemon;
mod engines;
mod ingress;
mod peers;
mod secrets;
