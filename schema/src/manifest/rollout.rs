use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::quantity::{Amount, Period};

/// How a stage moves from one release to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Rollout {
    /// In which order the old unit goes and the new one comes.
    pub strategy: Strategy,
    /// How many units run the new release at the end of each batch, ascending; the last must be all of them.
    #[schemars(length(min = 1))]
    pub batches: Vec<Amount>,
    /// How many units may be out of service because of the rollout.
    pub max_unavailable: Amount,
    /// How long each batch, and the whole, must stay healthy before the rollout goes on.
    pub bake: Period,
    /// What a batch is spread over, so that none loses more than its share.
    pub stripe: Stripe,
    /// How long requests in flight may finish on a unit that left rotation.
    pub drain_timeout: Period,
    /// What to do when an alarm fires, or a new unit does not become or stay healthy.
    pub on_alarm: OnAlarm,
    /// How long each phase may take. One that takes longer has failed.
    #[serde(skip_serializing_if = "Deadlines::is_empty")]
    pub deadlines: Deadlines,
    /// When batches may begin, the first ever too. Empty: at any time. What has begun is finished; going back, replacing
    /// what failed or was lost, and running more or fewer units need no window.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// When no batch may begin, whatever the windows say. A rollback is never held up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freezes: Vec<Freeze>,
    /// Whether a person must say `denv rollout approve` first, for each deployment anew. Going back needs no approval.
    #[serde(skip_serializing_if = "Approval::is_none")]
    #[schemars(extend("default" = "none"))]
    pub approval: Approval,
}

impl Default for Rollout {
    fn default() -> Self {
        Rollout {
            strategy: Strategy::Surge,
            batches: vec![Amount::Count(1), Amount::Percent(25), Amount::Percent(100)],
            max_unavailable: Amount::Count(0),
            bake: Period::from_secs(300),
            stripe: Stripe::Fleet,
            drain_timeout: Period::from_secs(300),
            on_alarm: OnAlarm::Rollback,
            deadlines: Deadlines::default(),
            windows: Vec::new(),
            freezes: Vec::new(),
            approval: Approval::None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Start and check the new unit before the old one drains. Needs room for it.
    Surge,
    /// Drain and stop the old unit, then start the new one in its place. Needs `maxUnavailable` of at least 1.
    Replace,
    /// Surge where there is room; where there is none, replace within `maxUnavailable`.
    Auto,
}

/// What a batch is spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stripe {
    /// The stage's fleets.
    Fleet,
    /// The hosts' failure domains, within each fleet.
    FailureDomain,
}

/// What happens when an alarm fires, or a new unit does not become or stay healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnAlarm {
    /// Back to the release before, and hold there.
    Rollback,
    /// Go no further until a person decides.
    Pause,
}

/// How long each phase of a deployment may take. Without one, a phase may take as long as it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Deadlines {
    /// Waiting for room, and fetching images and weights ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Period>,
    /// The parity suite before the first batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Period>,
    /// One batch, from its first step until all its units are ready and what they replace is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Period>,
    /// The parity suite and alarms after the last batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Period>,
}

impl Deadlines {
    fn is_empty(&self) -> bool {
        *self == Deadlines::default()
    }
}

/// A time of the week in which batches may begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Window {
    /// The days on which it opens. Empty: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// When it opens, by the clock on the wall: of a time that the clock skips there is no window, and one that it shows
    /// twice is in the window twice.
    pub from: TimeOfDay,
    /// When it closes; on the day after, where that is not later than `from`.
    pub to: TimeOfDay,
    /// Whose clock this is, by the name of the time zone database.
    #[serde(default = "utc")]
    #[schemars(
        regex(pattern = r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"),
        extend("patternErrorMessage" = "a time zone is written like `Europe/Berlin` or `UTC`")
    )]
    pub time_zone: String,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days: Vec<String> = self.days.iter().map(ToString::to_string).collect();
        let days = if days.is_empty() { "every day".to_owned() } else { days.join(", ") };
        write!(f, "{days} {} to {} {}", self.from, self.to, self.time_zone)
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Day::Monday => "monday",
            Day::Tuesday => "tuesday",
            Day::Wednesday => "wednesday",
            Day::Thursday => "thursday",
            Day::Friday => "friday",
            Day::Saturday => "saturday",
            Day::Sunday => "sunday",
        })
    }
}

/// A time in which no batch may begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Freeze {
    /// From when on, for example `2026-12-20T00:00:00Z`.
    #[schemars(extend("patternErrorMessage" = "a time is written `2026-12-20T00:00:00Z`"))]
    pub from: Timestamp,
    /// Until when.
    #[schemars(extend("patternErrorMessage" = "a time is written `2026-12-20T00:00:00Z`"))]
    pub until: Timestamp,
    /// Why, for those who wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether a person must agree before a deployment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Approval {
    /// What was merged is approved.
    None,
    /// A deployment waits for `denv rollout approve`.
    Required,
}

impl Approval {
    fn is_none(&self) -> bool {
        *self == Approval::None
    }
}

/// A time of the day, written `06:30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay {
    /// Minutes since midnight.
    minutes: u16,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a time of the day is written `06:30`, in quotes")]
pub struct InvalidTimeOfDay;

impl TimeOfDay {
    /// Minutes since midnight.
    pub fn minutes(self) -> u16 {
        self.minutes
    }
}

impl FromStr for TimeOfDay {
    type Err = InvalidTimeOfDay;
    fn from_str(text: &str) -> Result<Self, InvalidTimeOfDay> {
        let (hours, minutes) = text.split_once(':').ok_or(InvalidTimeOfDay)?;
        let number = |part: &str, below: u16| {
            let is_digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            let number: u16 = part.parse().map_err(|_| InvalidTimeOfDay)?;
            if is_digits && number < below { Ok(number) } else { Err(InvalidTimeOfDay) }
        };
        Ok(TimeOfDay { minutes: number(hours, 24)? * 60 + number(minutes, 60)? })
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = InvalidTimeOfDay;
    fn try_from(text: String) -> Result<Self, InvalidTimeOfDay> {
        text.parse()
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> String {
        time.to_string()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.minutes / 60, self.minutes % 60)
    }
}

impl JsonSchema for TimeOfDay {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "TimeOfDay".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$",
            "patternErrorMessage": "a time of the day is written `06:30`, in quotes"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_day_are_read_strictly() {
        for text in ["00:00", "06:30", "23:59"] {
            assert_eq!(text.parse::<TimeOfDay>().unwrap().to_string(), text);
        }
        for bad in ["", "6:30", "24:00", "12:60", "12", "-1:00", "12:00:00", "+1:00"] {
            assert_eq!(bad.parse::<TimeOfDay>(), Err(InvalidTimeOfDay), "{bad}");
        }
    }
}
