//! The look of a description: fields, then sections.

use denv_schema::api::{AlarmView, EventView, UnitView, WaitingView};
use jiff::Timestamp;
use owo_colors::OwoColorize as _;

use crate::table::{Cell, Tone, render};
use crate::text::{indented, printable};
use crate::views;

#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
}

/// Where a field's value begins.
const MARGIN: usize = 14;

impl Page {
    pub(crate) fn field(&mut self, name: &str, value: impl ToString) -> &mut Self {
        let label = format!("{:MARGIN$}", format!("{name}:"));
        self.text.push_str(&format!("{}{}\n", label.bold(), indented(&value.to_string(), MARGIN)));
        self
    }

    /// Only where there is something to say.
    pub(crate) fn maybe(&mut self, name: &str, value: Option<impl ToString>) -> &mut Self {
        if let Some(value) = value {
            self.field(name, value);
        }
        self
    }

    pub(crate) fn cell(&mut self, name: &str, cell: &Cell) -> &mut Self {
        let label = format!("{:MARGIN$}", format!("{name}:"));
        self.text.push_str(&format!("{}{}\n", label.bold(), toned(cell)));
        self
    }

    pub(crate) fn section(&mut self, title: &str) -> &mut Self {
        self.text.push_str(&format!("\n{}\n", title.bold()));
        self
    }

    /// Lines of a section.
    pub(crate) fn lines(&mut self, text: &str) -> &mut Self {
        for line in text.lines() {
            self.text.push_str(format!("  {line}").trim_end());
            self.text.push('\n');
        }
        self
    }

    pub(crate) fn units(&mut self, units: &[UnitView], now: Timestamp) -> &mut Self {
        self.section("Units");
        match units.is_empty() {
            true => self.lines("none"),
            false => self.lines(&render(views::UNITS, units, false, now)),
        }
    }

    /// Left out where nothing waits.
    pub(crate) fn waiting(&mut self, waiting: &[&WaitingView]) -> &mut Self {
        if waiting.is_empty() {
            return self;
        }
        self.section("Waiting");
        for WaitingView { subject, on } in waiting {
            self.lines(&format!("{}: {}", printable(subject).bold(), indented(on, 2)));
        }
        self
    }

    /// Left out where there are none.
    pub(crate) fn alarms(&mut self, alarms: &[AlarmView]) -> &mut Self {
        if alarms.is_empty() {
            return self;
        }
        self.section("Alarms");
        for AlarmView { alarm, outcome, reason } in alarms {
            let (word, tone) = match outcome.as_str() {
                "pass" => ("quiet", Tone::Good),
                "fail" => ("fires", Tone::Bad),
                _ => ("inconclusive", Tone::Change),
            };
            let word = toned(&Cell::toned(word, tone));
            self.lines(&format!("{} {word}: {}", printable(alarm.as_str()).bold(), indented(reason, 2)));
        }
        self
    }

    pub(crate) fn events(&mut self, events: &[EventView], now: Timestamp) -> &mut Self {
        self.section("Events");
        match events.is_empty() {
            true => self.lines("none"),
            false => self.lines(&render(views::EVENTS, events, false, now)),
        }
    }

    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

fn toned(cell: &Cell) -> String {
    let text = printable(&cell.text);
    match cell.tone {
        Tone::Plain => text,
        Tone::Good => text.green().to_string(),
        Tone::Change => text.yellow().to_string(),
        Tone::Bad => text.red().to_string(),
    }
}
