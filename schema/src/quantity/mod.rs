//! Quantities that carry their units.

mod bytes;
pub(crate) mod money;
mod share;
mod size;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use bytes::Bytes;
pub use money::{Currency, Money};
pub use share::Share;
pub use size::ByteSize;

/// A length of time, written `500ms`, `30s`, `5m`, `2h` or `1d`; units may be joined, largest first: `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(std::time::Duration);

const UNITS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a length of time: write for example `30s`, `5m` or `1h30m`")]
pub struct InvalidPeriod(String);

impl Period {
    pub const fn from_secs(seconds: u64) -> Self {
        Period(std::time::Duration::from_secs(seconds))
    }

    pub const fn from_millis(milliseconds: u64) -> Self {
        Period(std::time::Duration::from_millis(milliseconds))
    }

    pub fn get(self) -> std::time::Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = InvalidPeriod;
    fn from_str(text: &str) -> Result<Self, InvalidPeriod> {
        let invalid = || InvalidPeriod(text.to_owned());
        let (mut rest, mut total_ms, mut next_unit) = (text, 0u64, 0);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let amount: u64 = rest[..digits].parse().map_err(|_| invalid())?;
            rest = &rest[digits..];
            let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
            let position = UNITS_MS[next_unit..].iter().position(|(unit, _)| *unit == &rest[..letters]);
            let position = next_unit + position.ok_or_else(invalid)?;
            let ms = amount.checked_mul(UNITS_MS[position].1).ok_or_else(invalid)?;
            total_ms = total_ms.checked_add(ms).ok_or_else(invalid)?;
            next_unit = position + 1;
            rest = &rest[letters..];
        }
        // A century keeps every sum with a time in range.
        if text.is_empty() || total_ms > 100 * 366 * 86_400_000 {
            return Err(invalid());
        }
        Ok(Period::from_millis(total_ms))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, ms) in UNITS_MS {
            if rest >= ms {
                write!(f, "{}{unit}", rest / ms)?;
                rest %= ms;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Period {
    type Error = InvalidPeriod;
    fn try_from(text: String) -> Result<Self, InvalidPeriod> {
        text.parse()
    }
}

impl From<Period> for String {
    fn from(period: Period) -> String {
        period.to_string()
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
            "minLength": 2,
            "format": "period",
            "patternErrorMessage": "a length of time is written `500ms`, `30s`, `5m`, `2h`, `1d` or `1h30m`, largest unit first, and is at most a century"
        })
    }
}

/// How many units: a number, or a share of them all, written `25%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Count(u32),
    /// 0 to 100.
    Percent(u8),
}

impl Amount {
    /// This amount of `total`, a share rounded up, never more than `total`.
    pub fn of(self, total: u32) -> u32 {
        match self {
            Amount::Count(count) => count.min(total),
            Amount::Percent(percent) => {
                let share = (u64::from(total) * u64::from(percent)).div_ceil(100);
                u32::try_from(share).unwrap_or(total).min(total)
            }
        }
    }

    /// Like [`Amount::of`], a share rounded down: for budgets, which must not grow by rounding.
    pub fn of_rounded_down(self, total: u32) -> u32 {
        match self {
            Amount::Count(count) => count.min(total),
            Amount::Percent(percent) => {
                let share = u64::from(total) * u64::from(percent) / 100;
                u32::try_from(share).unwrap_or(total).min(total)
            }
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Count(count) => write!(f, "{count}"),
            Amount::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Amount::Count(count) => serializer.serialize_u32(*count),
            Amount::Percent(percent) => serializer.serialize_str(&format!("{percent}%")),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of units, or a share like `25%`")
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Amount, E> {
                u32::try_from(count).map(Amount::Count).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Amount, E> {
                u32::try_from(count).map(Amount::Count).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                text.strip_suffix('%')
                    .and_then(|digits| digits.parse::<u8>().ok())
                    .filter(|percent| *percent <= 100)
                    .map(Amount::Percent)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "maximum": u32::MAX,
            "pattern": "^(100|[1-9]?[0-9])%$",
            "patternErrorMessage": "write a number of units, or a share of them from `0%` to `100%`"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn periods_read_as_people_write_them() {
        for (text, ms) in
            [("5m", 300_000), ("1h30m", 5_400_000), ("250ms", 250), ("0s", 0), ("1m30s", 90_000)]
        {
            assert_eq!(text.parse::<Period>().unwrap(), Period::from_millis(ms), "{text}");
        }
        for bad in ["", "5", "m", "5 m", "-5m", "5m1h", "5x", "5m5m", "99999999999999999999d"] {
            assert!(bad.parse::<Period>().is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_round_shares_up_and_budgets_down() {
        assert_eq!(Amount::Percent(25).of(2), 1);
        assert_eq!(Amount::Percent(25).of_rounded_down(2), 0);
        assert_eq!(Amount::Percent(100).of(7), 7);
        assert_eq!(Amount::Count(9).of(7), 7);
    }

    proptest! {
        #[test]
        fn periods_round_trip(ms in 0u64..100_000_000_000) {
            let period = Period::from_millis(ms);
            prop_assert_eq!(period.to_string().parse::<Period>().unwrap(), period);
        }
    }
}
