use std::fmt;
use std::str::FromStr;

use denv_schema::Digest;

/// A one-time join token: `denv-join.SECRET.AUTHORITY`. The secret is good for one certificate, the authority is
/// the fingerprint by which the joiner knows the control plane before it has any certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub secret: String,
    pub authority: Digest,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this is not a join token: it has the form `denv-join.…`, as `denv host token NAME` or `denv gateway token NAME` prints it"
)]
pub struct InvalidToken;

const PREFIX: &str = "denv-join";

impl JoinToken {
    /// What the store keeps of a token.
    pub fn secret_hash(secret: &str) -> Digest {
        Digest::of_bytes(secret.as_bytes())
    }
}

impl FromStr for JoinToken {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let mut parts = text.trim().split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(PREFIX), Some(secret), Some(hex), None) if !secret.is_empty() => Ok(JoinToken {
                secret: secret.to_owned(),
                authority: format!("sha256:{hex}").parse().map_err(|_| InvalidToken)?,
            }),
            _ => Err(InvalidToken),
        }
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority.to_string();
        write!(f, "{PREFIX}.{}.{}", self.secret, authority.trim_start_matches("sha256:"))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("authority", &self.authority).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_hide_their_secret() {
        let token = JoinToken { secret: "s3cret".to_owned(), authority: Digest::of_bytes(b"ca") };
        assert_eq!(token.to_string().parse::<JoinToken>().unwrap(), token);
        assert!(!format!("{token:?}").contains("s3cret"));
        assert!("denv-join.x".parse::<JoinToken>().is_err());
    }
}
