//! Where the control plane is, whom it is told we are, and whom we believe.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use denv_schema::Name;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Url};

use super::Client;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// Where the control plane is
    #[arg(
        long,
        global = true,
        env = "DENV_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7440"
    )]
    server: String,

    /// A file that holds the API token; else DENV_TOKEN, else ~/.config/denv/token
    #[arg(long, global = true, env = "DENV_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The tenant to ask about, where the control plane has several [default: its default one]
    #[arg(long, global = true, env = "DENV_TENANT", value_name = "NAME")]
    tenant: Option<Name>,

    /// The certificate authority (PEM) to trust for https, instead of the system's
    #[arg(long, global = true, env = "DENV_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("`{0}` is not an address of a control plane; write it as `https://HOST:PORT`")]
    Address(String),
    #[error("cannot read the API token from `{path}`")]
    TokenFile { path: PathBuf, source: io::Error },
    #[error("{0} is not an API token: it is empty, or more than one word")]
    Token(TokenSource),
    #[error("cannot read the certificate authority from `{path}`")]
    CaFile { path: PathBuf, source: io::Error },
    #[error("`{0}` holds no PEM certificate")]
    Ca(PathBuf),
    #[error("cannot set up the connection")]
    Setup(#[source] reqwest::Error),
}

pub(super) const HOW_TO_GIVE_A_TOKEN: &str = "give an API token with --token-file FILE, DENV_TOKEN_FILE or DENV_TOKEN, or write it to ~/.config/denv/token";

/// It is never shown.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

/// Where the token is from, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenSource {
    File(PathBuf),
    Variable,
    /// Nowhere.
    Nothing,
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenSource::File(path) => write!(f, "the token in `{}`", path.display()),
            TokenSource::Variable => f.write_str("the token in DENV_TOKEN"),
            TokenSource::Nothing => f.write_str("requests without a token, and none was given"),
        }
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    pub(crate) fn new(connection: &Connection) -> Result<Client, ConnectionError> {
        let address = || ConnectionError::Address(connection.server.clone());
        let server = Url::parse(&connection.server).map_err(|_| address())?;
        if !matches!(server.scheme(), "http" | "https") || server.host_str().is_none() {
            return Err(address());
        }
        let (token, source) = token(connection.token_file.as_deref())?;
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("denv/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // A control plane answers itself; the token goes nowhere else.
            .redirect(Policy::none());
        http = match (&connection.ca, server.scheme()) {
            // The system may have no authorities, and plain HTTP needs none.
            (_, "http") => http.tls_certs_only([]),
            (Some(path), _) => http.tls_certs_only(authorities(path)?),
            (None, _) => http,
        };
        if is_loopback(&server) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(ConnectionError::Setup)?;
        Ok(Client { http, server, tenant: connection.tenant.clone(), token, source })
    }

    /// Whether others on the way could read the token.
    pub(crate) fn shows_its_token(&self) -> bool {
        self.token.is_some() && self.server.scheme() == "http" && !is_loopback(&self.server)
    }
}

fn is_loopback(server: &Url) -> bool {
    let host = server.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

fn token(file: Option<&Path>) -> Result<(Option<Token>, TokenSource), ConnectionError> {
    if let Some(path) = file {
        return token_in(path);
    }
    if let Some(text) = std::env::var("DENV_TOKEN").ok().filter(|text| !text.is_empty()) {
        return Ok((Some(checked(&text, &TokenSource::Variable)?), TokenSource::Variable));
    }
    match std::env::home_dir().map(|home| home.join(".config/denv/token")) {
        Some(path) if path.exists() => token_in(&path),
        _ => Ok((None, TokenSource::Nothing)),
    }
}

fn token_in(path: &Path) -> Result<(Option<Token>, TokenSource), ConnectionError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConnectionError::TokenFile { path: path.to_owned(), source })?;
    let source = TokenSource::File(path.to_owned());
    Ok((Some(checked(&text, &source)?), source))
}

fn checked(text: &str, source: &TokenSource) -> Result<Token, ConnectionError> {
    let text = text.trim();
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(Token(text.to_owned())),
        false => Err(ConnectionError::Token(source.clone())),
    }
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, ConnectionError> {
    let pem =
        std::fs::read(path).map_err(|source| ConnectionError::CaFile { path: path.to_owned(), source })?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(ConnectionError::Ca(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_by_its_address() {
        for (url, expected) in [
            ("http://127.0.0.1:7440", true),
            ("http://[::1]:7440", true),
            ("http://localhost", true),
            ("http://10.0.0.1:7440", false),
            ("http://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn a_token_is_one_word() {
        assert_eq!(checked(" abc\n", &TokenSource::Variable).unwrap().secret(), "abc");
        for bad in ["", " \n", "a b", "a\nb", "ä"] {
            assert!(checked(bad, &TokenSource::Variable).is_err(), "{bad:?}");
        }
    }
}
