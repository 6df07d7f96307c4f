//! What is set for a source.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use denv_forge::Address;
use denv_git_transport::Options;
use denv_schema::Digest;

use super::deletions::DeletionShare;
use super::mirror::MirrorError;
use super::secret::SecretReference;
use super::signers::AllowedSigners;

/// Where manifests come from, and what is asked of a revision.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    pub name: String,
    /// A path, `https://…`, `ssh://…` or `git@host:path`.
    pub url: String,
    pub branch: String,
    /// The folder of the repository that holds the manifests; empty for all of it.
    pub folder: String,
    /// Where the mirror is kept.
    pub mirror: PathBuf,
    pub poll: Duration,
    /// How the remote is reached.
    pub remote: Arc<Options>,
    /// Who may sign commits, as OpenSSH lists them; without it, commits need no signature.
    pub allowed_signers: Option<PathBuf>,
    /// The SSH key that signs commits which denv makes.
    pub signing_key: Option<PathBuf>,
    /// The secret that the forge signs its hooks with.
    pub webhook_secret: Option<SecretReference>,
    /// The forge that is told what becomes of revisions.
    pub forge: Option<ForgeConfig>,
    /// The share of what is in force that a revision may delete without approval.
    pub deletion_share: DeletionShare,
}

/// The forge that is told what becomes of revisions.
#[derive(Clone, Debug)]
pub struct ForgeConfig {
    pub address: Address,
    pub token: SecretReference,
}

/// The allowed signers as they stand in their file now, with its digest.
pub(super) struct Signers {
    pub(super) allowed: AllowedSigners,
    pub(super) digest: Digest,
}

impl SourceConfig {
    /// Read anew at each look, so that a change needs no restart.
    pub(super) fn signers(&self) -> Result<Option<Signers>, MirrorError> {
        let Some(path) = &self.allowed_signers else { return Ok(None) };
        let text =
            fs::read_to_string(path).map_err(|source| MirrorError::Signers { path: path.clone(), source })?;
        let allowed = AllowedSigners::parse(&text)
            .map_err(|source| MirrorError::InvalidSigners { path: path.clone(), source })?;
        Ok(Some(Signers { allowed, digest: Digest::of_bytes(text.as_bytes()) }))
    }
}

/// A URL without what may be a password in it.
pub(super) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = rest.split('/').next().unwrap_or_default();
    // A password that holds a `/` looks like a path behind a port which is none.
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let whole = port.ends_with(']') || port.chars().all(|c| c.is_ascii_digit());
    let user = if whole || authority.contains('@') { authority.rfind('@') } else { rest.rfind('@') };
    match user {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_passwords() {
        assert_eq!(shown("https://bot:hunter2@example.com/a.git"), "https://example.com/a.git");
        assert_eq!(shown("ssh://git@example.com/a.git"), "ssh://example.com/a.git");
        assert_eq!(shown("/srv/a@b.git"), "/srv/a@b.git");
        assert_eq!(shown("git@example.com:a.git"), "git@example.com:a.git");
        assert_eq!(shown("https://example.com/a@b.git"), "https://example.com/a@b.git");
        assert_eq!(shown("https://example.com:8443/a@b.git"), "https://example.com:8443/a@b.git");
        assert_eq!(shown("https://bot:hunter2@[::1]:8443/a.git"), "https://[::1]:8443/a.git");
        assert_eq!(shown("https://bot:hun/ter2@example.com/a.git"), "https://example.com/a.git");
    }
}
