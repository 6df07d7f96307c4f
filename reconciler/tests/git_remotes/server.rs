//! A Git host: HTTPS in front of `git http-backend`, with the faults that hosts have.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How the host behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    #[default]
    Serve,
    /// Answers everything with this status.
    Status(u16),
    /// Answers everything with this content type, and a page.
    Page(&'static str),
    /// Sends listings there.
    Redirect(String),
    /// Moved the repository from `/old` to the root.
    Moved,
    /// Serves the listing, and breaks off in the middle of the pack.
    BreakOff,
    /// Lets everybody read, and nobody push.
    ReadOnly,
    /// Takes the request, and says nothing.
    Silent,
    /// Lists references without end.
    Endless,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The certificate of its own authority.
    pub(crate) authority: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    backend: PathBuf,
    manner: Mutex<Manner>,
    /// The header that it demands.
    demanded: Mutex<Option<String>>,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
}

impl Server {
    /// Serves the repositories below `root`; writes its authority's certificate to `dir`.
    pub(crate) fn start(dir: &Path, root: &Path) -> Self {
        let signed =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let authority = dir.join("authority.pem");
        std::fs::write(&authority, signed.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            backend: backend(),
            manner: Mutex::default(),
            demanded: Mutex::default(),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let sharing = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, config) = (Arc::clone(&sharing), Arc::clone(&config));
                thread::spawn(move || {
                    let connection = ServerConnection::new(config).unwrap();
                    // Clients that don't trust it end the handshake.
                    let _ = shared.serve(StreamOwned::new(connection, stream.unwrap()));
                });
            }
        });
        Server { address, authority, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// Demands this Basic authorization from now on.
    pub(crate) fn demand(&self, authorization: &str) {
        *self.shared.demanded.lock().unwrap() = Some(authorization.to_owned());
    }

    /// What was asked since the last time.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

struct Request {
    method: String,
    path: String,
    query: String,
    kind: String,
    authorization: Option<String>,
    body: Vec<u8>,
}

impl Shared {
    fn serve(&self, stream: StreamOwned<ServerConnection, TcpStream>) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut first = true;
        while let Some(request) = Request::read(&mut stream)? {
            if std::mem::take(&mut first) {
                self.connections.fetch_add(1, Ordering::Relaxed);
            }
            self.seen.lock().unwrap().push(Seen {
                method: request.method.clone(),
                path: request.path.clone(),
                authorization: request.authorization.clone(),
            });
            let manner = self.manner.lock().unwrap().clone();
            let demanded = self.demanded.lock().unwrap().clone();
            if demanded.is_some() && request.authorization != demanded {
                let challenge = "WWW-Authenticate: Basic realm=\"git\"\r\n";
                answer(&mut stream, "401 Unauthorized", challenge, b"who are you?")?;
                continue;
            }
            match manner {
                Manner::Serve => self.pass_on(&mut stream, request, false)?,
                Manner::Status(status) => answer(&mut stream, &format!("{status} Such"), "", b"no")?,
                Manner::ReadOnly if request.is_push() => {
                    let kind = "Content-Type: text/plain; charset=utf-8\r\n";
                    answer(&mut stream, "403 Forbidden", kind, b"Write access not granted.\n")?;
                }
                Manner::ReadOnly => self.pass_on(&mut stream, request, false)?,
                Manner::Page(kind) => {
                    let kind = format!("Content-Type: {kind}\r\n");
                    answer(&mut stream, "200 OK", &kind, b"<html>Sign in</html>")?;
                }
                Manner::Redirect(to) => {
                    answer(&mut stream, "302 Found", &format!("Location: {to}\r\n"), b"")?;
                }
                Manner::Moved => match request.path.strip_prefix("/old") {
                    Some(path) => {
                        let to = format!("Location: {path}?{}\r\n", request.query);
                        answer(&mut stream, "301 Moved Permanently", &to, b"")?;
                    }
                    None => self.pass_on(&mut stream, request, false)?,
                },
                Manner::BreakOff => {
                    let post = request.method == "POST";
                    self.pass_on(&mut stream, request, post)?;
                    if post {
                        return Ok(());
                    }
                }
                Manner::Endless => {
                    let stream = stream.get_mut();
                    let kind = "application/x-git-upload-pack-advertisement";
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n")?;
                    loop {
                        let line = format!("003a{} refs/heads/x\n", "a".repeat(40));
                        stream.write_all(line.as_bytes())?;
                        stream.flush()?;
                        thread::sleep(std::time::Duration::from_millis(50));
                    }
                }
                Manner::Silent => loop {
                    thread::park();
                },
            }
        }
        Ok(())
    }

    fn pass_on(&self, stream: &mut Stream, request: Request, break_off: bool) -> io::Result<()> {
        let mut backend = Command::new(&self.backend)
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("REQUEST_METHOD", &request.method)
            .env("PATH_INFO", &request.path)
            .env("QUERY_STRING", &request.query)
            .env("CONTENT_TYPE", &request.kind)
            .env("CONTENT_LENGTH", request.body.len().to_string())
            // Git takes pushes from those whom its web server knows.
            .envs(request.authorization.as_ref().map(|_| ("REMOTE_USER", "bot")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        backend.stdin.take().unwrap().write_all(&request.body)?;
        let output = backend.wait_with_output()?.stdout;
        let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let (mut status, mut headers) = ("200 OK".to_owned(), String::new());
        for line in String::from_utf8_lossy(&output[..end]).lines() {
            match line.strip_prefix("Status: ") {
                Some(given) => status = given.to_owned(),
                None => headers.push_str(&format!("{line}\r\n")),
            }
        }
        let body = &output[end + 4..];
        if break_off {
            let stream = stream.get_mut();
            write!(stream, "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len())?;
            stream.write_all(&body[..body.len() / 2])?;
            return stream.flush();
        }
        answer(stream, &status, &headers, body)
    }
}

impl Request {
    fn is_push(&self) -> bool {
        self.path.ends_with("/git-receive-pack") || self.query == "service=git-receive-pack"
    }

    /// The next one of the connection; `None` at its end.
    fn read(stream: &mut Stream) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let (mut length, mut kind, mut authorization) = (0, String::new(), None);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "content-type" => kind = value.to_owned(),
                "authorization" => authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        Ok(Some(Request { method, path, query, kind, authorization, body }))
    }
}

/// In pieces, as hosts send what they make as they go.
fn answer(stream: &mut Stream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 {status}\r\n{headers}Transfer-Encoding: chunked\r\n\r\n")?;
    for chunk in body.chunks(16 << 10) {
        write!(stream, "{:x}\r\n", chunk.len())?;
        stream.write_all(chunk)?;
        stream.write_all(b"\r\n")?;
    }
    stream.write_all(b"0\r\n\r\n")?;
    stream.flush()
}

fn backend() -> PathBuf {
    let output = Command::new("git").arg("--exec-path").output().unwrap();
    let folder = String::from_utf8(output.stdout).unwrap();
    let path = Path::new(folder.trim()).join("git-http-backend");
    assert!(path.exists(), "Git's `{}` is needed", path.display());
    path
}
