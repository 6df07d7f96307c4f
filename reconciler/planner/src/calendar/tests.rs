use std::fmt::Write as _;

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::*;

fn rollout(windows: Value, freezes: Value) -> Rollout {
    serde_json::from_value(json!({"windows": windows, "freezes": freezes})).unwrap()
}

/// What is decided at each of these times.
fn said(rollout: &Rollout, times: &[&str]) -> String {
    let mut text = String::new();
    for time in times {
        let said = may_begin(rollout, time.parse().unwrap());
        let said = said.map_or_else(|waiting| waiting.to_string(), |()| "open".to_owned());
        writeln!(text, "{time}: {said}").unwrap();
    }
    text
}

#[test]
fn without_windows_and_freezes_it_is_always_open() {
    let rollout = Rollout::default();
    assert_eq!(may_begin(&rollout, Timestamp::MIN), Ok(()));
    assert_eq!(may_begin(&rollout, Timestamp::MAX), Ok(()));
}

#[test]
fn a_window_is_open_from_its_first_minute_to_before_its_last() {
    let days = json!(["monday", "wednesday"]);
    let rollout = rollout(json!([{"days": days, "from": "09:00", "to": "17:00"}]), json!([]));
    let times = [
        "2026-11-30T08:59:59.999Z",
        "2026-11-30T09:00:00Z",
        "2026-11-30T16:59:59Z",
        "2026-11-30T17:00:00Z",
        "2026-12-01T12:00:00Z",
        "2026-12-03T12:00:00Z",
    ];
    assert_snapshot!(said(&rollout, &times), @"
    2026-11-30T08:59:59.999Z: outside its windows until 2026-11-30T09:00:00Z, when `monday, wednesday 09:00 to 17:00 UTC` is open
    2026-11-30T09:00:00Z: open
    2026-11-30T16:59:59Z: open
    2026-11-30T17:00:00Z: outside its windows until 2026-12-02T09:00:00Z, when `monday, wednesday 09:00 to 17:00 UTC` is open
    2026-12-01T12:00:00Z: outside its windows until 2026-12-02T09:00:00Z, when `monday, wednesday 09:00 to 17:00 UTC` is open
    2026-12-03T12:00:00Z: outside its windows until 2026-12-07T09:00:00Z, when `monday, wednesday 09:00 to 17:00 UTC` is open
    ");
}

#[test]
fn a_window_over_midnight_belongs_to_the_day_on_which_it_opens() {
    let rollout = rollout(json!([{"days": ["saturday"], "from": "22:00", "to": "04:00"}]), json!([]));
    let times = [
        "2026-11-28T03:00:00Z",
        "2026-11-28T21:59:00Z",
        "2026-11-28T22:00:00Z",
        "2026-11-29T03:59:00Z",
        "2026-11-29T04:00:00Z",
        "2026-11-29T22:30:00Z",
    ];
    assert_snapshot!(said(&rollout, &times), @"
    2026-11-28T03:00:00Z: outside its windows until 2026-11-28T22:00:00Z, when `saturday 22:00 to 04:00 UTC` is open
    2026-11-28T21:59:00Z: outside its windows until 2026-11-28T22:00:00Z, when `saturday 22:00 to 04:00 UTC` is open
    2026-11-28T22:00:00Z: open
    2026-11-29T03:59:00Z: open
    2026-11-29T04:00:00Z: outside its windows until 2026-12-05T22:00:00Z, when `saturday 22:00 to 04:00 UTC` is open
    2026-11-29T22:30:00Z: outside its windows until 2026-12-05T22:00:00Z, when `saturday 22:00 to 04:00 UTC` is open
    ");
}

#[test]
fn each_window_has_its_own_clock_and_any_of_them_is_enough() {
    let windows = json!([
        {"days": ["monday"], "from": "09:00", "to": "10:00", "timeZone": "Europe/Berlin"},
        {"from": "23:30", "to": "00:30", "timeZone": "Asia/Kolkata"},
        {"days": ["sunday"], "from": "20:00", "to": "21:00", "timeZone": "America/Los_Angeles"},
    ]);
    let rollout = rollout(windows, json!([]));
    let times = [
        "2026-11-30T04:00:00Z",
        "2026-11-30T04:59:00Z",
        "2026-11-30T05:00:00Z",
        "2026-11-30T08:30:00Z",
        "2026-11-30T09:00:00Z",
        "2026-11-30T18:30:00Z",
        "2026-11-30T19:00:00Z",
    ];
    assert_snapshot!(said(&rollout, &times), @"
    2026-11-30T04:00:00Z: open
    2026-11-30T04:59:00Z: open
    2026-11-30T05:00:00Z: outside its windows until 2026-11-30T08:00:00Z, when `monday 09:00 to 10:00 Europe/Berlin` is open
    2026-11-30T08:30:00Z: open
    2026-11-30T09:00:00Z: outside its windows until 2026-11-30T18:00:00Z, when `every day 23:30 to 00:30 Asia/Kolkata` is open
    2026-11-30T18:30:00Z: open
    2026-11-30T19:00:00Z: outside its windows until 2026-12-01T18:00:00Z, when `every day 23:30 to 00:30 Asia/Kolkata` is open
    ");
}

/// On 2026-03-29 at 01:00 UTC clocks in Berlin go from 02:00 to 03:00.
#[test]
fn of_times_that_the_clock_skips_there_is_no_window() {
    let window = |from: &str, to: &str| {
        rollout(json!([{"from": from, "to": to, "timeZone": "Europe/Berlin"}]), json!([]))
    };
    let times =
        ["2026-03-28T12:00:00Z", "2026-03-29T00:59:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"];
    let mut text = String::new();
    for (from, to) in [("02:15", "02:45"), ("02:30", "03:30"), ("01:30", "02:30"), ("23:00", "03:15")] {
        writeln!(text, "{from} to {to}\n{}", said(&window(from, to), &times)).unwrap();
    }
    assert_snapshot!(text, @"
    02:15 to 02:45
    2026-03-28T12:00:00Z: outside its windows until 2026-03-30T00:15:00Z, when `every day 02:15 to 02:45 Europe/Berlin` is open
    2026-03-29T00:59:00Z: outside its windows until 2026-03-30T00:15:00Z, when `every day 02:15 to 02:45 Europe/Berlin` is open
    2026-03-29T01:00:00Z: outside its windows until 2026-03-30T00:15:00Z, when `every day 02:15 to 02:45 Europe/Berlin` is open
    2026-03-29T01:30:00Z: outside its windows until 2026-03-30T00:15:00Z, when `every day 02:15 to 02:45 Europe/Berlin` is open

    02:30 to 03:30
    2026-03-28T12:00:00Z: outside its windows until 2026-03-29T01:00:00Z, when `every day 02:30 to 03:30 Europe/Berlin` is open
    2026-03-29T00:59:00Z: outside its windows until 2026-03-29T01:00:00Z, when `every day 02:30 to 03:30 Europe/Berlin` is open
    2026-03-29T01:00:00Z: open
    2026-03-29T01:30:00Z: outside its windows until 2026-03-30T00:30:00Z, when `every day 02:30 to 03:30 Europe/Berlin` is open

    01:30 to 02:30
    2026-03-28T12:00:00Z: outside its windows until 2026-03-29T00:30:00Z, when `every day 01:30 to 02:30 Europe/Berlin` is open
    2026-03-29T00:59:00Z: open
    2026-03-29T01:00:00Z: outside its windows until 2026-03-29T23:30:00Z, when `every day 01:30 to 02:30 Europe/Berlin` is open
    2026-03-29T01:30:00Z: outside its windows until 2026-03-29T23:30:00Z, when `every day 01:30 to 02:30 Europe/Berlin` is open

    23:00 to 03:15
    2026-03-28T12:00:00Z: outside its windows until 2026-03-28T22:00:00Z, when `every day 23:00 to 03:15 Europe/Berlin` is open
    2026-03-29T00:59:00Z: open
    2026-03-29T01:00:00Z: open
    2026-03-29T01:30:00Z: outside its windows until 2026-03-29T21:00:00Z, when `every day 23:00 to 03:15 Europe/Berlin` is open
    ");
}

/// On 2026-10-25 at 01:00 UTC clocks in Berlin go from 03:00 back to 02:00.
#[test]
fn times_that_the_clock_shows_twice_are_in_the_window_twice() {
    let windows = json!([{"days": ["sunday"], "from": "02:15", "to": "02:45", "timeZone": "Europe/Berlin"}]);
    let rollout = rollout(windows, json!([]));
    let times = [
        "2026-10-25T00:14:00Z",
        "2026-10-25T00:15:00Z",
        "2026-10-25T00:45:00Z",
        "2026-10-25T01:15:00Z",
        "2026-10-25T01:45:00Z",
    ];
    assert_snapshot!(said(&rollout, &times), @"
    2026-10-25T00:14:00Z: outside its windows until 2026-10-25T00:15:00Z, when `sunday 02:15 to 02:45 Europe/Berlin` is open
    2026-10-25T00:15:00Z: open
    2026-10-25T00:45:00Z: outside its windows until 2026-10-25T01:15:00Z, when `sunday 02:15 to 02:45 Europe/Berlin` is open
    2026-10-25T01:15:00Z: open
    2026-10-25T01:45:00Z: outside its windows until 2026-11-01T01:15:00Z, when `sunday 02:15 to 02:45 Europe/Berlin` is open
    ");
}

#[test]
fn a_freeze_closes_windows_and_says_why() {
    let windows = json!([{"from": "08:00", "to": "12:00"}]);
    let freezes = json!([
        {"from": "2026-12-20T10:00:00Z", "until": "2026-12-20T11:00:00Z", "reason": "the launch"},
        {"from": "2026-12-24T00:00:00Z", "until": "2026-12-27T00:00:00Z"},
        {"from": "2026-12-26T00:00:00Z", "until": "2026-12-28T09:00:00Z", "reason": "the holidays"},
        {"from": "2026-12-28T13:00:00Z", "until": "2026-12-29T13:00:00Z"},
    ]);
    let times = [
        "2026-12-20T09:00:00Z",
        "2026-12-20T10:00:00Z",
        "2026-12-20T11:00:00Z",
        "2026-12-23T12:00:00Z",
        "2026-12-25T09:00:00Z",
        "2026-12-26T09:00:00Z",
        "2026-12-28T09:00:00Z",
        "2026-12-28T12:30:00Z",
        "2026-12-28T13:00:00Z",
    ];
    let both = rollout(windows, freezes.clone());
    let alone = rollout(json!([]), freezes);
    assert_snapshot!(format!("{}\n{}", said(&both, &times), said(&alone, &times)), @"
    2026-12-20T09:00:00Z: open
    2026-12-20T10:00:00Z: frozen until 2026-12-20T11:00:00Z: the launch
    2026-12-20T11:00:00Z: open
    2026-12-23T12:00:00Z: outside its windows until 2026-12-28T09:00:00Z, when `every day 08:00 to 12:00 UTC` is open
    2026-12-25T09:00:00Z: frozen until 2026-12-27T00:00:00Z; then outside its windows until 2026-12-28T09:00:00Z, when `every day 08:00 to 12:00 UTC` is open
    2026-12-26T09:00:00Z: frozen until 2026-12-28T09:00:00Z: the holidays
    2026-12-28T09:00:00Z: open
    2026-12-28T12:30:00Z: outside its windows until 2026-12-30T08:00:00Z, when `every day 08:00 to 12:00 UTC` is open
    2026-12-28T13:00:00Z: frozen until 2026-12-29T13:00:00Z; then outside its windows until 2026-12-30T08:00:00Z, when `every day 08:00 to 12:00 UTC` is open

    2026-12-20T09:00:00Z: open
    2026-12-20T10:00:00Z: frozen until 2026-12-20T11:00:00Z: the launch
    2026-12-20T11:00:00Z: open
    2026-12-23T12:00:00Z: open
    2026-12-25T09:00:00Z: frozen until 2026-12-27T00:00:00Z
    2026-12-26T09:00:00Z: frozen until 2026-12-28T09:00:00Z: the holidays
    2026-12-28T09:00:00Z: open
    2026-12-28T12:30:00Z: open
    2026-12-28T13:00:00Z: frozen until 2026-12-29T13:00:00Z
    ");
}

#[test]
fn what_opens_is_open_and_what_is_before_it_is_closed() {
    let windows = json!([
        {"days": ["sunday"], "from": "01:45", "to": "02:15", "timeZone": "Europe/Berlin"},
        {"days": ["sunday"], "from": "02:30", "to": "03:10", "timeZone": "America/New_York"},
        {"days": ["sunday"], "from": "23:50", "to": "00:20", "timeZone": "Australia/Lord_Howe"},
        {"days": ["friday"], "from": "00:00", "to": "00:30", "timeZone": "Pacific/Apia"},
    ]);
    for window in windows.as_array().unwrap() {
        let rollout = rollout(json!([window]), json!([]));
        let minute = SignedDuration::from_mins(1);
        // Two years, so that each clock is turned, and a step that shares nothing with an hour.
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        while now < "2028-01-01T00:00:00Z".parse().unwrap() {
            if let Err(waiting) = may_begin(&rollout, now) {
                let until = waiting.until().unwrap();
                assert!(until > now && until < now + SignedDuration::from_hours(15 * 24), "{now} {waiting}");
                assert_eq!(may_begin(&rollout, until), Ok(()), "{now} {waiting}");
                assert!(may_begin(&rollout, until - minute).is_err(), "{now} {waiting}");
            }
            now += SignedDuration::from_mins(607);
        }
    }
}
