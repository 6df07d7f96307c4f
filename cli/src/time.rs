//! Times as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How long ago, as `kubectl` would say it: two units at most, the coarser the longer.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    // A clock that is off shows no negative ages.
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |whole: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{rest_unit}"),
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if days < 2 {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % 24, "h")
    } else {
        format!("{days}d")
    }
}

pub(crate) fn age_or(then: Option<Timestamp>, now: Timestamp, never: &str) -> String {
    then.map_or_else(|| never.to_owned(), |then| age(then, now))
}

/// The time of day, where the reader is.
pub(crate) fn clock(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

/// Date and time in UTC, with the age.
pub(crate) fn at(then: Timestamp, now: Timestamp) -> String {
    format!("{} ({} ago)", then.strftime("%Y-%m-%d %H:%M:%SZ"), age(then, now))
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn ages_are_short() {
        let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (7_260, "121m"),
            (3 * 3_600 + 600, "3h10m"),
            (9 * 3_600, "9h"),
            (3 * 86_400 + 3_600, "3d1h"),
            (90 * 86_400, "90d"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(age(now - SignedDuration::from_secs(seconds), now), expected);
        }
        assert_eq!(at(now - SignedDuration::from_secs(60), now), "2026-11-29 11:59:00Z (60s ago)");
        assert_eq!(clock(now, &TimeZone::UTC), "12:00:00");
    }
}
