//! Whether a stage may begin another batch now, by its windows and freezes, and if not, when it may.
//!
//! A window is what the clock on the wall of its time zone shows: where that clock jumps over a time, the window does not
//! have it, and where it shows a time twice, the window has both.

use denv_schema::manifest::{Day, Freeze, Rollout, Window};
use jiff::civil::{DateTime, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use crate::waiting::WaitingOn;

/// A window of one day a week opens within as many days, also when the clock jumps over one of its times.
const LOOK_AHEAD: i64 = 15;

/// Whether a batch may begin, or what it waits on.
pub(crate) fn may_begin(rollout: &Rollout, now: Timestamp) -> Result<(), WaitingOn> {
    let windows: Vec<Zoned<'_>> = rollout.windows.iter().map(Zoned::of).collect();
    let frozen = frozen(&rollout.freezes, now);
    if frozen.is_none() && (windows.is_empty() || windows.iter().any(|window| window.is_open(now))) {
        return Ok(());
    }
    let (until, window) = opening(&rollout.freezes, &windows, now);
    Err(match (frozen, window) {
        (Some(freeze), _) => WaitingOn::Freeze {
            reason: freeze.reason.clone(),
            ends: freeze.until,
            window: window.filter(|_| until > freeze.until).cloned(),
            until,
        },
        (None, Some(window)) => WaitingOn::Window { window: window.clone(), until },
        (None, None) => return Ok(()),
    })
}

/// The freeze that lasts longest of those that are on.
fn frozen(freezes: &[Freeze], at: Timestamp) -> Option<&Freeze> {
    let on = freezes.iter().filter(|freeze| freeze.from <= at && at < freeze.until);
    on.max_by_key(|freeze| freeze.until)
}

/// The first time from `now` on at which a window is open and no freeze is on, and that window.
fn opening<'r>(freezes: &[Freeze], windows: &[Zoned<'r>], now: Timestamp) -> (Timestamp, Option<&'r Window>) {
    let mut at = now;
    // Every second turn passes a freeze that was not passed before.
    for _ in 0..2 * freezes.len() + 2 {
        if let Some(freeze) = frozen(freezes, at) {
            at = freeze.until;
        } else if let Some(open) = windows.iter().find(|window| window.is_open(at)) {
            return (at, Some(open.window));
        } else if let Some(first) = windows.first() {
            let next = windows.iter().filter_map(|window| window.opens(at)).min();
            // None opens soon: it is looked at again.
            let Some(next) = next else { return (later(at).unwrap_or(Timestamp::MAX), Some(first.window)) };
            at = next;
        } else {
            break;
        }
    }
    (at, None)
}

fn later(at: Timestamp) -> Option<Timestamp> {
    at.checked_add(SignedDuration::from_hours(24 * LOOK_AHEAD)).ok()
}

struct Zoned<'r> {
    window: &'r Window,
    zone: TimeZone,
}

impl<'r> Zoned<'r> {
    fn of(window: &'r Window) -> Self {
        // The bundled one: what is decided does not depend on the machine.
        let zone = TimeZoneDatabase::bundled().get(&window.time_zone);
        Zoned { window, zone: zone.expect("the catalog has no window of an unknown time zone") }
    }

    /// Whether the clock on the wall shows a time of the window.
    fn is_open(&self, at: Timestamp) -> bool {
        let shown = self.zone.to_datetime(at);
        let (from, to) = (clock(self.window.from.minutes()), clock(self.window.to.minutes()));
        let opens_on = |day: Weekday| {
            self.window.days.is_empty() || self.window.days.iter().any(|wanted| weekday(*wanted) == day)
        };
        let (today, time) = (shown.weekday(), shown.time());
        if from < to {
            opens_on(today) && from <= time && time < to
        } else {
            opens_on(today) && from <= time || opens_on(today.previous()) && time < to
        }
    }

    /// When it opens after a time at which it is closed.
    fn opens(&self, after: Timestamp) -> Option<Timestamp> {
        let horizon = later(after)?;
        let today = self.zone.to_datetime(after).date();
        let times = (0..=LOOK_AHEAD).filter_map(|days| {
            let shown = today.checked_add(days.days()).ok()?.to_datetime(clock(self.window.from.minutes()));
            Some(self.shown_at(shown))
        });
        // Where the clock jumps, it may jump into the window.
        let jumps = self.zone.following(after).map(|jump| jump.timestamp()).take_while(|at| *at <= horizon);
        times.flatten().chain(jumps).filter(|at| *at > after && self.is_open(*at)).min()
    }

    /// When the clock shows a time: once, or twice. What it never shows is not filtered out here.
    fn shown_at(&self, shown: DateTime) -> impl Iterator<Item = Timestamp> + use<> {
        let at = |later: bool| {
            let ambiguous = self.zone.to_ambiguous_timestamp(shown);
            if later { ambiguous.later() } else { ambiguous.earlier() }
        };
        [at(false), at(true)].into_iter().flatten()
    }
}

fn clock(minutes: u16) -> Time {
    let part = |number: u16| i8::try_from(number).expect("a part of a time of the day is below 60");
    Time::constant(part(minutes / 60), part(minutes % 60), 0, 0)
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Monday => Weekday::Monday,
        Day::Tuesday => Weekday::Tuesday,
        Day::Wednesday => Weekday::Wednesday,
        Day::Thursday => Weekday::Thursday,
        Day::Friday => Weekday::Friday,
        Day::Saturday => Weekday::Saturday,
        Day::Sunday => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests;
