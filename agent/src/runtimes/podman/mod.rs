//! Engines in containers, by podman: it needs no daemon that all engines would end with, and what it started runs on
//! without denvd. Its command line is the interface that stays the same from version to version. It refuses to know why an
//! engine is started.

mod cdi;
mod container;
mod images;
mod mounts;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;

pub(super) use container::{Contained, ContainerFailure, kill, launch, take_over, terminate};
pub use images::{ImageError, Images};

use super::program::EnginePath;

/// The podman of this host.
#[derive(Clone, Debug)]
pub struct Podman {
    program: Arc<Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum PodmanError {
    #[error("`{program}` cannot be run: {source}")]
    Run { program: PathBuf, source: io::Error },
    #[error("`podman {verb}` did not end within {seconds} s")]
    Slow { verb: String, seconds: u64 },
    #[error(
        "no CDI specification in {} describes `{}`; make one: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        cdi::FOLDERS.join(" or "),
        cdi::ACCELERATORS
    )]
    NoCdi,
    /// In podman's words.
    #[error("podman says: {said}")]
    Failed { said: String },
}

/// What only looks at containers, or removes one, takes no longer, also on a busy machine.
const SHORT: Duration = Duration::from_secs(30);
/// More of what podman said is no help.
const SAID_BYTES: usize = 500;

impl Podman {
    /// None: there is none on the engine path or the `PATH`.
    pub fn find(path: &EnginePath) -> Option<Podman> {
        Some(Podman { program: path.find("podman")?.into() })
    }

    /// Whether engines can be started by it. Where a host is `accelerated`, containers must be able to get its accelerators:
    /// else a release would be blamed for what the host lacks.
    pub async fn check(&self, accelerated: bool) -> Result<(), PodmanError> {
        if accelerated && !cdi::describes(cdi::FOLDERS, cdi::ACCELERATORS) {
            return Err(PodmanError::NoCdi);
        }
        // It looks at its storage and its runtime, and fails where it could start nothing.
        let version = self.call(["info", "--format", "{{.Version.Version}}"], SHORT).await?;
        tracing::info!(program = %self.program.display(), version = version.trim(), "engines may run in containers");
        Ok(())
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&*self.program);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// What it printed.
    async fn call<const N: usize>(
        &self,
        arguments: [&str; N],
        limit: Duration,
    ) -> Result<String, PodmanError> {
        let output = self.output(arguments, limit).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(PodmanError::Failed { said: said(&output.stderr) })
    }

    /// What it printed, and its status, whatever that is.
    async fn output<const N: usize>(
        &self,
        arguments: [&str; N],
        limit: Duration,
    ) -> Result<Output, PodmanError> {
        let mut command = self.command(arguments);
        let ended = tokio::time::timeout(limit, command.kill_on_drop(true).output());
        let output = ended.await.map_err(|_| PodmanError::Slow {
            verb: arguments.first().copied().unwrap_or_default().to_owned(),
            seconds: limit.as_secs(),
        })?;
        output.map_err(|source| self.cannot_run(source))
    }

    fn cannot_run(&self, source: io::Error) -> PodmanError {
        PodmanError::Run { program: self.program.to_path_buf(), source }
    }
}

/// What podman gave as the reason, for people.
fn said(stderr: &[u8]) -> String {
    shortened(&last_line(stderr))
}

/// Its last line, which says most.
fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing");
    line.strip_prefix("Error: ").unwrap_or(line).to_owned()
}

/// The end of it, where the cause stands.
fn shortened(line: &str) -> String {
    let begin = line.len().saturating_sub(SAID_BYTES);
    let begin = (begin..=line.len()).find(|begin| line.is_char_boundary(*begin)).unwrap_or(0);
    if begin > 0 { format!("…{}", &line[begin..]) } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_reason() {
        assert_eq!(said(b"Trying to pull\nError: no such image\n\n"), "no such image");
        assert_eq!(said(b""), "nothing");
        let long = said(format!("{}: no space left on device", "é".repeat(600)).as_bytes());
        assert!(long.len() <= SAID_BYTES + 3 && long.ends_with("no space left on device"), "{long}");
    }
}
