//! denv's control plane: watches Git, plans, orchestrates, commands hosts, tells gateways, serves the API.
//!
//! | floor | modules |
//! | --- | --- |
//! | top | `main` |
//! | | `arguments` \| `tenant`: what is set; what runs for each tenant |
//! | | `api` \| `statuses` \| `promoter` \| `gates`: HTTP/JSON for people and tools; what forges are told; what passes to the next stage; who is asked whether a release is good |
//! | | `orchestrator`: gather, plan, execute; owns the records |
//! | | `source` \| `link`: Git on one side, hosts and gateways on the other |
//! | | `observation` \| `measurement`: what hosts and gateways said, the observed half of the world; what they measured |
//! | bottom | `store`: what must survive |
//!
//! Higher floors use lower ones; neighbours never use each other. What is decided is decided in `denv-planner`: this
//! crate only gathers and carries out. It writes Git only as one commit that a person or an environment's
//! promotion asks for, and never speaks to an engine.

pub mod api;
pub mod gates;
pub mod link;
pub mod measurement;
pub mod observation;
pub mod orchestrator;
pub mod promoter;
pub mod source;
pub mod statuses;
pub mod store;

pub(crate) use denv_schema::diagnostic::chain;
