use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where engines' programs are looked for: the host's engine path, then `PATH`.
#[derive(Clone, Debug, Default)]
pub struct EnginePath {
    dirs: Vec<PathBuf>,
    own: usize,
}

impl EnginePath {
    /// `own` are the folders given for engines; `path` is this process's `PATH`.
    pub fn new(own: Vec<PathBuf>, path: Option<OsString>) -> Self {
        let count = own.len();
        let mut dirs = own;
        dirs.extend(path.iter().flat_map(std::env::split_paths).filter(|dir| dir.is_absolute()));
        EnginePath { dirs, own: count }
    }

    /// The executable that `program` means: itself when it is absolute, else the first of that name.
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        let program = Path::new(program);
        if program.is_absolute() {
            return is_executable(program).then(|| program.to_owned());
        }
        self.dirs.iter().map(|dir| dir.join(program)).find(|path| is_executable(path))
    }

    /// For an engine's own `PATH`.
    pub fn joined(&self) -> OsString {
        // A folder with a colon in its name cannot stand in a PATH at all.
        std::env::join_paths(&self.dirs).unwrap_or_default()
    }

    /// Folders of the engine path that are not there.
    pub fn missing(&self) -> impl Iterator<Item = &Path> {
        self.dirs[..self.own].iter().map(PathBuf::as_path).filter(|dir| !dir.is_dir())
    }
}

impl fmt::Display for EnginePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.joined().to_string_lossy())
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
