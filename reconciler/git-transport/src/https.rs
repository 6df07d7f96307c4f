//! Git's smart protocol over HTTPS: one GET that lists references, then a POST for each round of negotiation, or for
//! what is pushed.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use git2::Error;
use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, RequestBuilder, Response, StatusCode, Url};
use tokio::runtime::Runtime;

use crate::Options;
use crate::credentials::Credentials;
use crate::fault::{because, fault, printable, stream_fault, tls};
use crate::program::{Program, lists};

/// Hosts let only what looks like Git speak the smart protocol.
const USER_AGENT: &str = concat!("git/2.0 (denv ", env!("CARGO_PKG_VERSION"), ")");

const MOST_REDIRECTS: usize = 5;

/// How long the end of an answer may take that libgit2 needs no more of; its connection is then used again.
const LAST_BYTES: Duration = Duration::from_millis(200);

/// So much of what a host says to a refusal is passed on, if it comes in this time.
const MOST_WORDS: usize = 300;
const WORDS: Duration = Duration::from_secs(5);

pub(crate) struct Https {
    options: Arc<Options>,
    /// Made by the listing, and used by what follows it.
    remote: RefCell<Option<Arc<Remote>>>,
}

impl Https {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Https { options, remote: RefCell::new(None) }
    }
}

impl SmartSubtransport for Https {
    fn action(&self, url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, Error> {
        if lists(service) {
            let mut remote = Remote::open(url, Program::of(service), &self.options)?;
            let listing = remote.list()?;
            let remote = Arc::new(remote);
            self.remote.replace(Some(Arc::clone(&remote)));
            return Ok(Box::new(Exchange::answered(remote, listing)));
        }
        let remote = self.remote.borrow().clone();
        let remote = remote.ok_or_else(|| fault("the remote's references were not listed"))?;
        Ok(Box::new(Exchange::asking(remote)))
    }

    fn close(&self) -> Result<(), Error> {
        self.remote.replace(None);
        Ok(())
    }
}

/// A repository on a host, and the way there.
struct Remote {
    /// Where the repository is, without credentials; moved by redirects on the same host.
    url: Url,
    /// What answers there.
    program: Program,
    client: Client,
    credentials: Option<Credentials>,
    /// Whether there is a file that gives credentials, for the advice in errors.
    has_file: bool,
    /// When it has to be over.
    until: Instant,
    longest: Duration,
    /// Drives the requests; libgit2 waits for each one. `None` once dropped.
    runtime: Option<Runtime>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        // A look-up of a name that hangs must not hold up the one who gave up on it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Remote {
    fn open(url: &str, program: Program, options: &Options) -> Result<Self, Error> {
        let mut url = Url::parse(url).map_err(|error| fault(format!("this is no address: {error}")))?;
        let loopback = is_loopback(&url);
        if url.scheme() != "https" && !loopback {
            return Err(fault(
                "`http://` would send manifests and credentials in the clear, so it is only for this machine; use `https://`",
            ));
        }
        if url.password().is_some() {
            return Err(fault(
                "a password in the address shows in process lists; put `user:password` in a file and name it with --source-credentials",
            ));
        }
        let user = percent_encoding::percent_decode_str(url.username()).decode_utf8_lossy().into_owned();
        let user = Some(user).filter(|user| !user.is_empty());
        let credentials = match (&options.credentials, user) {
            (Some(path), user) => Some(Credentials::read(path, user.as_deref())?),
            // Some hosts take a token in a user's place.
            (None, Some(user)) => Some(Credentials { user, password: String::new() }),
            (None, None) => None,
        };
        // Only a host-less address refuses this, and those have been refused.
        let _ = url.set_username("");
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| fault(format!("cannot start a connection: {error}")))?;
        let has_file = options.credentials.is_some();
        Ok(Remote {
            client: client(options, loopback)?,
            url,
            program,
            credentials,
            has_file,
            until: Instant::now() + options.longest,
            longest: options.longest,
            runtime: Some(runtime),
        })
    }

    /// Asks what references there are, and learns where the repository has moved to on its host.
    fn list(&mut self) -> Result<Response, Error> {
        let (list, advertisement) = (self.program.list(), self.program.kind("advertisement"));
        let mut address = joined(&self.url, &list)?;
        for _ in 0..=MOST_REDIRECTS {
            let request = self.client.get(address.clone()).header(ACCEPT, &advertisement);
            let mut response = self.send(request).map_err(fault)?;
            if !response.status().is_redirection() {
                self.check(&mut response, &advertisement).map_err(fault)?;
                return Ok(response);
            }
            address = self.followed(&address, &response)?;
            let repository = address.as_str().strip_suffix(list.as_str());
            let repository = repository.and_then(|url| Url::parse(url).ok()).ok_or_else(|| {
                fault(format!(
                    "`{}` leads away from Git, to `{}`, perhaps a page to log in; is it a repository's address, and are credentials needed (--source-credentials)?",
                    self.url,
                    bare(&address)
                ))
            })?;
            self.url = repository;
        }
        Err(fault(format!("`{}` redirects more than {MOST_REDIRECTS} times", self.url)))
    }

