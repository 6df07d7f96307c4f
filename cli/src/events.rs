//! `denv events`: what happened, and what happens.

use clap::Args;
use denv_schema::api::EventView;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use owo_colors::OwoColorize as _;

use crate::client::{Client, EventsQuery, Happening, Watch};
use crate::error::Error;
use crate::output::{Exit, Format, Output};
use crate::table::{Tone, render};
use crate::text::indented;
use crate::time::clock;
use crate::views::{self, level};

/// Show what happened, the newest last; with --watch, also what happens from now on
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Events {
    /// Only about this: `chat/prod` with its units, `unit chat.prod.3`, `host gpu-1`, `source main`
    #[arg(num_args = 0..=2)]
    subject: Vec<String>,

    /// Go on with each event as it happens
    #[arg(short, long)]
    watch: bool,

    /// At most so many of the past
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,

    /// The form of the events; with --watch, JSON is one event a line
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  denv events --limit 20
  denv events chat/prod --watch
  denv events host gpu-1 -o json";

pub(crate) async fn run(arguments: &Events, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let subject = (!arguments.subject.is_empty()).then(|| arguments.subject.join(" "));
    if arguments.watch {
        return watch(arguments, subject.as_deref(), client, output).await;
    }
    let query = EventsQuery { after: None, subject, limit: Some(arguments.limit) };
    let answer = client.events(&query).await?;
    match arguments.output {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => {
            let events: Vec<EventView> = answer.items()?;
            match (events.is_empty(), &query.subject) {
                (true, Some(subject)) => output.note(&format!("no events about {subject}")),
                (true, None) => output.note("no events"),
                (false, _) => output.say(&render(views::EVENTS, &events, false, Timestamp::now()))?,
            }
        }
    }
    Ok(Exit::Done)
}

async fn watch(
    arguments: &Events,
    subject: Option<&str>,
    client: &Client,
    output: &mut Output,
) -> Result<Exit, Error> {
    if arguments.output == Format::Yaml {
        let message = "a stream of events has no YAML form".to_owned();
        return Err(Error::Usage { message, hint: Some("use -o json: one event a line".to_owned()) });
    }
    let zone = TimeZone::system();
    let tell = |event: &EventView, output: &mut Output| match arguments.output {
        Format::Json => output.json_line(event),
        Format::Text | Format::Yaml => output.say(&line(event, &zone)),
    };
    // Where the stream begins, also where the past has nothing about the subject.
    let newest = newest(client).await?;
    if arguments.limit > 0 {
        let query =
            EventsQuery { after: None, subject: subject.map(str::to_owned), limit: Some(arguments.limit) };
        for event in client.events(&query).await?.items::<EventView>()? {
            if event.id <= newest {
                tell(&event, output)?;
            }
        }
    }
    let mut watch = Watch::after(client, newest);
    while let Some(happening) = watch.next().await {
        match happening {
            Happening::Event(event) => {
                if subject.is_none_or(|subject| is_about(&event.subject, subject)) {
                    tell(&event, output)?;
                }
            }
            Happening::Lost(error) => output.note(&away(&error)),
            Happening::Back => output.note("the control plane is back"),
            Happening::Ended(error) => return Err(error.into()),
        }
    }
    Ok(Exit::Done)
}

/// The id of the newest event.
pub(crate) async fn newest(client: &Client) -> Result<i64, Error> {
    let query = EventsQuery { limit: Some(1), ..EventsQuery::default() };
    let events: Vec<EventView> = client.events(&query).await?.items()?;
    Ok(events.last().map_or(0, |event| event.id))
}

/// Whether an event is about what was asked for, by the rule of `GET /v1/events`: the subject itself, its name alone,
/// or a unit of a stage.
pub(crate) fn is_about(subject: &str, asked: &str) -> bool {
    let name = subject.split_once(' ').map_or(subject, |(_, name)| name);
    subject == asked || name == asked || name.starts_with(&format!("{}.", asked.replace('/', ".")))
}

/// An event as a line of a stream.
pub(crate) fn line(event: &EventView, zone: &TimeZone) -> String {
    let message = indented(&event.message, 10);
    let message = match level(event.level) {
        Tone::Plain => message,
        _ => message.yellow().to_string(),
    };
    format!("{}  {}  {message}", clock(event.at, zone).dimmed(), event.subject.bold())
}

/// A failure that a watch outlives.
pub(crate) fn away(error: &crate::client::ClientError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}; trying again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_asked_for_with_its_units() {
        for (subject, asked, expected) in [
            ("stage chat/prod", "chat/prod", true),
            ("stage chat/prod", "stage chat/prod", true),
            ("unit chat.prod.3", "chat/prod", true),
            ("unit chat.prod.3", "chat.prod.3", true),
            ("unit chat.prod2.3", "chat/prod", false),
            ("unit chat.prod.31", "chat.prod.3", false),
            ("host gpu-1", "gpu-1", true),
            ("control plane", "control plane", true),
            ("stage chat/prod", "prod", false),
        ] {
            assert_eq!(is_about(subject, asked), expected, "{subject} {asked}");
        }
    }

    #[test]
    fn a_line_has_time_subject_and_message() {
        let event = EventView {
            id: 1,
            at: "2026-11-29T12:00:00Z".parse().unwrap(),
            subject: "unit chat.prod.3".to_owned(),
            level: denv_schema::api::Level::Warning,
            message: "drain: exit status 1\nlast words".to_owned(),
        };
        let line = line(&event, &TimeZone::UTC);
        insta::assert_snapshot!(anstream::adapter::strip_str(&line), @"
        12:00:00  unit chat.prod.3  drain: exit status 1
                  last words
        ");
    }
}
