//! Whose signature on a commit counts: OpenSSH's allowed signers, as `ssh-keygen -Y verify` and Git read them.
//!
//! Pure: text, signatures and times in, a verdict out.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use ssh_key::{PublicKey, SshSig};

/// What Git signs commits for.
const NAMESPACE: &str = "git";

/// Those whose signatures count.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedSigners(Vec<Signer>);

#[derive(Clone, Debug)]
struct Signer {
    principals: String,
    key: PublicKey,
    bounds: Bounds,
}

/// When and for what a key counts.
#[derive(Clone, Debug, Default)]
struct Bounds {
    /// Patterns of what its signatures may be for; empty for anything.
    namespaces: Vec<String>,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
}

/// A line that can't be followed. What is not understood must not pass for a permission.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct InvalidSigners {
    line: usize,
    fault: String,
}

/// Why a commit's signature does not count.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsigned {
    Missing,
    NotSsh,
    Unreadable,
    /// The key is nobody's who is allowed.
    Unknown {
        fingerprint: String,
    },
    /// Keys of this kind can't be verified.
    Unsupported {
        kind: String,
    },
    /// The signature is of something else.
    Wrong {
        fingerprint: String,
    },
    /// The key is known, but not for this time or use.
    NotNow {
        principals: String,
        why: &'static str,
    },
}

impl fmt::Display for Unsigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsigned::Missing => f.write_str("it is not signed"),
            Unsigned::NotSsh => {
                f.write_str("it is signed in another way than with an SSH key (`gpg.format ssh`)")
            }
            Unsigned::Unreadable => f.write_str("its signature can't be read"),
            Unsigned::Unknown { fingerprint } => {
                write!(f, "its key {fingerprint} is not among the allowed signers")
            }
            Unsigned::Unsupported { kind } => {
                write!(
                    f,
                    "its key is of the kind `{kind}`, which denv does not verify; use ed25519 or ecdsa-p256"
                )
            }
            Unsigned::Wrong { fingerprint } => {
                write!(f, "its signature by {fingerprint} is of something else")
            }
            Unsigned::NotNow { principals, why } => write!(f, "the key of {principals} is {why}"),
        }
    }
}

impl AllowedSigners {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidSigners> {
        let mut signers = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let signer = signer(line).map_err(|fault| InvalidSigners { line: number + 1, fault })?;
            signers.push(signer);
        }
        if signers.is_empty() {
            let fault = "there is nobody in it, so that nothing could be accepted".to_owned();
            return Err(InvalidSigners { line: 1, fault });
        }
        Ok(AllowedSigners(signers))
    }

    /// Who signed this, where it counts. As for Git, a key's times are held against the commit's.
    pub(super) fn verify(
        &self,
        signature: Option<&[u8]>,
        signed: &[u8],
        committed: Timestamp,
    ) -> Result<&str, Unsigned> {
        let signature = signature.ok_or(Unsigned::Missing)?;
        let text = String::from_utf8_lossy(signature);
        if !text.trim_start().starts_with("-----BEGIN SSH SIGNATURE-----") {
            return Err(Unsigned::NotSsh);
        }
        let signature = SshSig::from_pem(text.trim()).map_err(|_| Unsigned::Unreadable)?;
        let key = PublicKey::from(signature.public_key().clone());
        let fingerprint = || key.fingerprint(ssh_key::HashAlg::Sha256).to_string();
        let mut known = self.0.iter().filter(|it| it.key.key_data() == signature.public_key()).peekable();
        if known.peek().is_none() {
            return Err(Unsigned::Unknown { fingerprint: fingerprint() });
        }
        if !is_supported(&key) {
            return Err(Unsigned::Unsupported { kind: key.algorithm().to_string() });
        }
        if key.verify(NAMESPACE, signed, &signature).is_err() {
            return Err(Unsigned::Wrong { fingerprint: fingerprint() });
        }
        let mut objections = Vec::new();
        for signer in known {
            match signer.bounds.objection(committed) {
                None => return Ok(&signer.principals),
                Some(why) => objections.push(Unsigned::NotNow { principals: signer.principals.clone(), why }),
            }
        }
        Err(objections.pop().expect("the key is somebody's"))
    }
}

impl Bounds {
    fn objection(&self, committed: Timestamp) -> Option<&'static str> {
        if !self.namespaces.is_empty() && !self.namespaces.iter().any(|it| matches(it, NAMESPACE)) {
            return Some("not allowed to sign for Git (`namespaces`)");
        }
        if self.after.is_some_and(|after| committed < after) {
            return Some("not valid yet at the commit's time (`valid-after`)");
        }
        if self.before.is_some_and(|before| committed >= before) {
            return Some("no longer valid at the commit's time (`valid-before`)");
        }
        None
    }
}

