//! Where a repository is on its forge.

use reqwest::Url;

use crate::Kind;

/// A repository, and the API through which its forge is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub kind: Kind,
    /// Without a slash at its end.
    pub api: String,
    /// `owner/name`; groups within groups on GitLab.
    pub repository: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    #[error("`{0}` does not say which repository of the forge is meant; name it as `OWNER/NAME`")]
    NoRepository(String),
    #[error("`{0}` does not say where the forge's API is; give its address")]
    NoApi(String),
    #[error("`{0}` is no address of an API; it is written as `https://HOST/PATH`")]
    NotHttps(String),
}

impl Address {
    /// From the address that the repository is fetched from, where that tells; what is given stands.
    pub fn new(
        kind: Kind,
        remote: &str,
        api: Option<&str>,
        repository: Option<&str>,
    ) -> Result<Self, InvalidAddress> {
        let (host, path) = parts(remote);
        let api = match (api, host) {
            (Some(api), _) => api.trim_end_matches('/').to_owned(),
            (None, Some(host)) => usual(kind, host),
            (None, None) => return Err(InvalidAddress::NoApi(bare(remote))),
        };
        if !is_safe(&api) {
            return Err(InvalidAddress::NotHttps(bare(&api)));
        }
        let repository = repository.map(str::to_owned).or(path);
        let repository = repository.filter(|it| it.split('/').filter(|part| !part.is_empty()).count() >= 2);
        let repository = repository.ok_or_else(|| InvalidAddress::NoRepository(bare(remote)))?;
        Ok(Address { kind, api, repository: repository.trim_matches('/').to_owned() })
    }
}

fn usual(kind: Kind, host: &str) -> String {
    match (kind, host) {
        (Kind::GitHub, "github.com") => "https://api.github.com".to_owned(),
        (Kind::GitHub, host) => format!("https://{host}/api/v3"),
        (Kind::GitLab, host) => format!("https://{host}/api/v4"),
        (Kind::Gitea, host) => format!("https://{host}/api/v1"),
    }
}

/// A token must not travel in the clear, except within this machine.
fn is_safe(api: &str) -> bool {
    let Ok(url) = Url::parse(api) else { return false };
    let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    url.has_host() && (url.scheme() == "https" || url.scheme() == "http" && here)
}

/// The host of a remote, with its port where it speaks HTTPS, and the path of the repository there.
fn parts(remote: &str) -> (Option<&str>, Option<String>) {
    let clean = |path: &str| {
        let path = path.trim_matches('/');
        Some(path.strip_suffix(".git").unwrap_or(path).to_owned()).filter(|path| !path.is_empty())
    };
    match remote.split_once("://") {
        Some(("file", _)) => (None, None),
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            let host = if scheme == "https" { host } else { host.split(':').next().unwrap_or_default() };
            (Some(host).filter(|host| !host.is_empty()), clean(path))
        }
        None => match remote.split_once(':').filter(|(place, _)| !place.contains('/')) {
            Some((place, path)) => (place.rsplit('@').next(), clean(path)),
            None => (None, None),
        },
    }
}

/// Without what may be a password.
fn bare(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, place)) => format!("{scheme}://{place}"),
            None => address.to_owned(),
        },
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remote_tells_most() {
        for (kind, remote, api, repository) in [
            (Kind::GitHub, "https://github.com/ml/serving.git", "https://api.github.com", "ml/serving"),
            (
                Kind::GitHub,
                "git@ghe.example.com:ml/serving.git",
                "https://ghe.example.com/api/v3",
                "ml/serving",
            ),
            (Kind::GitLab, "ssh://git@gitlab.com:22/a/b/c", "https://gitlab.com/api/v4", "a/b/c"),
            (
                Kind::Gitea,
                "https://bot:x@git.example.com:3000/ml/serving",
                "https://git.example.com:3000/api/v1",
                "ml/serving",
            ),
        ] {
            let address = Address::new(kind, remote, None, None).unwrap();
            assert_eq!((address.api.as_str(), address.repository.as_str()), (api, repository), "{remote}");
        }
        let given =
            Address::new(Kind::Gitea, "/srv/mirror", Some("https://git.example.com/api/v1/"), Some("a/b"));
        assert_eq!(given.unwrap().api, "https://git.example.com/api/v1");
    }

    #[test]
    fn what_does_not_tell_is_said_and_tokens_stay_out_of_the_clear() {
        let fault =
            |remote, api, repository| Address::new(Kind::GitHub, remote, api, repository).unwrap_err();
        assert_eq!(fault("/srv/mirror", None, None), InvalidAddress::NoApi("/srv/mirror".to_owned()));
        let api = Some("https://api.github.com");
        assert_eq!(fault("/srv/mirror", api, None), InvalidAddress::NoRepository("/srv/mirror".to_owned()));
        assert!(matches!(fault("https://github.com/x", None, None), InvalidAddress::NoRepository(_)));
        for unsafe_api in ["http://git.example.com/api", "ftp://x/y", "git.example.com", ""] {
            assert!(
                matches!(fault("x:a/b", Some(unsafe_api), None), InvalidAddress::NotHttps(_)),
                "{unsafe_api}"
            );
        }
        assert!(Address::new(Kind::GitHub, "x:a/b", Some("http://127.0.0.1:1"), None).is_ok());
    }
}
