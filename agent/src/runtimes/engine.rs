use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use denv_schema::MemberId;
use denv_schema::launch::{Container, Reference};
use denv_schema::wire::Generation;
use nix::errno::Errno;

use super::environment::{Environment, secret_lines};
use super::log::LogFile;
use super::podman::{self, Contained, ContainerFailure, Podman};
use super::process::{self, Marks, Process};
use super::procfs;
use super::program::EnginePath;
use crate::journal::EngineRecord;

/// An engine that was started. Dropping it leaves the engine running, so that denvd can be restarted.
#[derive(Debug)]
pub struct Engine {
    pub(super) record: EngineRecord,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Process(Box<Process>),
    Container(Contained),
}

/// Everything an engine is started with.
pub struct Launch<'a> {
    pub argv: &'a [String],
    pub environment: &'a Environment,
    pub path: &'a EnginePath,
    pub dir: &'a Path,
    pub log: &'a LogFile,
    pub port: u16,
    pub marks: &'a Marks,
    pub member: &'a MemberId,
    pub generation: Generation,
    /// None: it is a plain process.
    pub room: Option<Room<'a>>,
}

/// What a container is made of.
pub struct Room<'a> {
    pub podman: &'a Podman,
    pub container: &'a Container,
    /// The verified weights, to read.
    pub weights: Option<&'a Path>,
    /// Whether it uses accelerators.
    pub accelerated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("the launch spec has no program")]
    NoProgram,
    #[error("there is no program `{program}` on the engine path ({path})")]
    NotFound { program: String, path: String },
    #[error("cannot open the log `{path}`: {source}")]
    Log { path: PathBuf, source: io::Error },
    #[error("cannot start `{program}`: {source}")]
    Spawn { program: String, source: io::Error },
    #[error("cannot start a container: {0}")]
    Container(#[from] ContainerFailure),
}

impl LaunchError {
    /// Trying again would end the same way.
    pub fn is_permanent(&self) -> bool {
        match self {
            LaunchError::NoProgram | LaunchError::NotFound { .. } => true,
            LaunchError::Spawn { source, .. } => {
                matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
                    || source.raw_os_error() == Some(Errno::ENOEXEC as i32)
            }
            LaunchError::Log { .. } => false,
            LaunchError::Container(failure) => failure.is_permanent(),
        }
    }
}

/// How often an adopted engine and a dying one are looked at; the kernel tells only parents.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Engine {
    pub async fn launch(launch: &Launch<'_>) -> Result<Engine, LaunchError> {
        match &launch.room {
            None => process::launch(launch),
            Some(room) => podman::launch(launch, room).await,
        }
    }

    pub fn record(&self) -> &EngineRecord {
        &self.record
    }

    /// What it was given by references in `variables`: nothing but its own environment, and that of its container, holds that
    /// any more after a restart of denvd.
    pub fn secrets(&self, variables: &BTreeMap<String, String>) -> Vec<String> {
        let of_reference =
            |name: &String| variables.get(name).is_some_and(|value| Reference::parse(value).is_some());
        let given = procfs::environment(self.record.pid).into_iter();
        given.filter(|(name, _)| of_reference(name)).flat_map(|(_, value)| secret_lines(&value)).collect()
    }

    /// SIGTERM: to the whole group of a process; to the first process of a container, which passes it on.
    pub fn terminate(&self) {
        match &self.body {
            Body::Process(_) => process::terminate(&self.record),
            Body::Container(_) => podman::terminate(&self.record),
        }
    }

    /// SIGKILL to all of it.
    pub fn kill(&self) {
        match &self.body {
            Body::Process(_) => process::kill(&self.record),
            Body::Container(_) => podman::kill(&self.record),
        }
    }

    /// How the engine ended, once nothing of it is left. May be called again after it was given up.
    pub async fn ended(&mut self) -> String {
        match &mut self.body {
            Body::Process(process) => process.ended(&self.record).await,
            Body::Container(contained) => contained.ended(&self.record).await,
        }
    }
}

/// Takes over from a denvd before: adopts the engines of `known` that run, and ends what nobody looks after, which
/// is what is left of engines that ended meanwhile, and engines that were started in the instant before they could be
/// written down. Of those, one that `is_wanted` is adopted too. Returns when what was killed is gone, so that its GPUs are
/// free.
pub async fn take_over(
    marks: &Marks,
    podman: Option<&Podman>,
    known: Vec<(MemberId, EngineRecord)>,
    is_wanted: impl Fn(&MemberId, Generation) -> bool,
) -> BTreeMap<MemberId, Engine> {
    let Ok(boot) = procfs::boot() else { return BTreeMap::new() };
    let known = known.into_iter().filter(|(_, record)| record.boot == boot);
    let (contained, processes) = known.partition(|(_, record)| record.container.is_some());
    let mut engines = process::take_over(marks, &boot, processes, &is_wanted).await;
    // A member is not both, unless its release changed from one to the other: then the process is what was known.
    let is_free =
        |member: &MemberId, generation| !engines.contains_key(member) && is_wanted(member, generation);
    let containers = podman::take_over(podman, marks, &boot, contained, is_free).await;
    for (member, engine) in containers {
        engines.entry(member).or_insert(engine);
    }
    engines
}

/// Whether the process that `record` names runs.
pub(super) fn leader_runs(record: &EngineRecord) -> bool {
    procfs::stat(record.pid).is_some_and(|stat| stat.started_ticks == record.started_ticks && !stat.ended)
}
