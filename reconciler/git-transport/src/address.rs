//! Where an SSH remote is: `ssh://user@host:port/path`, or `user@host:path` as scp writes it.

use git2::Error;
use percent_encoding::percent_decode_str;

use crate::fault::fault;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshAddress {
    /// `user@host`, or `host`.
    pub(crate) destination: String,
    pub(crate) port: Option<u16>,
    pub(crate) path: String,
}

/// As Git tells them apart: a colon before any slash.
pub(crate) fn is_scp_like(remote: &str) -> bool {
    let colon = if remote.starts_with('[') || remote.contains("@[") {
        remote.find("]:").map(|at| at + 1)
    } else {
        remote.find(':')
    };
    colon.is_some_and(|colon| !remote[..colon].contains('/'))
}

impl SshAddress {
    pub(crate) fn parse(remote: &str) -> Result<Self, Error> {
        let address = match remote.split_once("://") {
            Some((_, rest)) => from_url(rest),
            None => from_scp(remote),
        };
        let address = address.ok_or_else(|| {
            fault("this is no SSH address; write it as `ssh://git@HOST/PATH` or `git@HOST:PATH`")
        })?;
        // ssh and git-upload-pack would take these for options of theirs, which may run commands.
        let host = address.destination.rsplit('@').next().unwrap_or_default();
        if address.destination.starts_with('-') || host.starts_with('-') || address.path.starts_with('-') {
            return Err(fault("a user, host or path of an SSH address must not begin with `-`"));
        }
        Ok(address)
    }
}

fn from_url(rest: &str) -> Option<SshAddress> {
    let (authority, path) = rest.split_at(rest.find('/')?);
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    // A password has no use with ssh, and must not end in its arguments.
    let user = user.map(|user| user.split(':').next().unwrap_or_default());
    let (host, port) = host_and_port(host)?;
    let path = decoded(path)?;
    // `/~user/…` is below that user's home.
    let path = if path.starts_with("/~") { path[1..].to_owned() } else { path };
    let user = user.map(decoded).map_or(Some(None), |user| user.map(Some))?;
    address(user.as_deref(), &host, port, path)
}

fn from_scp(remote: &str) -> Option<SshAddress> {
    if !is_scp_like(remote) {
        return None;
    }
    let bracket = remote.find("]:").filter(|_| remote.starts_with('[') || remote.contains("@["));
    let colon = bracket.map_or_else(|| remote.find(':'), |at| Some(at + 1))?;
    let (place, path) = (&remote[..colon], &remote[colon + 1..]);
    let (user, host) = match place.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, place),
    };
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        // `[host:port]:path`; with more colons it is an IPv6 address.
        Some(inside) if inside.matches(':').count() == 1 => host_and_port(inside)?,
        Some(inside) => (inside.to_owned(), None),
        None => (host.to_owned(), None),
    };
    address(user, &host, port, path.to_owned())
}

fn address(user: Option<&str>, host: &str, port: Option<u16>, path: String) -> Option<SshAddress> {
    let clean = |text: &str| !text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    let usable = clean(host)
        && user.is_none_or(|user| clean(user) && !user.contains('@'))
        && !path.trim_matches('/').is_empty()
        && !path.chars().any(char::is_control);
    let destination = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    usable.then_some(SshAddress { destination, port, path })
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?.parse().ok()?) };
        return Some((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, "")) => Some((host.to_owned(), None)),
        Some((host, port)) => Some((host.to_owned(), Some(port.parse().ok()?))),
        None => Some((text.to_owned(), None)),
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_git_reads_them() {
        for (remote, destination, port, path) in [
            ("ssh://git@example.com/ml/serving.git", "git@example.com", None, "/ml/serving.git"),
            ("ssh://example.com:2222/a", "example.com", Some(2222), "/a"),
            ("ssh://git@[::1]:22/~ada/a%20b", "git@::1", Some(22), "~ada/a b"),
            ("ssh://git:hunter2@example.com/a", "git@example.com", None, "/a"),
            ("git@example.com:ml/serving.git", "git@example.com", None, "ml/serving.git"),
            ("example.com:/srv/a:b", "example.com", None, "/srv/a:b"),
            ("git@[::1]:a", "git@::1", None, "a"),
            ("[git.example.com:2222]:a", "git.example.com", Some(2222), "a"),
        ] {
            let expected = SshAddress { destination: destination.to_owned(), port, path: path.to_owned() };
            assert_eq!(SshAddress::parse(remote), Ok(expected), "{remote}");
        }
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_refused() {
        for remote in [
            "ssh://-oProxyCommand=touch%20x/a",
            "ssh://git@-oProxyCommand=x/a",
            "ssh://%2DoProxyCommand=x@host/a",
            "-oProxyCommand=x:a",
            "git@-oProxyCommand=x:a",
            "git@example.com:--upload-pack=x",
        ] {
            let error = SshAddress::parse(remote).unwrap_err();
            assert!(error.message().contains("must not begin with `-`"), "{remote}: {error}");
        }
        for remote in [
            "ssh://example.com",
            "ssh://example.com/",
            "ssh:///a",
            "ssh://a b/c",
            "ssh://h/a%00b",
            "/srv/a:b",
        ] {
            assert!(SshAddress::parse(remote).unwrap_err().message().contains("no SSH address"), "{remote}");
        }
    }
}