fn is_supported(key: &PublicKey) -> bool {
    use ssh_key::{Algorithm, EcdsaCurve};
    matches!(
        key.algorithm(),
        Algorithm::Ed25519
            | Algorithm::SkEd25519
            | Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }
            | Algorithm::SkEcdsaSha2NistP256
    )
}

/// `principals [options] kind key [comment]`
fn signer(line: &str) -> Result<Signer, String> {
    let (principals, rest) = word(line);
    let mut bounds = Bounds::default();
    let (first, after_first) = word(rest);
    let key = if first.parse::<ssh_key::Algorithm>().is_ok_and(|kind| !is_unknown(&kind)) {
        rest
    } else {
        for option in split(first, ',') {
            bounds.set(option)?;
        }
        after_first
    };
    let key = PublicKey::from_openssh(key.trim()).map_err(|_| {
        "there must be `PRINCIPALS [OPTIONS] KIND KEY`, with a public key in base64".to_owned()
    })?;
    Ok(Signer { principals: principals.replace('"', ""), key, bounds })
}

fn is_unknown(kind: &ssh_key::Algorithm) -> bool {
    matches!(kind, ssh_key::Algorithm::Other(_))
}

impl Bounds {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        match name.to_ascii_lowercase().as_str() {
            "namespaces" => self.namespaces = value.split(',').map(str::to_owned).collect(),
            "valid-after" => self.after = Some(time(value)?),
            "valid-before" => self.before = Some(time(value)?),
            "cert-authority" => {
                return Err("`cert-authority` is not followed; list the keys themselves".to_owned());
            }
            _ => {
                return Err(format!(
                    "there is no option `{name}`; there are `namespaces`, `valid-after` and `valid-before`"
                ));
            }
        }
        Ok(())
    }
}

/// `YYYYMMDD[HHMM[SS]]`, in UTC with a `Z` behind it, else where denv runs.
fn time(text: &str) -> Result<Timestamp, String> {
    let fault = || format!("`{text}` is no time; write it as `YYYYMMDD` or `YYYYMMDDHHMMZ`");
    let (digits, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(digits) => (digits, TimeZone::UTC),
        None => (text, TimeZone::system()),
    };
    if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(fault());
    }
    let part = |from: usize, to: usize| digits.get(from..to).and_then(|part| part.parse::<i16>().ok());
    let small = |from: usize| part(from, from + 2).and_then(|part| i8::try_from(part).ok());
    let date = part(0, 4).zip(small(4)).zip(small(6));
    let date = date.and_then(|((year, month), day)| Date::new(year, month, day).ok()).ok_or_else(fault)?;
    let clock = Time::new(small(8).unwrap_or(0), small(10).unwrap_or(0), small(12).unwrap_or(0), 0);
    let moment = DateTime::from_parts(date, clock.map_err(|_| fault())?);
    zone.to_timestamp(moment).map_err(|_| fault())
}

/// The first word, where quotes keep blanks together, and what follows it.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let mut quoted = false;
    let end = text.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        !quoted && c.is_whitespace()
    });
    end.map_or((text, ""), |(end, _)| text.split_at(end))
}

/// Parts between a separator that stands outside quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        !quoted && c == separator
    })
}

