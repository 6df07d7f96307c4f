use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A share, written `1%`, `99.5%` or, of growth, `150%`: in thousandths of a per cent, at most 1000%.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u32);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a share is written `1%` or `99.5%`, and is at most 1000%")]
pub struct InvalidShare;

impl Share {
    /// A share of so many whole per cent.
    pub const fn percent(percent: u32) -> Self {
        Share(percent * 1000)
    }

    /// The nearest to a part of one. Nothing where that is no share at all, or more than 1000%.
    pub fn from_ratio(ratio: f64) -> Option<Self> {
        let thousandths = (ratio * 100_000.0).round();
        // The range is checked first.
        (0.0..=1_000_000.0).contains(&thousandths).then_some(Share(thousandths as u32))
    }

    /// In thousandths of a per cent.
    pub fn thousandths_of_a_percent(self) -> u32 {
        self.0
    }

    /// As a part of one, for comparing with what was measured.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 100_000.0
    }
}

impl FromStr for Share {
    type Err = InvalidShare;
    fn from_str(text: &str) -> Result<Self, InvalidShare> {
        let number = text.strip_suffix('%').ok_or(InvalidShare)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
        };
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if !is_digits(whole, 4) || !is_digits(fraction, 3) || leading_zero {
            return Err(InvalidShare);
        }
        let whole: u32 = whole.parse().map_err(|_| InvalidShare)?;
        let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| InvalidShare)?;
        let share = whole * 1000 + fraction;
        if share > 1_000_000 { Err(InvalidShare) } else { Ok(Share(share)) }
    }
}

impl TryFrom<String> for Share {
    type Error = InvalidShare;
    fn try_from(text: String) -> Result<Self, InvalidShare> {
        text.parse()
    }
}

impl From<Share> for String {
    fn from(share: Share) -> String {
        share.to_string()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1000, self.0 % 1000);
        if fraction == 0 {
            write!(f, "{whole}%")
        } else {
            write!(f, "{whole}.{}%", format!("{fraction:03}").trim_end_matches('0'))
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl JsonSchema for Share {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^(1000(\.0{1,3})?|(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?)%$",
            "patternErrorMessage": "a share is written `1%` or `99.5%`, and is at most `1000%`"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_made_of_what_was_measured() {
        assert_eq!(Share::from_ratio(0.125), Some(Share(12_500)));
        assert_eq!(Share::from_ratio(0.0), Some(Share(0)));
        for bad in [-0.1, 10.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::from_ratio(bad), None, "{bad}");
        }
    }

    #[test]
    fn shares_read_as_people_write_them() {
        for (text, share) in
            [("0%", 0), ("1%", 1000), ("99.5%", 99_500), ("0.125%", 125), ("1000%", 1_000_000)]
        {
            assert_eq!(text.parse::<Share>().unwrap(), Share(share));
            assert_eq!(Share(share).to_string(), text);
        }
        for bad in ["", "1", "%", "1.%", ".5%", "-1%", "01%", "1000.001%", "1.2345%", "1 %"] {
            assert_eq!(bad.parse::<Share>(), Err(InvalidShare), "{bad}");
        }
    }
}
