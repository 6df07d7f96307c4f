//! The pure core: a world in, a plan out.
//!
//! [`plan`] is infallible and synchronous, and the same world always gives the same plan. Previews and the running
//! reconciler call it alike. This crate refuses to know clocks, randomness, logs, the network and the store: time
//! is a value in the [`World`], ids derive from records, and what can't be done is a [`WaitingOn`], never an error.
//!
//! Each decision is a function in a file of its own:
//!
//! | file | decides |
//! | --- | --- |
//! | `status` | what a unit is, from what is recorded and what is observed |
//! | `placement` | which host and accelerators a unit gets |
//! | `batches` | how many units of each fleet a batch moves |
//! | `counts` | how many units each fleet of a stage has |
//! | `converge` | which units to start and which to drain, within the budget |
//! | `lifecycle` | when a drained unit stops and a stopped one is forgotten |
//! | `deployment` | the phases of a stage's change: rolling, baking, rolling back, held |
//! | `deployment/gate` | whether the release's answers let it take traffic, and end |
//! | `deployment/alarm` | what the stage's alarms say to its deployment |
//! | `deployment/prefetch` | what hosts are to have before anything moves |
//! | `calendar` | whether a batch may begin, by windows and freezes |
//! | `strangers` | what ends that hosts run and no record knows |
//! | `adoption` | what of it is kept, where the records were lost |
//! | `loss` | whether silent hosts are lost, or denv is blind |
//! | `reclaim` | what leaves a host that its provider takes back |
//! | `actions` | what a person may ask of a deployment |
//! | `routes` | what gateways are told |
//! | `wake` | when to plan again even if nothing is heard |
//! | `checker` | whether a plan keeps the invariants |
//! | `vet` | which stages' parts of a plan may be carried out |
//! | `promotion` | when a proven release passes to the next stage by itself |
//! | `forecast` | what would happen, by running all of these forward in imagined time |

#![warn(clippy::wildcard_enum_match_arm)]

pub mod actions;
mod adoption;
mod batches;
mod calendar;
pub mod checker;
mod converge;
mod counts;
mod deployment;
pub mod forecast;
mod lifecycle;
mod loss;
mod pass;
mod placement;
mod plan;
mod promotion;
mod reclaim;
mod records;
mod routes;
mod snapshot;
mod status;
mod strangers;
mod trial;
mod vet;
mod waiting;
mod wake;
mod world;

pub use counts::wanted;
pub use deployment::plan;
pub use placement::{Chosen, DomainVerdict, FleetSurvey, survey};
pub use plan::{Plan, Step, Subject};
pub use promotion::{Proven, promotions};
pub use records::{
    Approved, Deployment, Good, Hold, HostFaults, MemberRecord, Phase, Rebuilt, Records, Repairs, Scale,
    StageRecord, UnitPhase, UnitRecord,
};
pub use routes::{knows_what_serves, routes};
pub use snapshot::Snapshot;
pub use status::{Fault, UnitStatus, status};
pub use trial::{AlarmObserved, Asked, AskedPrefill, AskedUnit, Ended, Gates, Part, Trial, TrialObserved};
pub use vet::vet;
pub use waiting::{NoRoom, NotPrepared, WaitingOn};
pub use world::{GatewayObserved, HostObserved, Observed, World};
