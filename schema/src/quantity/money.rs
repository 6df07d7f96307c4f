use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An amount of money, written as a decimal in quotes: `"0.30"`. Never a float, which can't hold it: at most twelve
/// digits before and after the point, and never negative. Its currency stands beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Money(Decimal);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an amount of money is a decimal like `0.30`, with at most twelve digits before and after the point")]
pub struct InvalidMoney;

/// Digits on each side of the point.
const DIGITS: usize = 12;

impl Money {
    /// The exact amount.
    pub fn get(self) -> Decimal {
        self.0
    }
}

impl FromStr for Money {
    type Err = InvalidMoney;
    fn from_str(text: &str) -> Result<Self, InvalidMoney> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits =
            |part: &str| (1..=DIGITS).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if !digits(whole) || !digits(fraction) || leading_zero {
            return Err(InvalidMoney);
        }
        Decimal::from_str_exact(text).map(Money).map_err(|_| InvalidMoney)
    }
}

impl TryFrom<String> for Money {
    type Error = InvalidMoney;
    fn try_from(text: String) -> Result<Self, InvalidMoney> {
        text.parse()
    }
}

impl From<Money> for String {
    fn from(money: Money) -> String {
        money.to_string()
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The format that a schema gives an amount of money.
pub(crate) const FORMAT: &str = "money";

impl JsonSchema for Money {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "pattern": r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?$",
            "patternErrorMessage": "an amount of money is a decimal in quotes, for example \"0.30\", with at most twelve digits before and after the point"
        })
    }
}

/// What an amount of money is an amount of, by its ISO 4217 code.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Currency {
    #[default]
    Usd,
    Eur,
    Gbp,
    Chf,
    Jpy,
    Cny,
    Inr,
    Krw,
    Sgd,
    Aud,
    Cad,
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_uppercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_and_keeps_its_form() {
        for text in ["0.30", "12", "0", "0.000001", "999999999999.999999999999"] {
            assert_eq!(text.parse::<Money>().unwrap().to_string(), text);
        }
        let (one, ten) = ("0.1".parse::<Money>().unwrap().get(), "1.0".parse::<Money>().unwrap().get());
        assert_eq!((0..10).map(|_| one).sum::<Decimal>(), ten);
        for bad in ["", ".5", "5.", "-1", "+1", "1e3", "1,5", "1_000", "01", "$1", "1.1234567890123", "NaN"] {
            assert_eq!(bad.parse::<Money>(), Err(InvalidMoney), "{bad}");
        }
    }

    #[test]
    fn a_currency_is_written_by_its_code() {
        assert_eq!(Currency::Eur.to_string(), "EUR");
        assert_eq!(serde_json::to_string(&Currency::Eur).unwrap(), "\"EUR\"");
    }
}
