//! denvd, the agent on each host. It owns the engines of this host: it takes commands from the control plane, starts,
//! checks, restarts and stops engine processes, fetches and verifies weights, reports what it sees, and lets gateways in through
//! its ingress.
//!
//! It stays dumb about engines: what to run arrives rendered, as a launch spec. It refuses to know releases, stages,
//! units, rollouts and other hosts, and it never decides what should run.
//!
//! Floors, each using only lower ones, neighbours never each other:
//!
//! | Floor | Modules |
//! | --- | --- |
//! | main | `main`, [`daemon`], [`arguments`] |
//! | streams | [`link`] to the control plane, [`ingress`] for gateways |
//! | questions | [`engines`], which asks the engines of this host |
//! | host | [`runner`], the queue and its members' tasks; [`prefetch`], what is to be ready before; [`inventory`]; [`reclaim`], its provider's notice |
//! | cores and means | [`supervisor`], which decides; [`runtimes`], processes and containers; [`weights`] |
//! | record | [`journal`] |
//!
//! Without the control plane everything goes on. Without denvd the engines go on, and the next denvd adopts them.

pub mod arguments;
pub mod daemon;
pub mod engines;
pub mod ingress;
pub mod inventory;
pub mod journal;
pub mod link;
pub mod prefetch;
pub mod reclaim;
pub mod runner;
pub mod runtimes;
pub mod supervisor;
pub mod weights;