/// OpenSSH's patterns: `*` is any text, `?` one character.
fn matches(pattern: &str, text: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), _) => {
            let rest = &pattern[1..];
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches(rest, &text[at..]))
        }
        (Some('?'), Some(c)) => matches(&pattern[1..], &text[c.len_utf8()..]),
        (Some(p), Some(c)) if p == c => matches(&pattern[p.len_utf8()..], &text[c.len_utf8()..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ssh_key::private::{Ed25519Keypair, KeypairData};
    use ssh_key::{HashAlg, LineEnding, PrivateKey};

    use super::*;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "").unwrap()
    }

    fn public(seed: u8) -> String {
        key(seed).public_key().to_openssh().unwrap()
    }

    fn sign(seed: u8, namespace: &str, text: &[u8]) -> Vec<u8> {
        let signature = key(seed).sign(namespace, HashAlg::Sha512, text).unwrap();
        signature.to_pem(LineEnding::LF).unwrap().into_bytes()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_signature_counts_only_of_who_is_allowed_for_git_and_for_this_text() {
        let text = format!("# people\n\nada@example.com,\"bob x\" {} work\n", public(1));
        let allowed = AllowedSigners::parse(&text).unwrap();
        let now = at("2026-03-01T00:00:00Z");
        let verify = |signature: &[u8], signed: &[u8]| {
            allowed.verify(Some(signature), signed, now).map(str::to_owned).map_err(|why| why.to_string())
        };
        assert_eq!(verify(&sign(1, "git", b"commit"), b"commit").unwrap(), "ada@example.com,bob x");
        for (signature, said) in [
            (sign(2, "git", b"commit"), "is not among the allowed signers"),
            (sign(1, "git", b"another"), "is of something else"),
            (sign(1, "file", b"commit"), "is of something else"),
            (b"-----BEGIN PGP SIGNATURE-----\n".to_vec(), "another way than with an SSH key"),
            (b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----".to_vec(), "can't be read"),
        ] {
            let why = verify(&signature, b"commit").unwrap_err();
            assert!(why.contains(said), "{why}");
        }
        assert_eq!(allowed.verify(None, b"commit", now), Err(Unsigned::Missing));
    }

    #[test]
    fn options_bound_when_and_for_what_a_key_counts() {
        let verdict = |options: &str, committed: &str| {
            let allowed = AllowedSigners::parse(&format!("ada {options} {}", public(1))).unwrap();
            let verified = allowed.verify(Some(&sign(1, "git", b"x")), b"x", at(committed));
            verified.map(str::to_owned).map_err(|why| why.to_string())
        };
        let times = r#"valid-after="20260101Z",valid-before="202602011200Z""#;
        assert_eq!(verdict(times, "2026-01-01T00:00:00Z").unwrap(), "ada");
        assert!(verdict(times, "2025-12-31T23:59:59Z").unwrap_err().contains("not valid yet"));
        assert!(verdict(times, "2026-02-01T12:00:00Z").unwrap_err().contains("no longer valid"));
        let now = "2026-01-01T00:00:00Z";
        assert!(verdict(r#"namespaces="file,git""#, now).is_ok());
        assert!(verdict(r#"namespaces="g*",valid-after=20200101"#, now).is_ok());
        let why = verdict(r#"namespaces="file""#, now).unwrap_err();
        assert!(why.contains("not allowed to sign for Git"), "{why}");
    }

    #[test]
    fn what_is_not_understood_is_an_error_at_its_line() {
        let fault = |line: &str| AllowedSigners::parse(&format!("# one\n{line}")).unwrap_err().to_string();
        let key = public(1);
        for (line, said) in [
            (format!("ada cert-authority {key}"), "line 2: `cert-authority` is not followed"),
            (format!("ada no-touch {key}"), "line 2: there is no option `no-touch`"),
            (format!("ada valid-after=2026 {key}"), "line 2: `2026` is no time"),
            (format!("ada valid-after=20261301 {key}"), "line 2: `20261301` is no time"),
            ("ada ssh-ed25519 nonsense".to_owned(), "line 2: there must be `PRINCIPALS"),
            ("ada".to_owned(), "line 2: there"),
        ] {
            let fault = fault(&line);
            assert!(fault.starts_with(said), "{line}: {fault}");
        }
        assert!(fault("").contains("there is nobody in it"));
    }

    /// Made with `ssh-keygen -t KIND` and `ssh-keygen -Y sign -n git` on the text `commit`.
    #[test]
    fn what_ssh_keygen_signs_is_verified() {
        let text = format!("ed {ED25519}\nec {ECDSA}\nrsa {RSA}\n");
        let allowed = AllowedSigners::parse(&text).unwrap();
        let now = at("2026-03-01T00:00:00Z");
        let verify = |signature: &str, text: &str| {
            allowed.verify(Some(signature.as_bytes()), text.as_bytes(), now).map_err(|why| why.to_string())
        };
        assert_eq!(verify(ED25519_SIGNATURE, "commit").unwrap(), "ed");
        assert_eq!(verify(ECDSA_SIGNATURE, "commit").unwrap(), "ec");
        assert!(verify(ED25519_SIGNATURE, "commit\n").unwrap_err().contains("of something else"));
        assert!(verify(ECDSA_SIGNATURE, "commat").unwrap_err().contains("of something else"));
        let why = verify(RSA_SIGNATURE, "commit").unwrap_err();
        assert!(why.contains("of the kind `ssh-rsa`, which denv does not verify"), "{why}");
    }

    const ED25519: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIM78NNTOnDdoiH10s5okQld0bpk4w8MLkH85bvXp6X7m ed25519";
    const ED25519_SIGNATURE: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgzvw01M6cN2iIfXSzmiRCV3RumT
jDwwuQfzlu9enpfuYAAAADZ2l0AAAAAAAAAAZzaGE1MTIAAABTAAAAC3NzaC1lZDI1NTE5
AAAAQDMLMAyOMVa5sByHtmFdgb6oeMUYuuEiZnoPlS5z88a0q/t+YIec6psvYdIe1ZqRTp
wNOIYO+xmXRoMPYAohGQw=
-----END SSH SIGNATURE-----
";
    const ECDSA: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBLHVcmIJ4bk8bQwhQR1iiN6VzLw/5WGKJ3uDJcix+ui2Ta1uQsdp/5Xkr6qWmdk7wPVUwmF8jevMoqUJkNkGamg= ecdsa";
    const ECDSA_SIGNATURE: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAAGgAAAATZWNkc2Etc2hhMi1uaXN0cDI1NgAAAAhuaXN0cDI1NgAAAE
EEsdVyYgnhuTxtDCFBHWKI3pXMvD/lYYone4MlyLH66LZNrW5Cx2n/leSvqpaZ2TvA9VTC
YXyN68yipQmQ2QZqaAAAAANnaXQAAAAAAAAABnNoYTUxMgAAAGQAAAATZWNkc2Etc2hhMi
1uaXN0cDI1NgAAAEkAAAAgKq+pN8+r3A4MiirH0ihYU9QWw5UCSdaOXnn6EmMmEBYAAAAh
AMFWEETyrTuRE5iQbqm2C5tJpcdKWmeZ4nCXzZqUPPrw
-----END SSH SIGNATURE-----
";
    const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQD1NyhA09wa0wr5AYh+AaPivW52yQROHqKhzcuy3KtjvO2OdDEkjrPhjdptElNLWazUaAemhD5FbYyf+YPiIRZ2JyuEBr9XVZPz2R3RIx4XQl74yugXsnoTvkGCZEegIzEpFYOkySlvgV6j9kVlXSyLsexucxlK60S9bKTSTURnqJATskWtz7txXUAMbRvP45WTNLk9S8ehyg8qVTmiSZfPvIvBQEaZFPuEBkZMkYLOkVho/7gwq7blfwqhr8gizgS50yZNlhTKV4s3y8QXNWY5TvsGWJcPSOSNed/JsSS6waaVhcYuamI2ZaPWIKFSpqdfGrWHlqrHJ8Z0F1a/qqKx";
    const RSA_SIGNATURE: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAARcAAAAHc3NoLXJzYQAAAAMBAAEAAAEBAPU3KEDT3BrTCvkBiH4Bo+
K9bnbJBE4eoqHNy7Lcq2O87Y50MSSOs+GN2m0SU0tZrNRoB6aEPkVtjJ/5g+IhFnYnK4QG
v1dVk/PZHdEjHhdCXvjK6BeyehO+QYJkR6AjMSkVg6TJKW+BXqP2RWVdLIux7G5zGUrrRL
1spNJNRGeokBOyRa3Pu3FdQAxtG8/jlZM0uT1Lx6HKDypVOaJJl8+8i8FARpkU+4QGRkyR
gs6RWGj/uDCrtuV/CqGvyCLOBLnTJk2WFMpXizfLxBc1ZjlO+wZYlw9I5I1538mxJLrBpp
WFxi5qYjZlo9YgoVKmp18atYeWqscnxnQXVr+qorEAAAADZ2l0AAAAAAAAAAZzaGE1MTIA
AAEUAAAADHJzYS1zaGEyLTUxMgAAAQDmfUmpbLsWEj64BIp7dlmG+pq85w/kdvlTOyIuPG
U8BkbADVY7v3ols/vlieDB00hwOM6p91f3KcHOCsKfRO6Ou7YoaitzEovmcXbuR6CCSe3X
l7GeXE5ohTEIAWsVeLYxP5/gL0pIolpqxQ73sy0to7SCpwI8VqdCKxPNnbgJwaE/pMRmPx
EKLbea9sXkVOzgYdApOfZ0Hs06Lfc51jrx1BoW0t/8cnnpJ7+EmgdPGthhNlmUJlm0zGtC
W7ChUHRQ7Vcg4xMRLTuUs2ZkGVeRiO5k3PcQVOevvQhvvL5X/hnBNkSxGx4dpc0OIAZtiR
z+rFgP+rQP4oXPxKJBdabP
-----END SSH SIGNATURE-----
";

    #[test]
    fn patterns_are_openssh_s() {
        for (pattern, text, expected) in
            [("git", "git", true), ("g?t", "git", true), ("*", "git", true), ("gi", "git", false)]
        {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
