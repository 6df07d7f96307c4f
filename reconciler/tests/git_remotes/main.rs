//! The reconciler as a process, fetching from remotes and pushing to them that really are: `git http-backend` behind TLS, and a stand-in for
//! `ssh` that runs the remote's command here.

#![expect(clippy::unwrap_used, reason = "all of it is tests")]

mod approvals;
mod forge;
mod hooks;
mod https;
mod local;
mod process;
mod publications;
mod repository;
mod server;
mod silence;
mod ssh;
mod tenants;
