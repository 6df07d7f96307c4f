use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A number of bytes, written with a binary unit: `512Mi`, `64Gi`, `4Ti`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(u64);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a size is written with its unit: `512Mi`, `64Gi` or `4Ti`")]
pub struct InvalidByteSize;

const UNITS: [(&str, u32); 5] = [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

impl ByteSize {
    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = InvalidByteSize;
    fn from_str(text: &str) -> Result<Self, InvalidByteSize> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let (_, bits) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(InvalidByteSize)?;
        if digits > 7 || number.starts_with('0') {
            return Err(InvalidByteSize);
        }
        let number: u64 = number.parse().map_err(|_| InvalidByteSize)?;
        number.checked_mul(1 << bits).map(ByteSize).ok_or(InvalidByteSize)
    }
}

impl TryFrom<String> for ByteSize {
    type Error = InvalidByteSize;
    fn try_from(text: String) -> Result<Self, InvalidByteSize> {
        text.parse()
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> String {
        size.to_string()
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = UNITS.iter().find(|(_, bits)| self.0.is_multiple_of(1 << bits));
        let (unit, bits) = fits.expect("a size is a number of Ki at least");
        write!(f, "{}{unit}", self.0 >> bits)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([1-9][0-9]{0,6}[KMGT]i|[1-9][0-9]{0,3}Pi)$",
            "patternErrorMessage": "a size is written with its unit: `512Mi`, `64Gi` or `4Ti`"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [("512Gi", 512 << 30), ("4Ti", 4 << 40), ("1Ki", 1024), ("1536Mi", 1536 << 20)] {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes));
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        assert_eq!("9999Pi".parse::<ByteSize>().unwrap().to_string(), "9999Pi");
        for bad in ["", "0Gi", "4", "4T", "4GB", "4 Gi", "-4Gi", "1.5Gi", "04Gi", "99999999Ki", "9999999Pi"] {
            assert_eq!(bad.parse::<ByteSize>(), Err(InvalidByteSize), "{bad}");
        }
    }
}
