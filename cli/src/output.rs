//! Everything that is printed goes through here: results to standard output, everything else to standard error.
//! Colour is dropped where it is not wanted (`NO_COLOR`, a pipe).

use std::io::{self, Write as _};
use std::process::ExitCode;

use anstream::AutoStream;
use clap::ValueEnum;
use owo_colors::OwoColorize as _;
use serde::Serialize;

use crate::error::Error;

pub struct Output {
    out: AutoStream<io::Stdout>,
    err: AutoStream<io::Stderr>,
}

/// What `denv` says to who called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    /// The answer is no.
    No = 1,
    Trouble = 2,
    TimedOut = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    /// As the control plane sends it
    Json,
    /// The same, as YAML
    Yaml,
    /// Names only, one a line
    Name,
}

/// The form of anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[value(alias = "table")]
    Text,
    /// As the control plane sends it
    Json,
    /// The same, as YAML
    Yaml,
}

impl Output {
    pub fn standard() -> Self {
        Output { out: anstream::stdout(), err: anstream::stderr() }
    }

    /// An error with its causes, and a way out.
    pub fn trouble(&mut self, error: &dyn std::error::Error, hint: Option<String>) {
        let text = denv_schema::diagnostic::chain(error);
        self.note(&format!("{} {text}", "error:".red().bold()));
        if let Some(hint) = hint {
            self.hint(&hint);
        }
    }

    /// A result, as a line or lines.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), Error> {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        write!(self.out, "{text}{end}").map_err(Error::Output)
    }

    /// Something beside the result. That it can't be written is nobody's concern.
    pub(crate) fn note(&mut self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let _ = write!(self.err, "{text}{end}");
    }

    pub(crate) fn hint(&mut self, text: &str) {
        self.note(&format!("{} {text}", "hint:".cyan()));
    }

    pub(crate) fn warn(&mut self, text: &str) {
        self.note(&format!("{} {text}", "warning:".yellow().bold()));
    }

    pub(crate) fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.say(&serde_json::to_string_pretty(value).map_err(|error| Error::Output(error.into()))?)
    }

    /// One line of JSON, for streams.
    pub(crate) fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        self.say(&serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?)
    }

    pub(crate) fn yaml<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        self.say(&yaml(value)?)
    }
}

/// A value as YAML that every reader reads as the same value.
pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_yaml::to_string(value).map_err(|error| Error::Output(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn yaml_reads_back_as_the_same_value() {
        let value = json!({
            "text": ["yes", "null", "1.0", "1e3", "0x1f", "", " a ", "a: b", "# no", "two\nlines\n", "- x", "~", "2026-11-29"],
            "numbers": [0, -1, u64::MAX, 0.5],
            "empty": {"list": [], "map": {}, "nothing": null},
            "at": "2026-11-29T12:00:00Z", "hash": "sha256:00", "long": "word ".repeat(60), "on": true,
        });
        let text = yaml(&value).unwrap();
        let back: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }
}
