//! Git's protocol over SSH: the system's `ssh` runs `git-upload-pack` or `git-receive-pack` on the other side. Keys, agents, jump hosts and
//! known hosts are its own business, as people have set them up.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use git2::Error;
use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::Options;
use crate::address::SshAddress;
use crate::fault::{fault, printable, stream_fault};
use crate::program::Program;

/// What ssh says last explains its end; a banner before it does not.
const LAST_WORDS: usize = 4096;
const LAST_LINES: usize = 3;

/// What a pipe takes at once when it is ready: the least that POSIX has for PIPE_BUF.
const PIECE: usize = 512;

/// How long ssh may take to end, or to say why, once its pipes are closed.
const END: Duration = Duration::from_millis(500);

pub(crate) struct Ssh {
    options: Arc<Options>,
}

impl Ssh {
    pub(crate) fn new(options: Arc<Options>) -> Self {
        Ssh { options }
    }
}

impl SmartSubtransport for Ssh {
    fn action(&self, url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, Error> {
        let address = SshAddress::parse(url)?;
        let session = Session::start(&address, Program::of(service), &self.options)
            .map_err(|error| fault(format!("cannot run ssh: {error}")))?;
        Ok(Box::new(session))
    }

    /// The stream ends the session.
    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

struct Session {
    destination: String,
    program: Program,
    child: Child,
    /// `None` once it is ending.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    said: LastWords,
    silence: Duration,
    /// When it has to be over.
    until: Instant,
    longest: Duration,
    anything_read: bool,
    /// Told again whatever is asked: libgit2 writes a farewell after an error, and keeps the error that came last.
    failed: Option<String>,
}

impl Session {
    fn start(address: &SshAddress, program: Program, options: &Options) -> io::Result<Self> {
        let mut command = command(address, program, options);
        // A group of its own: a wrapping shell and what it runs end together.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pipe = "the pipe was asked for";
        let (stdin, stdout) = (child.stdin.take().expect(pipe), child.stdout.take().expect(pipe));
        let said = LastWords::listen(child.stderr.take().expect(pipe));
        Ok(Session {
            destination: address.destination.clone(),
            program,
            child,
            stdin: Some(stdin),
            stdout,
            said,
            silence: options.silence,
            until: Instant::now() + options.longest,
            longest: options.longest,
            anything_read: false,
            failed: None,
        })
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        let ready = self.ready(&self.stdout, PollFlags::POLLIN, "said");
        ready.map_err(|error| format!("cannot read from ssh: {error}"))??;
        let count = self.stdout.read(buffer).map_err(|error| format!("cannot read from ssh: {error}"))?;
        if count > 0 {
            self.anything_read = true;
            return Ok(count);
        }
        self.stdin = None;
        match self.ended(END) {
            Some(status) if status.success() && self.anything_read => Ok(0),
            status => Err(self.why(status)),
        }
    }

    /// Waits until a pipe may be read from or written to, as long as it is worth it; says what else the remote did not.
    fn ready(&self, pipe: &impl AsFd, to: PollFlags, did: &str) -> Result<Result<(), String>, Errno> {
        let left = self.until.saturating_duration_since(Instant::now());
        let patience = self.silence.min(left);
        if !left.is_zero() && polled(pipe, to, patience)? {
            return Ok(Ok(()));
        }
        let destination = &self.destination;
        Ok(Err(if patience < self.silence {
            format!("`{destination}` was not done within {} s over ssh", self.longest.as_secs())
        } else {
            format!("`{destination}` {did} nothing for {} s over ssh", patience.as_secs())
        }))
    }

    fn write_some(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let stdin = self.stdin.as_ref().ok_or("ssh is ending")?;
        let ready = self.ready(stdin, PollFlags::POLLOUT, "took");
        ready.map_err(|error| format!("cannot write to ssh: {error}"))??;
        // A pipe that is ready takes this much without waiting.
        let piece = &bytes[..bytes.len().min(PIECE)];
        let written = self.stdin.as_mut().map_or(Ok(0), |stdin| stdin.write(piece));
        written.map_err(|error| {
            self.stdin = None;
            match self.ended(END) {
                Some(status) => self.why(Some(status)),
                None => format!("cannot write to ssh: {error}"),
            }
        })
    }

    /// Why ssh ended, in its own words where it had any.
    fn why(&mut self, status: Option<ExitStatus>) -> String {
        let said = self.said.take();
        let destination = &self.destination;
        if said.is_empty() {
            let status =
                status.map_or_else(|| "it closed its output".to_owned(), |status| status.to_string());
            return format!("ssh to `{destination}` ended without a word ({status})");
        }
        let advice = if said.contains("Host key verification failed") {
            "; add its key to the known hosts of denv's user, once it is checked"
        } else if said.contains("Permission denied") || self.may_not_push(&said) {
            let verb = self.program.verb();
            &format!(
                "; give denv's user a key that may {verb}, or name one with --source-ssh-command 'ssh -i FILE'"
            )
        } else {
            ""
        };
        format!("ssh to `{destination}` failed: {said}{advice}")
    }

    /// Whether a forge's words mean that this key only reads. GitHub, GitLab and Gitea say so in words of their own.
    fn may_not_push(&self, said: &str) -> bool {
        let said = said.to_lowercase();
        let refusals = [
            "read only",
            "read-only",
            "denied to",
            "not allowed to push",
            "not authorized to write",
            "write access",
        ];
        self.program == Program::ReceivePack && refusals.iter().any(|words| said.contains(words))
    }

    /// How it ended, if it does in this time.
    fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stdin = None;
        if self.failed.is_none() && self.ended(END).is_some() {
            return;
        }
        // It may have ended and been waited for, and its number be another's now.
        if let Ok(None) = self.child.try_wait() {
            if let Ok(group) = i32::try_from(self.child.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = self.child.wait();
        }
    }
}

impl Read for Session {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(failed) = &self.failed {
            return Err(stream_fault(failed));
        }
        self.read_some(buffer).map_err(|words| {
            let error = stream_fault(&words);
            self.failed = Some(words);
            error
        })
    }
}

impl Write for Session {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(failed) = &self.failed {
            return Err(stream_fault(failed));
        }
        if self.stdin.is_none() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.write_some(bytes).map_err(|words| {
            let error = stream_fault(&words);
            self.failed = Some(words);
            error
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The command, as Git itself would run it.
fn command(address: &SshAddress, program: Program, options: &Options) -> Command {
    let given = options.ssh_command.as_deref().map(str::trim).filter(|given| !given.is_empty());
    let mut command = match given {
        Some(given) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(format!("{given} \"$@\"")).arg(given);
            command
        }
        None => Command::new("ssh"),
    };
    // Nobody is there to be asked. What a given command sets before these stands.
    command.args(["-o", "BatchMode=yes"]);
    command.arg("-o").arg(format!("ConnectTimeout={}", options.connect_timeout.as_secs().max(1)));
    if let Some(port) = address.port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg(&address.destination).arg(format!("{} {}", program.name(), quoted(&address.path)));
    command
}

/// As Git quotes for the shell of the other side; some of those expand `!` even in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''").replace('!', "'\\!'"))
}

/// Waits until a pipe is ready, or at its end.
fn polled(pipe: &impl AsFd, to: PollFlags, within: Duration) -> Result<bool, Errno> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), to)], timeout) {
            Ok(0) if until <= Instant::now() => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// The end of what ssh writes to its standard error.
struct LastWords {
    text: Arc<Mutex<Vec<u8>>>,
    over: mpsc::Receiver<()>,
}

impl LastWords {
    fn listen(mut stderr: ChildStderr) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let (open, over) = mpsc::channel();
        let heard = Arc::clone(&text);
        // It ends with the last process that holds the pipe. With a shared connection (ControlPersist) that may be
        // long after this session, so nobody waits for it.
        thread::spawn(move || {
            let _open: mpsc::Sender<()> = open;
            let mut buffer = [0; 1024];
            while let Ok(count) = stderr.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.extend_from_slice(&buffer[..count]);
                let surplus = heard.len().saturating_sub(LAST_WORDS);
                heard.drain(..surplus);
            }
        });
        LastWords { text, over }
    }

    fn take(&self) -> String {
        // Either way it is read: when the pipe has closed, or when time is up.
        let _ = self.over.recv_timeout(END);
        let heard = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&heard);
        let lines: Vec<String> = text.lines().map(printable).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &Command) -> Vec<String> {
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn ssh_is_run_as_git_runs_it() {
        let address = SshAddress::parse("ssh://git@example.com:2222/it's%20here!").unwrap();
        let mut options = Options::default();
        let rest = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-p", "2222", "git@example.com"];
        let path = r"git-upload-pack '/it'\''s here'\!''";
        let mut expected = vec!["ssh"];
        expected.extend(rest);
        expected.push(path);
        assert_eq!(arguments(&command(&address, Program::UploadPack, &options)), expected);

        options.ssh_command = Some("ssh -i 'my key'".to_owned());
        let mut expected = vec!["/bin/sh", "-c", "ssh -i 'my key' \"$@\"", "ssh -i 'my key'"];
        expected.extend(rest);
        expected.push(path);
        assert_eq!(arguments(&command(&address, Program::UploadPack, &options)), expected);

        let pushing = command(&address, Program::ReceivePack, &options);
        assert_eq!(arguments(&pushing).last().unwrap(), r"git-receive-pack '/it'\''s here'\!''");
    }
}
