//! What the gateway needs to know of an engine's answer: its usage, and whether a stream came to its end.
//!
//! It owns the reading of answers, whole ones and streams. It refuses to know what they say, and where they go.

mod events;
mod usage;

pub use events::{Events, TooLong};
pub use usage::usage_of;