    /// Where a redirect leads. Credentials and trust are for one host: to another one only people go.
    fn followed(&self, from: &Url, response: &Response) -> Result<Url, Error> {
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let to = location.and_then(|location| from.join(location).ok());
        let to = to.ok_or_else(|| fault(format!("`{}` redirects to nowhere", self.url)))?;
        if to.origin() != from.origin() {
            let to = bare(&to);
            let to = to.as_str().trim_end_matches("/info/refs");
            return Err(fault(format!(
                "`{}` redirects to `{to}`; if that is right, make it the source's address",
                self.url
            )));
        }
        Ok(to)
    }

    fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let request = match &self.credentials {
            Some(Credentials { user, password }) => request.basic_auth(user, Some(password)),
            None => request,
        };
        // Within the runtime, as its timers are to be this one's.
        let sent = self.wait(async { request.send().await })?;
        sent.map_err(|error| self.unreachable(error))
    }

    fn wait<F: Future>(&self, work: F) -> Result<F::Output, String> {
        let until = self.until.into();
        let waited = async { tokio::time::timeout_at(until, work).await };
        let runtime = self.runtime.as_ref().expect("it is taken only by drop");
        runtime.block_on(waited).map_err(|_| {
            let host = self.url.host_str().unwrap_or_default();
            format!("`{host}` was not done within {} s", self.longest.as_secs())
        })
    }

    fn check(&self, response: &mut Response, expected: &str) -> Result<(), String> {
        let (url, status) = (&self.url, response.status());
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            return Err(self.refused(status) + &self.words(response));
        }
        if status == StatusCode::NOT_FOUND || status == StatusCode::GONE {
            let hidden = if self.credentials.is_some() {
                "or these credentials may not see it"
            } else {
                "or it is hidden from those without credentials (--source-credentials)"
            };
            return Err(format!("there is no such repository as `{url}` ({status}), {hidden}"));
        }
        if status != StatusCode::OK {
            return Err(format!("`{url}` answered {status}"));
        }
        let kind = content_type(response);
        if kind.eq_ignore_ascii_case(expected) {
            return Ok(());
        }
        Err(match kind {
            "text/html" | "application/xhtml+xml" => format!(
                "`{url}` answered with a web page, perhaps one to log in; is it a repository's address, and are credentials needed (--source-credentials)?"
            ),
            "text/plain" | "application/octet-stream" | "" => format!(
                "`{url}` serves a repository's files only (Git's dumb protocol); it must speak the smart protocol, as `git http-backend` does"
            ),
            other => format!("`{url}` answered with `{}`, which is not Git", printable(other)),
        })
    }

    /// Whoever asked was not let in, or not for this.
    fn refused(&self, status: StatusCode) -> String {
        let (url, verb) = (&self.url, self.program.verb());
        let pushes = self.program == Program::ReceivePack;
        if self.has_file && pushes && status == StatusCode::FORBIDDEN {
            format!(
                "the credentials may read `{url}` but not push to it ({status}); name a file with ones that may by --source-credentials"
            )
        } else if self.has_file {
            format!(
                "`{url}` refused the credentials ({status}); check the file named by --source-credentials, and what they may {verb}"
            )
        } else if pushes {
            format!(
                "`{url}` takes no push without credentials ({status}); give a file that holds `user:password` or a token that may push with --source-credentials"
            )
        } else {
            format!(
                "`{url}` refused the credentials ({status}), as there were none; give a file that holds `user:password` or a token with --source-credentials"
            )
        }
    }

    /// What the host has to say to a push that it refuses: that a repository is archived, or whom it asks for.
    fn words(&self, response: &mut Response) -> String {
        if self.program == Program::UploadPack || content_type(response) != "text/plain" {
            return String::new();
        }
        let said = self.wait(async { tokio::time::timeout(WORDS, response.chunk()).await });
        let Ok(Ok(Ok(Some(said)))) = said else { return String::new() };
        let said = String::from_utf8_lossy(&said[..said.len().min(MOST_WORDS)]).into_owned();
        match printable(&said) {
            said if said.is_empty() => said,
            said => format!("; it said: {said}"),
        }
    }

    fn unreachable(&self, error: reqwest::Error) -> String {
        let host = self.url.host_str().unwrap_or_default();
        if let Some(tls) = tls(&error) {
            return untrusted(host, tls);
        }
        if error.is_timeout() {
            return format!("`{host}` did not answer in time");
        }
        format!("cannot reach `{host}`: {}", because(error))
    }
}

