//! Images on this host: pulled, kept, and removed where their room is needed. It refuses to know of containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;

use super::{Podman, PodmanError, SHORT, last_line, said, shortened};

/// The images of this host that engines are started from. What was pulled here is remembered, so that it can make room for
/// others; images that somebody else brought are used, and never removed.
pub struct Images {
    podman: Podman,
    /// A file for each image that was pulled, by its digest, with its name: last written when it was last asked for.
    pulled: PathBuf,
    /// Where podman puts what it has not unpacked yet.
    under_way: PathBuf,
    /// One pull at a time: those that serve are disturbed little.
    turn: Mutex<()>,
    in_use: OnceLock<Box<dyn Fn() -> BTreeSet<String> + Send + Sync>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("the image `{image}` cannot be pulled: {said}")]
    Pull {
        image: String,
        said: String,
        /// The registry is away.
        passing: bool,
    },
    #[error("cannot tell whether the image `{image}` is here: {source}")]
    Look { image: String, source: PodmanError },
    #[error("this host has no podman to start engines from images; install it and restart denvd")]
    NoPodman,
}

impl ImageError {
    /// Whether it may go better the next time without anybody's doing: the registry is away, or podman was slow to answer.
    pub fn may_pass(&self) -> bool {
        match self {
            ImageError::Pull { passing, .. } => *passing,
            ImageError::Look { .. } => true,
            ImageError::NoPodman => false,
        }
    }
}

/// How the registry's absence shows in podman's words, which are those of Go's libraries and of HTTP.
const AWAY: [&str; 22] = [
    "connection refused",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "no such host",
    "temporary failure in name resolution",
    "server misbehaving",
    "i/o timeout",
    "tls handshake timeout",
    "deadline exceeded",
    "unexpected eof",
    "toomanyrequests",
    "too many requests",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
    "500 internal server error",
    "connection timed out",
    "client.timeout exceeded",
    "broken pipe",
    "stream error",
    ": eof",
];
/// A terabyte at 100 MB/s. A registry that stalls is taken to be away then.
const LONGEST_PULL: Duration = Duration::from_secs(3 * 3600);
const FULL: &str = "no space left on device";

fn is_away(said: &str) -> bool {
    let said = said.to_lowercase();
    AWAY.iter().any(|words| said.contains(words))
}

impl Images {
    /// `state_dir` keeps what was pulled here.
    pub fn new(podman: Podman, state_dir: &Path) -> Self {
        Images {
            podman,
            pulled: state_dir.join("images"),
            under_way: state_dir.join("images.partial"),
            turn: Mutex::default(),
            in_use: OnceLock::new(),
        }
    }

    pub fn podman(&self) -> &Podman {
        &self.podman
    }

    /// From now on the images that `in_use` names stay, however full the disk is.
    pub fn keep(&self, in_use: impl Fn() -> BTreeSet<String> + Send + Sync + 'static) {
        // It is said once, when the host begins.
        let _ = self.in_use.set(Box::new(in_use));
    }

    /// Returns when `image` is here. Giving up the future ends the work on it.
    pub async fn prepare(self: Arc<Self>, image: String) -> Result<(), ImageError> {
        // What is here waits for nobody: an engine that ended must come back while the next release's image is pulled.
        if self.uses(&image).await? {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        if self.uses(&image).await? {
            return Ok(());
        }
        loop {
            tracing::info!(image, "pulling an image");
            let Err(line) = self.pull(&image).await else { break };
            let makes_room = line.to_lowercase().contains(FULL) && self.evict(&image).await;
            if !makes_room {
                return Err(ImageError::Pull { image, said: shortened(&line), passing: is_away(&line) });
            }
        }
        tracing::info!(image, "pulled an image");
        self.note(&image);
        Ok(())
    }

    /// Whether it is here; then it counts as used now.
    async fn uses(&self, image: &str) -> Result<bool, ImageError> {
        let is_here = self.has(image).await?;
        if is_here {
            self.touch(image);
        }
        Ok(is_here)
    }

    async fn has(&self, image: &str) -> Result<bool, ImageError> {
        let look = |source| ImageError::Look { image: image.to_owned(), source };
        let output = self.podman.output(["image", "exists", image], SHORT).await.map_err(look)?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(look(PodmanError::Failed { said: said(&output.stderr) })),
        }
    }

