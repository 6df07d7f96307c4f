//! How libgit2 reaches remotes: `https://` over reqwest and rustls, `ssh://` and `git@host:path` through the system's
//! `ssh`. git2's own features for them would bring OpenSSL. Paths and `file://` stay libgit2's.
//!
//! It fetches and pushes, and every error is written for the person who set the source. It refuses to know what is
//! fetched or pushed, or why. Secrets are read from their file when they are needed, and kept nowhere.

mod address;
mod credentials;
mod fault;
mod https;
mod program;
mod ssh;

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use git2::Error;
use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};

use fault::fault;

pub use credentials::CredentialsPlace;

/// How remotes are reached. Files are read anew at each connection, so a renewed one needs no restart.
#[derive(Clone, Debug)]
pub struct Options {
    /// Certificates (PEM) of authorities to trust for HTTPS besides the system's.
    pub authorities: Option<PathBuf>,
    /// Where `user:password`, or a token, for HTTPS is.
    pub credentials: Option<CredentialsPlace>,
    /// What to run in place of `ssh`: a shell's words, as in GIT_SSH_COMMAND.
    pub ssh_command: Option<String>,
    /// How long a connection may take to stand.
    pub connect_timeout: Duration,
    /// How long a remote that is connected may say nothing.
    pub silence: Duration,
    /// How long a fetch or a push may take in all: some hosts that hang still send signs of life.
    pub longest: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            authorities: None,
            credentials: None,
            ssh_command: None,
            connect_timeout: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            longest: Duration::from_mins(15),
        }
    }
}

thread_local! {
    /// libgit2 makes a transport on the thread that connects, so what is set there is for that remote alone.
    static OPTIONS: RefCell<Arc<Options>> = RefCell::new(Arc::new(Options::default()));
}

/// Reaches remotes in this way within `work`. Two remotes at one address may so be reached with different credentials.
pub fn with<T>(options: &Arc<Options>, work: impl FnOnce() -> T) -> T {
    /// Puts back what was set before, when `work` panics too.
    struct Before(Arc<Options>);
    impl Drop for Before {
        fn drop(&mut self) {
            OPTIONS.set(Arc::clone(&self.0));
        }
    }
    let _before = Before(OPTIONS.replace(Arc::clone(options)));
    work()
}

/// Makes git2 reach remotes in this process's ways. To be called before anything else uses git2, with rustls's provider
/// installed.
///
/// Fetching and pushing block, so they belong on a thread of its own (`spawn_blocking`), never on one that polls tasks.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        for scheme in ["https", "http"] {
            add(scheme, |remote| Transport::smart(remote, true, https::Https::new(options_now())));
        }
        for scheme in ["ssh", "git+ssh", "ssh+git"] {
            add(scheme, |remote| Transport::smart(remote, false, ssh::Ssh::new(options_now())));
        }
        add("git", |remote| Transport::smart(remote, false, Unprotected));
    });
}

fn add<F>(scheme: &str, factory: F)
where
    F: Fn(&git2::Remote<'_>) -> Result<Transport, Error> + Send + Sync + 'static,
{
    #[allow(unsafe_code, reason = "git2 leaves it to its caller that nothing uses transports meanwhile")]
    // SAFETY: git2 asks that registering never runs beside another use of libgit2's list of transports. All of it
    // happens within one `Once`, and `register`'s contract is that it comes before any other use of git2.
    let registered = unsafe { git2::transport::register(scheme, factory) };
    registered.expect("a scheme is registered once, and has no NUL in it");
}

fn options_now() -> Arc<Options> {
    OPTIONS.with_borrow(Arc::clone)
}

/// The remote as libgit2 takes it, where there is a way to it. libgit2 sends everything with a colon in it to SSH, so a
/// path that has one goes as `file://`.
pub fn for_libgit2(remote: &str) -> Result<Cow<'_, str>, Error> {
    if let Some((scheme, _)) = remote.split_once("://") {
        let known = SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
        return if known {
            Ok(Cow::Borrowed(remote))
        } else {
            Err(fault(format!("there is no way to `{scheme}://`; use a path, `https://` or `ssh://`")))
        };
    }
    if address::is_scp_like(remote) {
        return Ok(Cow::Borrowed(remote));
    }
    let path = Path::new(remote);
    path.metadata().map_err(|error| fault(format!("cannot look into this folder: {error}")))?;
    if !remote.contains(':') {
        return Ok(Cow::Borrowed(remote));
    }
    let path = std::path::absolute(path).map_err(|error| fault(error.to_string()))?;
    let path = path.to_string_lossy();
    Ok(Cow::Owned(format!("file://{}", percent_encoding::utf8_percent_encode(&path, PATH))))
}

/// Where the remote is on this machine, if it is.
pub fn path(remote: &str) -> Option<PathBuf> {
    let Some((scheme, rest)) = remote.split_once("://") else {
        return (!address::is_scp_like(remote)).then(|| remote.into());
    };
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = percent_encoding::percent_decode_str(rest).decode_utf8_lossy();
    scheme.eq_ignore_ascii_case("file").then(|| path.into_owned().into())
}

const SCHEMES: [&str; 7] = ["file", "https", "http", "ssh", "git+ssh", "ssh+git", "git"];

const PATH: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// `git://`, which libgit2 would speak itself.
struct Unprotected;

impl SmartSubtransport for Unprotected {
    fn action(&self, _url: &str, _service: Service) -> Result<Box<dyn SmartSubtransportStream>, Error> {
        Err(fault("`git://` neither encrypts nor proves who answers; use `https://` or `ssh://`"))
    }

    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_colon_is_still_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a:b c");
        std::fs::create_dir(&path).unwrap();
        let address = for_libgit2(path.to_str().unwrap()).unwrap();
        assert!(address.starts_with("file:///") && address.ends_with("/a%3Ab%20c"), "{address}");
        for remote in
            ["git@host:a/b.git", "https://host:8443/a", "SSH://host/a", dir.path().to_str().unwrap()]
        {
            assert_eq!(for_libgit2(remote).unwrap(), remote);
        }
    }

    #[test]
    fn what_is_on_this_machine_is_found() {
        for remote in ["/a b/c.git", "file:///a%20b/c.git", "file://localhost/a%20b/c.git"] {
            assert_eq!(path(remote).unwrap(), Path::new("/a b/c.git"), "{remote}");
        }
        for remote in ["git@host:a/b.git", "https://host/a", "ssh://localhost/a"] {
            assert_eq!(path(remote), None);
        }
    }

    #[test]
    fn what_leads_nowhere_is_said() {
        let words = |remote| for_libgit2(remote).unwrap_err().message().to_owned();
        assert_eq!(words("ftp://host/a"), "there is no way to `ftp://`; use a path, `https://` or `ssh://`");
        assert!(words("/nowhere/at:all").contains("No such file"));
    }
}
