//! `denv rollout status`: where a change stands; with --watch, until it is over.

use std::time::Duration;

use clap::Args;
use denv_schema::api::{EventView, StageView};
use denv_schema::quantity::Period;
use denv_schema::{Name, StageId};
use jiff::tz::TimeZone;
use owo_colors::OwoColorize as _;
use tokio::time::Instant;

use super::verdict::{Verdict, judge, standing};
use crate::client::{Answer, Client, EventsQuery, Happening, Watch};
use crate::error::Error;
use crate::events::{away, is_about, line, newest};
use crate::output::{Exit, Format, Output};
use crate::text::indented;

/// Show where a stage's change stands; with --watch, follow it to its end
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Status {
    /// The stage
    #[arg(value_name = "ENVIRONMENT/STAGE")]
    stage: StageId,

    /// Follow the change until it has succeeded or failed
    #[arg(short, long)]
    watch: bool,

    /// How long to follow it
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "watch")]
    timeout: Period,

    /// Wait first until this release is desired, so that right after a push nothing older is judged
    #[arg(long, value_name = "RELEASE", requires = "watch")]
    release: Option<Name>,

    /// The form of the stage at the end; progress then goes to standard error
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  denv rollout status chat/prod
  denv rollout status chat/prod --watch --timeout 30m
  In CI, after a push:
    denv rollout status chat/prod --watch --release flash-r13

Exit status:
  0  every unit is ready with what is desired; without --watch also: it is under way
  1  it was rolled back, or is held
  3  it was not over within --timeout";

impl Status {
    /// As `--watch` does.
    pub(super) fn watched(stage: StageId, timeout: Duration) -> Self {
        let timeout = Period::from_millis(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        Status { stage, watch: true, timeout, release: None, output: Format::Text }
    }
}

/// Between looks at the stage while no event comes.
const LOOK: Duration = Duration::from_secs(2);
/// After this long without a word, what the stage waits on is said.
const QUIET: Duration = Duration::from_secs(5);
/// A control plane that has just started knows no stages until it has read its source. A stage that is missing for
/// longer is gone.
const MISSING: Duration = Duration::from_secs(20);

pub(super) async fn run(status: &Status, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    // Taken before the stage, so that no event falls between.
    let newest = if status.watch { newest(client).await? } else { 0 };
    let stage = client.stage(&status.stage).await?;
    let view: StageView = stage.read()?;
    let mut follower = Follower {
        status,
        client,
        output,
        told: newest,
        spoke: Instant::now(),
        waits: String::new(),
        seen: Instant::now(),
        stage,
        view,
    };
    let verdict = match status.watch {
        true => follower.follow(newest).await?,
        false => Some(judge(&follower.view, None)),
    };
    follower.conclude(verdict)
}

struct Follower<'a> {
    status: &'a Status,
    client: &'a Client,
    output: &'a mut Output,
    /// The last event that was told.
    told: i64,
    spoke: Instant,
    /// What was last said to be waited on.
    waits: String,
    /// When the stage was last there.
    seen: Instant,
    stage: Answer,
    view: StageView,
}

