//! What manifests may hold, for people and tools: each kind's fields in words, its published JSON Schema, its page, its
//! Kubernetes definition. All of it is made from the types; nothing is said twice.

mod crd;
mod field;
mod page;
mod published;

pub use crd::crd;
pub use field::{Choice, Field, NoSuchField, explain};
pub use page::page;
pub use published::{all_kinds, json_schema};