    /// In podman's words, why not.
    async fn pull(&self, image: &str) -> Result<(), String> {
        // What a pull that was killed left behind. No other is under way.
        let _ = fs::remove_dir_all(&self.under_way);
        fs::create_dir_all(&self.under_way).map_err(|error| error.to_string())?;
        let mut pull = self.podman.command(["pull", "--quiet", image]);
        pull.env("TMPDIR", &self.under_way).kill_on_drop(true);
        let ended = tokio::time::timeout(LONGEST_PULL, pull.output()).await;
        let output =
            ended.map_err(|_| format!("i/o timeout: not done within {} h", LONGEST_PULL.as_secs() / 3600))?;
        let output = output.map_err(|error| self.podman.cannot_run(error).to_string())?;
        let _ = fs::remove_dir_all(&self.under_way);
        if output.status.success() { Ok(()) } else { Err(last_line(&output.stderr)) }
    }

    /// Removes the image that was used longest ago and that nothing needs. Whether there was one.
    async fn evict(&self, wanted: &str) -> bool {
        // Before it is known what is needed, none is removed.
        let Some(in_use) = self.in_use.get().map(|in_use| in_use()) else { return false };
        let is_idle = |name: &String| name != wanted && !in_use.contains(name);
        let mut idle: Vec<Pulled> = self.all_pulled().filter(|it| is_idle(&it.image)).collect();
        idle.sort_by_key(|it| it.used);
        for Pulled { image, note, .. } in idle {
            tracing::info!(image, "removing an image to make room");
            let removed = self.podman.call(["rmi", &image], SHORT * 4).await;
            if let Err(error) = &removed {
                // Somebody else uses it, or removed it.
                tracing::warn!(image, "not removed: {error}");
            }
            if removed.is_ok() || matches!(self.has(&image).await, Ok(false)) {
                let _ = fs::remove_file(note);
            }
            if removed.is_ok() {
                return true;
            }
        }
        false
    }

    fn all_pulled(&self) -> impl Iterator<Item = Pulled> {
        let entries = fs::read_dir(&self.pulled).into_iter().flatten();
        entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let is_whole = entry.path().extension().is_none();
            let image = fs::read_to_string(entry.path()).ok().filter(|_| is_whole)?;
            Some(Pulled { image, note: entry.path(), used: entry.metadata().ok()?.modified().ok()? })
        })
    }

    /// It is used now, if it was pulled here.
    fn touch(&self, image: &str) {
        if let Ok(note) = fs::File::options().write(true).open(self.note_of(image)) {
            // Else it counts as used when it was before, which may cost a pull.
            let _ = note.set_modified(SystemTime::now());
        }
    }

    fn note(&self, image: &str) {
        let path = self.note_of(image);
        let partial = path.with_extension("partial");
        let written = fs::create_dir_all(&self.pulled)
            .and_then(|()| fs::write(&partial, image))
            .and_then(|()| fs::rename(&partial, &path));
        if let Err(error) = written {
            // It is here, which is what counts; it is not removed to make room for others.
            tracing::warn!(image, "not noted in `{}`: {error}", path.display());
        }
    }

    fn note_of(&self, image: &str) -> PathBuf {
        // The digest is the same wherever the image is from, and a name may hold what no file name may.
        let digest = denv_schema::Digest::of_bytes(image.as_bytes()).to_string();
        self.pulled.join(digest.replace(':', "-"))
    }
}

struct Pulled {
    image: String,
    note: PathBuf,
    used: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_away_may_pass() {
        for away in [
            "initializing source docker://r/i: pinging container registry r: Get \"https://r/v2/\": dial tcp 10.0.0.1:443: connect: connection refused",
            "reading blob: Get https://r: net/http: TLS handshake timeout",
            "initializing source: received unexpected HTTP status: 503 Service Unavailable",
        ] {
            assert!(is_away(away), "{away}");
        }
        for gone in [
            "initializing source docker://r/i: reading manifest sha256:0: manifest unknown",
            "unauthorized: authentication required",
            "writing blob: storing blob to file: no space left on device",
        ] {
            assert!(!is_away(gone), "{gone}");
        }
        assert!(!ImageError::NoPodman.may_pass());
    }
}