fn client(options: &Options, loopback: bool) -> Result<Client, Error> {
    let mut client = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .http1_only()
        .connect_timeout(options.connect_timeout)
        .read_timeout(options.silence);
    if loopback {
        client = client.no_proxy();
    }
    if let Some(path) = &options.authorities {
        let shown = path.display();
        let pem = fs::read(path).map_err(|error| {
            fault(format!("cannot read the certificates in `{shown}` (--source-ca): {error}"))
        })?;
        let authorities = Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if authorities.is_empty() {
            return Err(fault(format!("there is no PEM certificate in `{shown}` (--source-ca)")));
        }
        client = client.tls_certs_merge(authorities);
    }
    client.build().map_err(|error| fault(format!("cannot set up HTTPS: {}", because(error))))
}

fn content_type(response: &Response) -> &str {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

fn untrusted(host: &str, error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            format!("the certificate of `{host}` has expired (or this machine's clock is wrong)")
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            format!("the certificate of `{host}` is not valid yet (or this machine's clock is wrong)")
        }
        rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            format!("the certificate that `{host}` showed is for another name")
        }
        rustls::Error::InvalidCertificate(_) => format!(
            "the certificate of `{host}` is not trusted ({error}); if a private authority signed it, name that one's certificate with --source-ca"
        ),
        other => format!("TLS with `{host}` failed ({other}); a private authority is named with --source-ca"),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn joined(repository: &Url, rest: &str) -> Result<Url, Error> {
    let joined = format!("{}{rest}", repository.as_str().trim_end_matches('/'));
    Url::parse(&joined).map_err(|error| fault(format!("this is no address: {error}")))
}

/// An address without what may be secret in it.
fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// One request and its answer: what is written is sent at the first read.
struct Exchange {
    remote: Arc<Remote>,
    request: Vec<u8>,
    response: Option<Response>,
    chunk: Bytes,
    /// Reading is over, well or badly.
    over: bool,
}

impl Exchange {
    fn answered(remote: Arc<Remote>, response: Response) -> Self {
        Exchange { remote, request: Vec::new(), response: Some(response), chunk: Bytes::new(), over: false }
    }

    fn asking(remote: Arc<Remote>) -> Self {
        Exchange { remote, request: Vec::new(), response: None, chunk: Bytes::new(), over: false }
    }

    fn ask(&mut self) -> Result<Response, String> {
        let remote = &self.remote;
        let program = remote.program;
        let url = joined(&remote.url, &format!("/{}", program.name()));
        let url = url.map_err(|error| error.message().to_owned())?;
        let result = program.kind("result");
        let request = remote.client.post(url).header(ACCEPT, &result);
        let request = request.header(CONTENT_TYPE, program.kind("request"));
        let mut response = remote.send(request.body(std::mem::take(&mut self.request)))?;
        remote.check(&mut response, &result)?;
        Ok(response)
    }

    /// The answer's next piece; empty at its end.
    fn next(&mut self) -> Result<Bytes, String> {
        let mut response = match self.response.take() {
            Some(response) => response,
            None => self.ask()?,
        };
        let chunk = self.remote.wait(response.chunk())?.map_err(|error| {
            let host = self.remote.url.host_str().unwrap_or_default();
            if error.is_timeout() {
                return format!("`{host}` fell silent in the middle of its answer");
            }
            format!("`{host}` broke off in the middle of its answer: {}", because(error))
        })?;
        self.response = Some(response);
        Ok(chunk.unwrap_or_default())
    }
}

impl Read for Exchange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() && !self.over {
            let next = self.next();
            self.over = !matches!(&next, Ok(chunk) if !chunk.is_empty());
            self.chunk = next.map_err(stream_fault)?;
        }
        let count = buffer.len().min(self.chunk.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

impl Write for Exchange {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.request.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // libgit2 stops at the protocol's end, a few bytes before HTTP's.
        if let Some(response) = self.response.as_mut().filter(|_| !self.over) {
            let _ = self.remote.wait(async { tokio::time::timeout(LAST_BYTES, response.chunk()).await });
        }
    }
}
