//! Secrets that are made here: random, of one form, and written where only their owner reads them.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rand::TryRngCore as _;
use rand::rngs::OsRng;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62^43 is just above 2^256.
const DIGITS: usize = 43;

/// 256 random bits in letters and digits, behind a prefix by which people know what it is.
pub(crate) fn text(prefix: &str) -> Result<String, rand::rand_core::OsError> {
    let mut text = prefix.to_owned();
    let mut bytes = [0u8; 64];
    while text.len() < prefix.len() + DIGITS {
        OsRng.try_fill_bytes(&mut bytes)?;
        // The largest multiple of 62 in a byte: beyond it some digits would come up more often.
        let fair = bytes.iter().filter(|byte| **byte < 248);
        let missing = prefix.len() + DIGITS - text.len();
        text.extend(fair.take(missing).map(|byte| char::from(ALPHABET[usize::from(*byte % 62)])));
    }
    Ok(text)
}

/// A new file, which only its owner can read. One that is there is left alone.
pub(crate) fn write_new(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_random_and_of_one_form() {
        let (one, other) = (text("sk-denv-").unwrap(), text("sk-denv-").unwrap());
        assert_ne!(one, other);
        let digits = one.strip_prefix("sk-denv-").unwrap();
        assert_eq!(digits.len(), 43);
        assert!(digits.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
