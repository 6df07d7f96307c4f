//! A push to a repository on this machine. libgit2's own would set the branch without a look at where it stands by then,
//! and so undo what another pushed in between.

use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use git2::{Error, ErrorCode, Oid, Repository};

/// How long another may hold the branch's lock: no longer than it takes to write a line.
const LOCKED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum LocalError {
    Moved,
    /// It has a worktree, which would stay behind.
    NotBare,
    Git(Error),
}

impl From<Error> for LocalError {
    fn from(error: Error) -> Self {
        LocalError::Git(error)
    }
}

/// Makes a branch of the repository at `path` point to a commit of `mirror`, if it stands at `base`, or is not there.
pub(super) fn push(
    mirror: &Repository,
    path: &Path,
    commit: Oid,
    branch: &str,
    base: Option<Oid>,
) -> Result<(), LocalError> {
    let remote = Repository::open(path)?;
    if !remote.is_bare() {
        return Err(LocalError::NotBare);
    }
    copy(mirror, &remote, commit)?;
    let name = format!("refs/heads/{branch}");
    let until = Instant::now() + LOCKED;
    loop {
        let moved = match base {
            Some(base) => remote.reference_matching(&name, commit, true, base, "push"),
            None => remote.reference(&name, commit, false, "push"),
        };
        let Err(error) = moved else { return Ok(()) };
        match (error.code(), base) {
            (ErrorCode::Modified | ErrorCode::NotFound, Some(_)) | (ErrorCode::Exists, None) => {
                return Err(LocalError::Moved);
            }
            (ErrorCode::Locked, _) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            _ => return Err(LocalError::Git(error)),
        }
    }
}

/// Gives the remote a commit and what is new in it. Its parents were fetched from there.
fn copy(mirror: &Repository, remote: &Repository, commit: Oid) -> Result<(), Error> {
    let mut walk = mirror.revwalk()?;
    walk.push(commit)?;
    for parent in mirror.find_commit(commit)?.parent_ids() {
        walk.hide(parent)?;
    }
    let mut pack = mirror.packbuilder()?;
    pack.insert_walk(&mut walk)?;
    let objects = remote.odb()?;
    let mut writer = objects.packwriter()?;
    let mut written = Ok(());
    let packed = pack.foreach(|piece| {
        written = writer.write_all(piece);
        written.is_ok()
    });
    written.map_err(|error| Error::from_str(&error.to_string()))?;
    packed?;
    writer.commit().map(drop)
}
