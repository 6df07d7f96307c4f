//! Errors as libgit2 carries them: words, and nothing else.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;

use git2::{Error, ErrorClass, ErrorCode};

/// An error in these words.
pub(crate) fn fault(words: impl AsRef<str>) -> Error {
    Error::new(ErrorCode::GenericError, ErrorClass::Net, printable(words.as_ref()))
}

/// The same for a stream.
pub(crate) fn stream_fault(words: impl AsRef<str>) -> io::Error {
    io::Error::other(printable(words.as_ref()))
}

/// What a remote says is shown in terminals and kept in records: one line of it, without control characters (a NUL
/// would also end libgit2's copy).
pub(crate) fn printable(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

/// Why a request failed, without its address: that may hold a secret.
pub(crate) fn because(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Wrappers repeat what they wrap, and the outermost only says that it is one.
        if !text.ends_with(&said) && !said.starts_with("client error") {
            let separator = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{separator}{said}");
        }
        cause = error.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// The TLS error in an error or its causes. An `io::Error` hides the one that it wraps from `source`.
pub(crate) fn tls<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let found = error.downcast_ref::<rustls::Error>();
    let wrapped = || error.downcast_ref::<io::Error>()?.get_ref().and_then(|error| tls(error));
    found.or_else(wrapped).or_else(|| error.source().and_then(tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_remote_says_stays_on_its_line() {
        assert_eq!(printable("a\0b\u{1b}[31mred\n"), "a b [31mred");
    }
}
