//! What every part of denv agrees on: manifests, the catalog they make, diagnostics, the launch specs that
//! releases render to, and the messages between processes.
//!
//! This crate owns meaning, not effects. It refuses to know the network, the store, clocks and processes; the
//! only I/O in it reads manifest files.

pub mod api;
pub mod catalog;
pub mod change;
pub mod diagnostic;
pub mod diff;
mod digest;
pub mod edit;
pub mod launch;
pub mod manifest;
pub mod measures;
mod name;
pub mod permission;
pub mod quantity;
pub mod reference;
pub mod secret;
pub mod tree;
pub mod unheeded;
pub mod wire;
mod yaml;

pub use catalog::{Catalog, Reading};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use digest::Digest;
pub use name::{InvalidName, MemberId, Name, StageId, UnitId};
