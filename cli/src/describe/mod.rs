//! `denv describe`: one thing with all that is known of it, for people. One file a kind; each renders a value to text.

mod deployment;
mod host;
pub(crate) mod page;
mod source;
mod stage;
mod unit;

use clap::Args;
use denv_schema::api::{DeploymentView, EventView, HostView, SourceView, StageView, UnitView};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::client::{Client, EventsQuery, read};
use crate::error::Error;
use crate::get::{find, stage_id};
use crate::output::{Exit, Format, Output};
use crate::resource::Resource;

/// Show all about a stage, deployment, unit, host or source: what it is, what it waits on, and why
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Describe {
    /// stage, deployment, unit, host or source
    #[arg(value_parser = Resource::parse)]
    kind: Resource,

    /// Its name; for a deployment `chat/prod` (the last) or `chat/prod#3`
    name: String,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  denv describe stage chat/prod
  denv describe deployment chat/prod#3
  denv describe unit chat.prod.7
  denv describe host gpu-1
  Why a commit was refused, in full:
    denv describe source main";

/// Events shown below a description.
const EVENTS: u32 = 12;
/// The most rows that the control plane gives at once.
const MOST: u32 = 1_000;

pub(crate) async fn run(describe: &Describe, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let name = describe.name.as_str();
    let now = Timestamp::now();
    let (value, text) = match describe.kind {
        Resource::Stages => {
            let answer = client.stage(&stage_id(name)?).await?;
            let view: StageView = answer.read()?;
            let events = events(client, name).await?;
            (answer.0, stage::render(&view, &events, now))
        }
        Resource::Deployments => deployment(name, client, now).await?,
        Resource::Units => {
            let value = find(describe.kind, &client.units(None).await?, name)?;
            let view: UnitView = read(&value)?;
            let stage: StageView = client.stage(&view.stage).await?.read()?;
            let events = events(client, &format!("unit {name}")).await?;
            (value, unit::render(&view, &stage, &events, now))
        }
        Resource::Hosts => {
            let value = find(describe.kind, &client.hosts().await?, name)?;
            let view: HostView = read(&value)?;
            let mut units: Vec<UnitView> = client.units(None).await?.items()?;
            units.retain(|unit| unit.members.iter().any(|member| member.host == view.host));
            let events = events(client, &format!("host {name}")).await?;
            (value, host::render(&view, &units, &events, now))
        }
        Resource::Sources => {
            let value = find(describe.kind, &client.sources().await?, name)?;
            let view: SourceView = read(&value)?;
            let events = events(client, &format!("source {name}")).await?;
            (value, source::render(&view, &events, now))
        }
        kind => {
            return Err(Error::Usage {
                message: format!("a {} has nothing to describe beyond its manifest", kind.singular()),
                hint: Some(format!("see it with `denv get {} {name} -o yaml`", kind.singular())),
            });
        }
    };
    show(describe.output, &value, &text, output)?;
    Ok(Exit::Done)
}

fn show<T: Serialize>(format: Format, value: &T, text: &str, output: &mut Output) -> Result<(), Error> {
    match format {
        Format::Json => output.json(value),
        Format::Yaml => output.yaml(value),
        Format::Text => output.say(text),
    }
}

async fn events(client: &Client, subject: &str) -> Result<Vec<EventView>, Error> {
    let query = EventsQuery { after: None, subject: Some(subject.to_owned()), limit: Some(EVENTS) };
    Ok(client.events(&query).await?.items()?)
}

async fn deployment(name: &str, client: &Client, now: Timestamp) -> Result<(Value, String), Error> {
    let (stage, number) = name.split_once('#').map_or((name, None), |(stage, number)| (stage, Some(number)));
    let list = client.deployments(Some(&stage_id(stage)?), Some(MOST)).await?;
    let deployments: Vec<DeploymentView> = list.items()?;
    let last = deployments.iter().map(|deployment| deployment.number).max();
    let number = number.map_or_else(|| last.map(|last| last.to_string()).unwrap_or_default(), str::to_owned);
    if number.is_empty() {
        let hint =
            Some(format!("stage {stage} has had none; `denv describe stage {stage}` says what it waits on"));
        return Err(Error::NotFound { kind: "deployment".to_owned(), name: name.to_owned(), hint });
    }
    let value = find(Resource::Deployments, &list, &format!("{stage}#{number}"))?;
    let view: DeploymentView = read(&value)?;
    let query = EventsQuery { after: None, subject: Some(stage.to_owned()), limit: Some(MOST) };
    let mut events: Vec<EventView> = client.events(&query).await?.items()?;
    events.retain(|event| is_of(event, &view));
    let stage: StageView = client.stage(&view.stage).await?.read()?;
    let text = deployment::render(&view, &stage, &events, now);
    Ok((value, text))
}

/// Whether an event is from the time of a deployment. Events are kept to the millisecond.
fn is_of(event: &EventView, deployment: &DeploymentView) -> bool {
    let at = event.at.as_millisecond();
    at >= deployment.opened.as_millisecond() && !(deployment.over && at > deployment.since.as_millisecond())
}

#[cfg(test)]
mod tests;
