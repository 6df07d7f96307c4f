//! How an engine is run on this host: as a plain process in a group of its own, or in a container, with its output in a log
//! file. It owns processes, containers and their images, signals, the programs' search path and the logs; it refuses to know
//! why an engine is started or stopped, and what it serves.

mod engine;
mod environment;
mod log;
mod podman;
mod process;
mod procfs;
mod program;

pub use engine::{Engine, Launch, LaunchError, Room, take_over};
pub use environment::{Environment, EnvironmentError};
pub use log::LogFile;
pub use podman::{ImageError, Images, Podman, PodmanError};
pub use process::Marks;
pub use program::EnginePath;
