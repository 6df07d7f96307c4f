use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue};

use crate::proxy::REQUEST_ID;

/// Names requests: as their client does, or by a number that no other request of any gateway is likely to have.
pub(super) struct RequestIds {
    process: u64,
    count: AtomicU64,
}

const LONGEST: usize = 128;
const HEX: &[u8; 16] = b"0123456789abcdef";

impl RequestIds {
    pub(super) fn new() -> Self {
        RequestIds { process: uuid::Uuid::new_v4().as_u64_pair().0, count: AtomicU64::new(0) }
    }

    pub(super) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(REQUEST_ID) {
            Some(id) if is_sane(id.as_bytes()) => id.clone(),
            _ => self.next(),
        }
    }

    fn next(&self) -> HeaderValue {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        // A random number of the process and the request's count, side by side, in hexadecimal.
        let mut text = *b"req-000000000000000000000000";
        let digits = (u128::from(self.process) << 32) | u128::from(count as u32);
        for (place, digit) in text[4..].iter_mut().rev().enumerate() {
            *digit = HEX[(digits >> (4 * place)) as usize & 15];
        }
        HeaderValue::from_bytes(&text).expect("hexadecimal digits are allowed in headers")
    }
}

/// Fit for logs, ledgers and headers as it stands.
fn is_sane(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=LONGEST).contains(&id.len()) && id.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sane_ids_are_kept_and_others_replaced_by_unique_ones() {
        let ids = RequestIds::new();
        let of =
            |id: &'static str| ids.of(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(id))]));
        assert_eq!(of("abc-1.2:3_4"), "abc-1.2:3_4");
        let (one, two) = (of("a b"), of(""));
        assert_ne!(one, two);
        assert!(one.to_str().unwrap().starts_with("req-") && one.len() == 28);
        assert!(
            ids.of(&HeaderMap::new())
                .as_bytes()
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        );
    }
}
