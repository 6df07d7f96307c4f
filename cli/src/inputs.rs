//! Manifests that are named on the command line, as `kubectl` does: `-f` and `-R`.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use denv_schema::tree::{self, Files, ReadError};
use denv_schema::{Diagnostic, Diagnostics};

#[derive(Debug, Args)]
pub(crate) struct Inputs {
    /// A folder, a file, or - for standard input; may be given several times
    #[arg(short = 'f', long = "file", id = "files", value_name = "DIR|FILE|-")]
    files: Vec<PathBuf>,

    /// Also the folders below a folder given with -f
    #[arg(short = 'R', long)]
    recursive: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("cannot read standard input")]
    Stdin(#[source] io::Error),
    #[error("there are no manifests in {0}")]
    Nothing(String),
}

impl InputError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = "manifests are .yaml and .yml files; hidden ones are left out, and with -f what is in folders below (see -R)";
        matches!(self, InputError::Nothing(_)).then(|| hint.to_owned())
    }
}

impl Inputs {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// All of them; at least one.
    pub(crate) fn read(&self) -> Result<Read, InputError> {
        let mut all = Read::default();
        for path in &self.files {
            all.add(path, self.recursive)?;
        }
        if all.is_empty() {
            return Err(nothing(self.paths()));
        }
        Ok(all)
    }

    /// Those of the command line, with what is there already.
    pub(crate) fn add_to(&self, all: &mut Read) -> Result<(), InputError> {
        self.files.iter().try_for_each(|path| all.add(path, self.recursive))
    }
}

pub(crate) fn nothing<'a>(paths: impl Iterator<Item = &'a Path>) -> InputError {
    let paths = paths.map(|path| format!("`{}`", path.display())).collect::<Vec<_>>();
    InputError::Nothing(if paths.is_empty() { "what was given".to_owned() } else { paths.join(", ") })
}

/// Manifests, and what can't be read as one.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) files: Files,
    pub(crate) unreadable: Diagnostics,
}

impl Read {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.unreadable.is_empty()
    }

    /// The manifests at a path, by the path a person would type from here.
    pub(crate) fn add(&mut self, path: &Path, recursive: bool) -> Result<(), InputError> {
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map_err(InputError::Stdin)?;
            self.files.insert("stdin".to_owned(), bytes);
            return Ok(());
        }
        let place = |name: &str| {
            let whole = if path.is_dir() { path.join(name) } else { path.to_owned() };
            whole.strip_prefix(".").unwrap_or(&whole).to_string_lossy().into_owned()
        };
        let is_wanted = |name: &str| recursive || !name.contains('/');
        let (files, unreadable) = tree::scan(path)?;
        let files = files.into_iter().filter(|(name, _)| is_wanted(name));
        self.files.extend(files.map(|(name, bytes)| (place(&name), bytes)));
        for finding in unreadable.iter().filter(|finding| is_wanted(&finding.file)) {
            self.unreadable.push(Diagnostic { file: place(&finding.file), ..finding.clone() });
        }
        Ok(())
    }
}
