//! What an operator's story is written in: one line one thing that is done, waited for or expected. Anything that is not
//! understood is said with its file and line.

use std::str::FromStr;
use std::time::Duration;

use denv_schema::StageId;
use denv_schema::api::RolloutAction;
use denv_schema::manifest::Kind;
use denv_schema::quantity::{InvalidPeriod, Period};
use serde_json::Value;

#[derive(Debug)]
pub struct Line {
    pub number: usize,
    pub text: String,
    /// Not before this long after the world began.
    pub at: Option<Duration>,
    pub verb: Verb,
}

#[derive(Debug, PartialEq)]
pub enum Verb {
    /// The manifests, or the snapshot, in a file beside the script.
    World(String),
    /// A commit that sets a field of a manifest.
    Push {
        kind: Kind,
        name: String,
        pointer: String,
        value: Value,
    },
    /// A commit that makes a release what does not work, in the way named.
    Spoil {
        release: String,
        how: &'static str,
    },
    Wait(Duration),
    Until {
        stage: StageId,
        state: State,
    },
    Expect {
        stage: StageId,
        state: State,
    },
    Fault {
        fault: Fault,
        on: String,
    },
    /// The reconciler ends, and is back after this long.
    Kill(Duration),
    Rollout(RolloutAction, StageId),
    Scale(StageId, Option<u32>),
    /// From now on the stage's alarms say this.
    Alarm(StageId, u8),
    /// What runs, and what waits.
    Show,
}

/// What a stage can be waited for to be.
#[derive(Debug, PartialEq)]
pub enum State {
    /// Its deployment is over, and it runs what it should and nothing else.
    Settled,
    Paused,
    Held,
    /// Its deployment is in the phase of this name.
    Phase(String),
    /// All its units are ready and of this release.
    Runs(String),
    /// It, or a unit of it, waits on something that is said with these words.
    Waits(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Its network cable is pulled; what it runs runs on.
    Cut,
    /// It is gone with all it had, disks too, until it is healed.
    Lose,
    /// Its provider takes it back in two minutes.
    Reclaim,
    /// Its engines are killed.
    Crash,
    /// It refuses the next start.
    Refuse,
    /// All of these end.
    Heal,
}

const VERBS: &str = "world, push, bad, hanging, crashing, wrong, wait, expect, cut, lose, reclaim, crash, refuse, heal, \
                     kill, rollout, scale, alarm, show";

/// All lines of a script, or what is wrong with the first that can't be read.
pub fn parse(file: &str, text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let read = read(line).map_err(|error| format!("{file}:{number}: `{line}`: {error}"))?;
        lines.push(Line { number, text: line.to_owned(), at: read.0, verb: read.1 });
    }
    Ok(lines)
}

/// The next word, and what follows.
fn next<'a>(text: &'a str, what: &str) -> Result<(&'a str, &'a str), String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    if word.is_empty() { Err(format!("{what} is missing")) } else { Ok((word, rest.trim_start())) }
}

/// The only word that is left.
fn last<T: FromStr<Err: std::fmt::Display>>(text: &str, what: &str) -> Result<T, String> {
    let (word, rest) = next(text, what)?;
    if !rest.is_empty() {
        return Err(format!("`{rest}` is too much"));
    }
    word.parse().map_err(|error| format!("`{word}` is not {what}: {error}"))
}

fn period(text: &str) -> Result<Duration, String> {
    let (word, rest) = next(text, "a length of time")?;
    if !rest.is_empty() {
        return Err(format!("`{rest}` is too much"));
    }
    word.parse().map(Period::get).map_err(|error: InvalidPeriod| error.to_string())
}

fn stage(text: &str) -> Result<StageId, String> {
    last(text, "a stage, such as `chat/prod`")
}

fn read(line: &str) -> Result<(Option<Duration>, Verb), String> {
    let (word, rest) = next(line, "a word")?;
    if word == "at" {
        let (time, rest) = next(rest, "a time")?;
        return Ok((Some(period(time)?), verb(rest)?));
    }
    Ok((None, verb(line)?))
}

fn verb(line: &str) -> Result<Verb, String> {
    let (word, rest) = next(line, "what is done")?;
    let fault = |fault| Ok(Verb::Fault { fault, on: last(rest, "a host or gateway")? });
    let spoil =
        |how| Ok(Verb::Spoil { release: last(rest.trim_start_matches("release "), "a release")?, how });
    match word {
        "world" => Ok(Verb::World(last(rest, "a file")?)),
        "push" => push(rest),
        "bad" => spoil("bad"),
        "hanging" => spoil("hang"),
        "crashing" => spoil("crash"),
        "wrong" => spoil("wrong"),
        "wait" => match rest.strip_prefix("stage ") {
            Some(rest) => state(rest).map(|(stage, state)| Verb::Until { stage, state }),
            None => period(rest).map(Verb::Wait),
        },
        "expect" => state(rest).map(|(stage, state)| Verb::Expect { stage, state }),
        "cut" => fault(Fault::Cut),
        "lose" => fault(Fault::Lose),
        "reclaim" => fault(Fault::Reclaim),
        "crash" => fault(Fault::Crash),
        "refuse" => fault(Fault::Refuse),
        "heal" => fault(Fault::Heal),
        "kill" => {
            let period_of = rest.strip_prefix("reconciler for ").ok_or("it is `kill reconciler for TIME`")?;
            period(period_of).map(Verb::Kill)
        }
        "rollout" => {
            let (action, rest) = next(rest, "what is asked")?;
            let action = serde_json::from_value(Value::from(action))
                .map_err(|_| format!("nobody can `{action}`; but pause, resume, abort, retry, approve"))?;
            Ok(Verb::Rollout(action, stage(rest)?))
        }
        "scale" => {
            let (id, rest) = next(rest, "a stage")?;
            let units =
                if rest == "least" { None } else { Some(last(rest, "a number of units, or `least`")?) };
            Ok(Verb::Scale(stage(id)?, units))
        }
        "alarm" => {
            let (id, rest) = next(rest, "a stage")?;
            let says = match rest {
                "passes" => 0,
                "fires" => 1,
                "says too little" => 2,
                _ => {
                    return Err(format!("an alarm `passes`, `fires` or `says too little`, and not `{rest}`"));
                }
            };
            Ok(Verb::Alarm(stage(id)?, says))
        }
        "show" if rest.is_empty() => Ok(Verb::Show),
        "show" => Err(format!("`{rest}` is too much")),
        _ => Err(format!("nothing begins with `{word}`; but {VERBS}")),
    }
}

