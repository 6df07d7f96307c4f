//! Who we are to an HTTPS remote.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use git2::Error;

use crate::fault::fault;

/// What hosts expect beside a token is any name; GitHub documents this one, and others take it.
const TOKEN_USER: &str = "x-access-token";

/// Where credentials are; never what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialsPlace {
    File(PathBuf),
    Environment(String),
}

impl fmt::Display for CredentialsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialsPlace::File(path) => write!(f, "`{}`", path.display()),
            CredentialsPlace::Environment(name) => write!(f, "`{name}` in the environment"),
        }
    }
}

impl CredentialsPlace {
    fn text(&self) -> Result<String, String> {
        match self {
            CredentialsPlace::File(path) => fs::read_to_string(path).map_err(|error| error.to_string()),
            CredentialsPlace::Environment(name) => {
                std::env::var(name).map_err(|_| "it is not set".to_owned())
            }
        }
    }
}

#[derive(PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// Never shows the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads `user:password` or a token; `user` is what the address says, and goes with a token.
    pub(crate) fn read(place: &CredentialsPlace, user: Option<&str>) -> Result<Self, Error> {
        let of_flag = |what: &str| fault(format!("{what} {place} (--source-credentials)"));
        let text =
            place.text().map_err(|error| fault(format!("{}: {error}", of_flag("cannot read").message())))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return Err(of_flag("there is nothing in"));
        }
        if text.chars().any(char::is_control) {
            return Err(of_flag("there must be one line, `user:password` or a token, in"));
        }
        Ok(match text.split_once(':') {
            Some((user, password)) => Credentials { user: user.to_owned(), password: password.to_owned() },
            None => Credentials { user: user.unwrap_or(TOKEN_USER).to_owned(), password: text.to_owned() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, user: Option<&str>) -> Result<(String, String), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let read = Credentials::read(&CredentialsPlace::File(file.path().to_owned()), user);
        read.map(|found| (found.user, found.password)).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_file_holds_a_pair_or_a_token() {
        let pair = |user: &str, password: &str| Ok((user.to_owned(), password.to_owned()));
        assert_eq!(read("bot:a:b\n", Some("other")), pair("bot", "a:b"));
        assert_eq!(read("t0ken\r\n", None), pair("x-access-token", "t0ken"));
        assert_eq!(read("t0ken", Some("oauth2")), pair("oauth2", "t0ken"));
        assert!(read("\n", None).unwrap_err().contains("--source-credentials"));
        assert!(read("secret\nmore", None).unwrap_err().starts_with("there must be one line"));
        let place = CredentialsPlace::Environment("DENV_NOT_SET_ANYWHERE".to_owned());
        let missing = Credentials::read(&place, None).unwrap_err();
        assert!(missing.message().starts_with("cannot read `DENV_NOT_SET_ANYWHERE` in the environment"));
        let missing = Credentials::read(&CredentialsPlace::File("/nowhere/file".into()), None).unwrap_err();
        assert!(
            missing.message().contains("cannot read `/nowhere/file` (--source-credentials): No such file")
        );
    }

    #[test]
    fn a_password_is_not_shown() {
        let credentials = Credentials { user: "bot".to_owned(), password: "hunter2".to_owned() };
        assert_eq!(format!("{credentials:?}"), "Credentials { user: \"bot\", .. }");
    }
}
