//! `denv weights`: what a release names weights by.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use denv_schema::Digest;
use denv_schema::quantity::Bytes;
use denv_weights::{Contents, FileContents, FindError, Progress, ReadError, Reader};
use serde::Serialize;

use crate::error::Error;
use crate::output::{Exit, Output};

/// Name weights for releases
#[derive(Debug, Args)]
pub(crate) struct WeightsVerb {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Digest(DigestVerb),
}

/// Print the digest of a file or folder of weights, as a Release's `model.weights.digest` names it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct DigestVerb {
    /// A file, or a folder of which all files count but hidden ones
    path: PathBuf,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The digest
    Text,
    /// A line for each file, as `sha256sum` prints and checks it; the digest of a folder is that of these lines
    Sums,
    /// The digest and each file, with sizes in bytes
    Json,
}

const EXAMPLES: &str = "\
Examples:
  For the manifest of a release:
    denv weights digest /srv/models/llama-3.3-70b
    denv weights digest model.gguf
  Find out in what a host's copy differs from the one that was meant:
    denv weights digest -o sums /srv/models/llama-3.3-70b > meant.txt
    ssh gpu-1 denv weights digest -o sums /srv/models/llama-3.3-70b | diff meant.txt -

A folder's digest is what this prints there:
  find -L . -type f -not -path '*/.*' | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum";

/// How long nothing is said before it is said how far the reading is, and from then on again.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Weights, as they are printed.
#[derive(Serialize)]
struct Answer<'a> {
    digest: Digest,
    bytes: u64,
    files: Vec<AnswerFile<'a>>,
}

#[derive(Serialize)]
struct AnswerFile<'a> {
    name: &'a str,
    digest: Digest,
    bytes: u64,
}

pub(crate) fn run(arguments: &WeightsVerb, output: &mut Output) -> Result<Exit, Error> {
    let Verb::Digest(DigestVerb { path, output: form }) = &arguments.verb;
    let contents = read(path, output)?;
    match form {
        Form::Text => output.say(&contents.digest().to_string())?,
        Form::Sums => output.say(&sums(path, &contents))?,
        Form::Json => output.json(&answer(path, &contents))?,
    }
    Ok(Exit::Done)
}

/// Reads on another thread, so that this one can say how far it is.
fn read(path: &Path, output: &mut Output) -> Result<Contents, Error> {
    let progress = Arc::new(Progress::default());
    let (done, reading) = mpsc::channel();
    let (reader_path, reader_progress) = (path.to_owned(), Arc::clone(&progress));
    thread::spawn(move || done.send(Reader::default().read(&reader_path, &reader_progress)));
    loop {
        match reading.recv_timeout(SAY_EVERY) {
            Ok(contents) => return contents.map_err(trouble),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let (read, of) = progress.read_of();
                let share = (u128::from(read) * 100).checked_div(u128::from(of)).unwrap_or(0);
                output.note(&format!("read {} of {} ({share} %)", Bytes(read), Bytes(of)));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(trouble(ReadError::GivenUp)),
        }
    }
}

fn trouble(error: ReadError) -> Error {
    let hint = match &error {
        ReadError::Find(FindError::Read { .. }) => Some("name a file or folder that you may read".to_owned()),
        _ => None,
    };
    Error::Usage { message: error.to_string(), hint }
}

fn sums(path: &Path, contents: &Contents) -> String {
    match contents {
        Contents::File(file) => {
            let digest = file.digest.to_string();
            format!("{}  {}\n", digest.trim_start_matches("sha256:"), path.display())
        }
        Contents::Folder(listing) => listing.to_string(),
    }
}

fn answer<'a>(path: &'a Path, contents: &'a Contents) -> Answer<'a> {
    let file =
        |(name, file): (&'a str, &FileContents)| AnswerFile { name, digest: file.digest, bytes: file.bytes };
    let (bytes, files) = match contents {
        Contents::File(it) => {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            (it.bytes, vec![file((name, it))])
        }
        Contents::Folder(listing) => (listing.bytes(), listing.files().map(file).collect()),
    };
    Answer { digest: contents.digest(), bytes, files }
}
