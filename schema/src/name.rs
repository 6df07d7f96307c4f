use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The name of a manifest or a host: lower-case letters, digits, `-` and `.`, beginning and ending with a
/// letter or digit, at most 63 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a name: use lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit, at most 63 characters"
)]
pub struct InvalidName(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends =
            bytes.first().is_some_and(|b| alphanumeric(*b)) && bytes.last().is_some_and(|b| alphanumeric(*b));
        if ends && bytes.len() <= 63 && bytes.iter().all(|b| alphanumeric(*b) || *b == b'-' || *b == b'.') {
            Ok(Name(text.to_owned()))
        } else {
            Err(InvalidName(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$",
            "patternErrorMessage": "a name has lower-case letters, digits, `-` and `.`, begins and ends with a letter or digit, and is at most 63 characters long" })
    }
}

/// A stage, unique as `environment/stage`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StageId {
    pub environment: Name,
    pub stage: Name,
}

impl FromStr for StageId {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (environment, stage) = text.split_once('/').ok_or_else(|| InvalidName(text.to_owned()))?;
        Ok(StageId { environment: environment.parse()?, stage: stage.parse()? })
    }
}

impl TryFrom<String> for StageId {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<StageId> for String {
    fn from(id: StageId) -> String {
        id.to_string()
    }
}

impl fmt::Display for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.environment, self.stage)
    }
}

impl JsonSchema for StageId {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "StageId".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
            "patternErrorMessage": "a stage is written `environment/stage`, in lower-case letters, digits and `-`"
        })
    }
}

/// A serving unit: `environment.stage.ordinal`. Ordinals are never used again, so an id means one unit for ever.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct UnitId(String);

impl UnitId {
    pub fn new(stage: &StageId, ordinal: u64) -> Self {
        UnitId(format!("{}.{}.{ordinal}", stage.environment, stage.stage))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its stage, and its number there; none, where it is no unit's name.
    pub fn parts(&self) -> Option<(StageId, u64)> {
        let mut parts = self.0.splitn(3, '.');
        let (environment, stage) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((StageId { environment, stage }, parts.next()?.parse().ok()?))
    }
}

impl From<&str> for UnitId {
    fn from(text: &str) -> Self {
        UnitId(text.to_owned())
    }
}

/// A member of a unit: the unit's id, `.` and its rank. Safe as a file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MemberId(String);

impl MemberId {
    pub fn new(unit: &UnitId, rank: u32) -> Self {
        MemberId(format!("{unit}.{rank}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its unit, and its rank there; none, where it is no member's name.
    pub fn parts(&self) -> Option<(UnitId, u32)> {
        let (unit, rank) = self.0.rsplit_once('.')?;
        Some((UnitId(unit.to_owned()), rank.parse().ok()?))
    }
}

impl From<&str> for MemberId {
    fn from(text: &str) -> Self {
        MemberId(text.to_owned())
    }
}

macro_rules! shown_as_text {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
shown_as_text!(Name, UnitId, MemberId);

impl fmt::Debug for StageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels() {
        for good in ["a", "v41-flash-r12", "deepinfer-0.1.0"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", "a b", long.as_str()] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_written_for_people() {
        let stage: StageId = "chat/prod".parse().unwrap();
        let unit = UnitId::new(&stage, 7);
        assert_eq!(unit.as_str(), "chat.prod.7");
        assert_eq!(MemberId::new(&unit, 0).as_str(), "chat.prod.7.0");
        assert!("chat".parse::<StageId>().is_err());
    }
}