impl Follower<'_> {
    /// Until the verdict, or nothing when time is up.
    async fn follow(&mut self, newest: i64) -> Result<Option<Verdict>, Error> {
        let deadline = tokio::time::sleep(self.status.timeout.get());
        tokio::pin!(deadline);
        if judge(&self.view, self.status.release.as_ref()) == Verdict::UnderWay {
            self.progress(&standing(&self.view))?;
            self.tell_past(newest).await?;
        }
        let mut watch = Watch::after(self.client, newest);
        loop {
            let verdict = judge(&self.view, self.status.release.as_ref());
            if verdict != Verdict::UnderWay {
                self.tell_rest().await?;
                return Ok(Some(verdict));
            }
            self.tell_waits()?;
            tokio::select! {
                happening = watch.next() => {
                    let mut next = happening;
                    while let Some(happening) = next {
                        self.happened(happening)?;
                        next = watch.ready();
                    }
                }
                () = tokio::time::sleep(LOOK) => {}
                () = &mut deadline => return Ok(None),
            }
            // An unreachable control plane must not outlast the deadline either.
            tokio::select! {
                looked = self.look() => looked?,
                () = &mut deadline => return Ok(None),
            }
        }
    }

    fn happened(&mut self, happening: Happening) -> Result<(), Error> {
        match happening {
            Happening::Event(event) => self.tell(&event),
            Happening::Lost(error) => self.progress(&away(&error)),
            Happening::Back => self.progress("the control plane is back"),
            Happening::Ended(error) => Err(error.into()),
        }
    }

    /// Looks again. The watch says when the control plane is away.
    async fn look(&mut self) -> Result<(), Error> {
        match self.client.stage(&self.status.stage).await {
            Ok(stage) => {
                self.view = stage.read()?;
                self.stage = stage;
                self.seen = Instant::now();
                Ok(())
            }
            Err(error) if error.is_passing() => Ok(()),
            Err(error) if error.is_not_found() && self.seen.elapsed() < MISSING => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What has happened already in a change that is under way.
    async fn tell_past(&mut self, newest: i64) -> Result<(), Error> {
        let Some(deployment) = self.view.deployment.clone().filter(|deployment| !deployment.over) else {
            return Ok(());
        };
        let events = self.events(None, 200).await?;
        // Events are kept to the millisecond.
        let opened = deployment.opened.as_millisecond();
        let past = |event: &&EventView| event.id <= newest && event.at.as_millisecond() >= opened;
        for event in events.iter().filter(past) {
            self.progress(&line(event, &TimeZone::system()))?;
        }
        Ok(())
    }

    /// What the watch has not told yet when the end is seen.
    async fn tell_rest(&mut self) -> Result<(), Error> {
        let events = match self.events(Some(self.told), 1_000).await {
            Err(Error::Client(error)) if error.is_passing() => return Ok(()),
            events => events?,
        };
        events.iter().try_for_each(|event| self.tell(event))
    }

    async fn events(&self, after: Option<i64>, limit: u32) -> Result<Vec<EventView>, Error> {
        let subject = Some(self.status.stage.to_string());
        Ok(self.client.events(&EventsQuery { after, subject, limit: Some(limit) }).await?.items()?)
    }

    fn tell(&mut self, event: &EventView) -> Result<(), Error> {
        if event.id <= self.told || !is_about(&event.subject, &self.status.stage.to_string()) {
            return Ok(());
        }
        self.told = event.id;
        self.progress(&line(event, &TimeZone::system()))
    }

    /// Says what the stage waits on, when nothing else has been said for a while.
    fn tell_waits(&mut self) -> Result<(), Error> {
        if self.spoke.elapsed() < QUIET {
            return Ok(());
        }
        let text = self.waits();
        if text.is_empty() || text == self.waits {
            return Ok(());
        }
        self.waits.clone_from(&text);
        self.progress(&text)
    }

    fn waits(&self) -> String {
        if let Some(release) = self.status.release.as_ref().filter(|release| self.view.desired != **release) {
            return format!("waiting for Git to desire {release}; it desires {}", self.view.desired);
        }
        let subject = format!("stage {}", self.status.stage);
        let own = self.view.waiting.iter().find(|waiting| waiting.subject == subject);
        let any = own.or_else(|| self.view.waiting.first());
        any.map(|waiting| format!("waiting: {}: {}", waiting.subject, indented(&waiting.on, 2)))
            .unwrap_or_default()
    }

    fn progress(&mut self, text: &str) -> Result<(), Error> {
        self.spoke = Instant::now();
        match self.status.output {
            Format::Text => self.output.say(text),
            Format::Json | Format::Yaml => {
                self.output.note(text);
                Ok(())
            }
        }
    }

    fn conclude(mut self, verdict: Option<Verdict>) -> Result<Exit, Error> {
        let exit = match &verdict {
            Some(Verdict::Succeeded) => {
                self.progress(&format!("{} {}", "succeeded:".green().bold(), standing(&self.view)))?;
                Exit::Done
            }
            Some(Verdict::Failed { reason }) => {
                let reason = indented(reason, 2);
                self.progress(&format!("{} {}\n  {reason}", "failed:".red().bold(), standing(&self.view)))?;
                let retry = format!("`denv rollout retry {}`", self.status.stage);
                self.output.hint(&format!("commit another release, or try this one again with {retry}"));
                Exit::No
            }
            Some(Verdict::UnderWay) => {
                self.progress(&standing(&self.view))?;
                self.say_all_waits()?;
                Exit::Done
            }
            None => {
                let timeout = self.status.timeout;
                self.progress(&format!(
                    "{} after {timeout}: {}",
                    "not over".yellow().bold(),
                    standing(&self.view)
                ))?;
                self.say_all_waits()?;
                Exit::TimedOut
            }
        };
        match self.status.output {
            Format::Text => {}
            Format::Json => self.output.json(&self.stage.0)?,
            Format::Yaml => self.output.yaml(&self.stage.0)?,
        }
        Ok(exit)
    }

    fn say_all_waits(&mut self) -> Result<(), Error> {
        for waiting in self.view.waiting.clone() {
            self.progress(&format!("  {}: {}", waiting.subject, indented(&waiting.on, 4)))?;
        }
        Ok(())
    }
}
