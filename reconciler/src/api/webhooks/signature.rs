//! Whether a hook is from the forge that shares the secret. Pure, and in constant time.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Whether the hook carries one of the signatures that forges make, and every one that it carries holds.
///
/// | forge | header | holds |
/// | --- | --- | --- |
/// | GitHub | `X-Hub-Signature-256` | `sha256=` and the body's HMAC in hexadecimal |
/// | Gitea, Forgejo | `X-Gitea-Signature`, `X-Forgejo-Signature` | the body's HMAC in hexadecimal |
/// | GitLab, signing token | `webhook-signature` | `v1,` and the HMAC of id, time and body in base64 |
/// | GitLab, secret token | `X-Gitlab-Token` | the secret itself |
///
/// A hook that is sent again does nothing but have the remote looked at again, so its age is not asked for.
pub(super) fn holds(headers: &HeaderMap, body: &[u8], secret: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let key = secret.as_bytes();
    let checks = [
        text("x-hub-signature-256")
            .map(|given| given.strip_prefix("sha256=").is_some_and(|given| is_hex_of(given, key, &[body]))),
        text("x-gitea-signature").map(|given| is_hex_of(given, key, &[body])),
        text("x-forgejo-signature").map(|given| is_hex_of(given, key, &[body])),
        text("webhook-signature").map(|given| {
            let (id, time) = (text("webhook-id"), text("webhook-timestamp"));
            id.zip(time).is_some_and(|(id, time)| is_standard(given, secret, id, time, body))
        }),
        text("x-gitlab-token").map(|given| same(given.as_bytes(), key)),
    ];
    let mut made = checks.into_iter().flatten().peekable();
    made.peek().is_some() && made.all(|holds| holds)
}

/// By the Standard Webhooks specification: several signatures may stand side by side while secrets are changed.
fn is_standard(given: &str, secret: &str, id: &str, time: &str, body: &[u8]) -> bool {
    let decoded = secret.strip_prefix("whsec_").and_then(|encoded| STANDARD.decode(encoded).ok());
    let key = decoded.as_deref().unwrap_or(secret.as_bytes());
    let signed: [&[u8]; 5] = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    let given = given.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    given.filter_map(|one| STANDARD.decode(one).ok()).any(|one| is_of(&one, key, &signed))
}

fn is_hex_of(given: &str, key: &[u8], parts: &[&[u8]]) -> bool {
    from_hex(given).is_some_and(|given| is_of(&given, key, parts))
}

fn is_of(given: &[u8], key: &[u8], parts: &[&[u8]]) -> bool {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    parts.iter().for_each(|part| mac.update(part));
    mac.verify_slice(given).is_ok()
}

/// Compared by their hashes, so that not even the length shows.
fn same(given: &[u8], expected: &[u8]) -> bool {
    Sha256::digest(given).ct_eq(&Sha256::digest(expected)).into()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn headers(of: &[(&str, &str)]) -> HeaderMap {
        let one = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        of.iter().map(one).collect()
    }

    /// The example of GitHub's documentation.
    const GITHUB: (&str, &str, &str) = (
        "It's a Secret to Everybody",
        "Hello, World!",
        "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    );

    #[test]
    fn github_s_gitea_s_and_forgejo_s_hold() {
        let (secret, body, mac) = GITHUB;
        let prefixed = format!("sha256={mac}");
        for header in [
            ("X-Hub-Signature-256", prefixed.as_str()),
            ("X-Gitea-Signature", mac),
            ("X-Forgejo-Signature", mac),
        ] {
            assert!(holds(&headers(&[header]), body.as_bytes(), secret), "{header:?}");
            assert!(!holds(&headers(&[header]), b"Hello, World?", secret), "{header:?}");
            assert!(!holds(&headers(&[header]), body.as_bytes(), "another"), "{header:?}");
        }
        // Gitea sends GitHub's as well; neither makes up for the other.
        let both = |hub: &str| headers(&[("X-Gitea-Signature", mac), ("X-Hub-Signature-256", hub)]);
        assert!(holds(&both(&prefixed), body.as_bytes(), secret));
        assert!(!holds(&both("sha256=00"), body.as_bytes(), secret));
    }

    #[test]
    fn gitlab_s_token_and_signature_hold() {
        assert!(holds(&headers(&[("X-Gitlab-Token", "hunter2")]), b"{}", "hunter2"));
        assert!(!holds(&headers(&[("X-Gitlab-Token", "hunter")]), b"{}", "hunter2"));
        // The example of the Standard Webhooks specification, which GitLab's signing tokens follow.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = br#"{"test": 2432232314}"#;
        let signed = |signature: &str, id: &str| {
            headers(&[
                ("webhook-id", id),
                ("webhook-timestamp", "1614265330"),
                ("webhook-signature", signature),
            ])
        };
        let (good, id) = ("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "msg_p5jXN8AQM9LWM0D4loKWxJek");
        assert!(holds(&signed(good, id), body, secret));
        assert!(holds(&signed(&format!("v1,AAAA {good}"), id), body, secret));
        assert!(!holds(&signed(good, "another"), body, secret));
        assert!(!holds(&signed("v1,AAAA", id), body, secret));
        assert!(!holds(&headers(&[("webhook-signature", good)]), body, secret));
    }

    #[test]
    fn without_a_signature_nothing_holds() {
        for none in [vec![], vec![("X-Hub-Signature-256", "")], vec![("X-Hub-Signature", "sha1=00")]] {
            assert!(!holds(&headers(&none), b"{}", "hunter2"), "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_in_the_headers_is_no_panic(value in "[ -~]{0,80}", body in proptest::collection::vec(any::<u8>(), 0..40)) {
            for name in ["x-hub-signature-256", "x-gitea-signature", "x-forgejo-signature", "x-gitlab-token"] {
                prop_assert!(!holds(&headers(&[(name, &value)]), &body, "a secret that is not made up by chance"));
            }
            let standard = [("webhook-signature", value.as_str()), ("webhook-id", "a"), ("webhook-timestamp", "1")];
            prop_assert!(!holds(&headers(&standard), &body, "secret"));
        }
    }
}
