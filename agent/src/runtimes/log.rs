use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// A member's log: all its engines' output, appended. When an engine starts and the log is longer than
/// [`LogFile::ROTATE_BYTES`], it becomes `.1` and a new one is begun.
#[derive(Clone, Debug)]
pub struct LogFile {
    path: PathBuf,
}

/// What a reason shows of a log.
const TAIL_LINES: usize = 5;
const TAIL_BYTES: usize = 1024;
/// Lines are looked for in this many bytes at the end.
const READ_BYTES: u64 = 16 << 10;

impl LogFile {
    pub const ROTATE_BYTES: u64 = 16 << 20;

    pub fn new(dir: &Path, member: &str) -> Self {
        LogFile { path: dir.join(format!("{member}.log")) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it for one more engine, and says where that engine's output begins.
    pub(super) fn open(&self) -> io::Result<(File, u64)> {
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() > Self::ROTATE_BYTES) {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        let offset = file.metadata()?.len();
        Ok((file, offset))
    }

    /// The last lines that are not empty, from `offset` on, for people, without `secrets`. Empty when there are none.
    pub fn tail(&self, offset: u64, secrets: &[String]) -> String {
        self.read_tail(offset).map(|bytes| last_lines(&bytes, secrets)).unwrap_or_default()
    }

    fn read_tail(&self, offset: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(offset.max(length.saturating_sub(READ_BYTES)).min(length)))?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn last_lines(bytes: &[u8], secrets: &[String]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = |line: &str| {
        let line = without_escapes(line).trim_end().to_owned();
        secrets.iter().fold(line, |line, secret| line.replace(secret, "(a secret)"))
    };
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.trim().is_empty()).collect();
    let mut tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
    if tail.len() > TAIL_BYTES {
        let cut = (tail.len() - TAIL_BYTES..).find(|at| tail.is_char_boundary(*at)).unwrap_or(tail.len());
        tail = format!("…{}", &tail[cut..]);
    }
    tail
}

/// Engines colour their logs; escapes have no place in a report.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // `ESC [ … letter`, and two-character escapes.
            if chars.next() == Some('[') {
                let _ = chars.by_ref().find(|c| ('@'..='~').contains(c));
            }
        } else if !c.is_control() || c == '\t' {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_short_plain_and_of_this_engine() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::new(dir.path(), "chat.prod.1.0");
        assert_eq!(log.tail(0, &[]), "");
        fs::write(log.path(), "of the engine before\n").unwrap();
        let (_, offset) = log.open().unwrap();
        let text = "of the engine before\none\n\n\u{1b}[31mtwo\u{1b}[0m\r\nthree\nfour\nfive\nsix\n   \n";
        fs::write(log.path(), text).unwrap();
        assert_eq!(log.tail(offset, &[]), "two\nthree\nfour\nfive\nsix");
        assert_eq!(log.tail(offset, &["ve".to_owned()]), "two\nthree\nfour\nfi(a secret)\nsix");
        fs::write(log.path(), "é".repeat(4000)).unwrap();
        assert!(log.tail(0, &[]).len() <= TAIL_BYTES + 3);
    }

    #[test]
    fn a_long_log_is_put_aside_when_an_engine_starts() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::new(dir.path(), "m");
        File::create(log.path()).unwrap().set_len(LogFile::ROTATE_BYTES + 1).unwrap();
        let (_, offset) = log.open().unwrap();
        assert_eq!(offset, 0);
        assert!(dir.path().join("m.log.1").exists());
    }
}