/// `chat/prod release r2`, or of other kinds `host host-b cordoned true`.
fn push(text: &str) -> Result<Verb, String> {
    let (word, rest) = next(text, "a stage or a kind")?;
    let (kind, name, rest) = if word.contains('/') {
        (Kind::Stage, stage(word)?.to_string(), rest)
    } else {
        let kind = Kind::ALL.iter().find(|kind| kind.as_str().eq_ignore_ascii_case(word));
        let (name, rest) = next(rest, "a name")?;
        (*kind.ok_or_else(|| format!("there is no kind `{word}`"))?, name.to_owned(), rest)
    };
    let (field, value) = next(rest, "a field")?;
    let value = serde_yaml::from_str(value).map_err(|error| format!("`{value}` is no value: {error}"))?;
    Ok(Verb::Push { kind, name, pointer: format!("/spec/{}", field.replace('.', "/")), value })
}

fn state(text: &str) -> Result<(StageId, State), String> {
    let (id, rest) = next(text, "a stage")?;
    let (word, more) = next(rest, "what it is to be")?;
    let said = || if more.is_empty() { Err(format!("{word} what?")) } else { Ok(more.to_owned()) };
    let state = match word {
        "runs" => State::Runs(said()?),
        "waits" => State::Waits(said()?),
        _ if !more.is_empty() => return Err(format!("`{more}` is too much")),
        "settled" => State::Settled,
        "paused" => State::Paused,
        "held" => State::Held,
        "pending" | "gating" | "rolling" | "baking" | "verifying" | "succeeded" | "rolling-back"
        | "rolled-back" | "superseded" => State::Phase(word.to_owned()),
        _ => {
            return Err(format!(
                "a stage is settled, paused, held, runs RELEASE, waits WORDS, or in a phase, and not `{word}`"
            ));
        }
    };
    Ok((stage(id)?, state))
}

#[test]
fn what_cannot_be_read_is_said_with_its_place() {
    let wrong = [
        "push",
        "push chat/prod",
        "push sofa s x 1",
        "wait",
        "wait forever",
        "wait stage chat/prod happy",
        "at 5s",
        "at soon wait 5s",
        "expect chat/prod waits",
        "dance",
        "kill gateway",
        "rollout stop chat/prod",
        "scale chat/prod many",
        "show all",
        "cut",
        "cut a b",
    ];
    let said = wrong.map(|line| parse("a.script", &format!("# first\n\n{line}\n")).unwrap_err());
    insta::assert_snapshot!(said.join("\n"), @"
    a.script:3: `push`: a stage or a kind is missing
    a.script:3: `push chat/prod`: a field is missing
    a.script:3: `push sofa s x 1`: there is no kind `sofa`
    a.script:3: `wait`: a length of time is missing
    a.script:3: `wait forever`: `forever` is not a length of time: write for example `30s`, `5m` or `1h30m`
    a.script:3: `wait stage chat/prod happy`: a stage is settled, paused, held, runs RELEASE, waits WORDS, or in a phase, and not `happy`
    a.script:3: `at 5s`: what is done is missing
    a.script:3: `at soon wait 5s`: `soon` is not a length of time: write for example `30s`, `5m` or `1h30m`
    a.script:3: `expect chat/prod waits`: waits what?
    a.script:3: `dance`: nothing begins with `dance`; but world, push, bad, hanging, crashing, wrong, wait, expect, cut, lose, reclaim, crash, refuse, heal, kill, rollout, scale, alarm, show
    a.script:3: `kill gateway`: it is `kill reconciler for TIME`
    a.script:3: `rollout stop chat/prod`: nobody can `stop`; but pause, resume, abort, retry, approve
    a.script:3: `scale chat/prod many`: `many` is not a number of units, or `least`: invalid digit found in string
    a.script:3: `show all`: `all` is too much
    a.script:3: `cut`: a host or gateway is missing
    a.script:3: `cut a b`: `b` is too much
    ");
}

#[test]
fn lines_are_read() {
    let text = "at 1m30s push chat/prod rollout.bake 10s\nwait stage chat/prod waits 1 of 2\n";
    let lines = parse("a.script", text).unwrap();
    assert_eq!(lines[0].at, Some(Duration::from_secs(90)));
    let pushed = Verb::Push {
        kind: Kind::Stage,
        name: "chat/prod".to_owned(),
        pointer: "/spec/rollout/bake".to_owned(),
        value: Value::from("10s"),
    };
    assert_eq!(lines[0].verb, pushed);
    let state = State::Waits("1 of 2".to_owned());
    assert_eq!(lines[1].verb, Verb::Until { stage: "chat/prod".parse().unwrap(), state });
}
