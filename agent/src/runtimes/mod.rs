//! How an engine is run on this host: as a plain process in a group of its own, with its output in a log file. It
//! owns processes, signals, the programs' search path and the logs; it refuses to know why an engine is started or
//! stopped, and what it serves.

mod environment;
mod log;
mod process;
mod procfs;
mod program;

pub use environment::{Environment, EnvironmentError};
pub use log::LogFile;
pub use process::{Engine, Launch, LaunchError, Marks, take_over};
pub use program::EnginePath;
