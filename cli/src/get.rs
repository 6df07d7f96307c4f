//! `denv get`: lists, and the one item of a name.

use clap::Args;
use denv_schema::StageId;
use denv_schema::diagnostic::nearest;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::{Answer, Client, EventsQuery};
use crate::error::Error;
use crate::output::{Exit, ListFormat, Output};
use crate::resource::{KINDS, Resource};
use crate::table::{Column, render};
use crate::{manifests, views};

/// List what there is: sources, stages, deployments, units, hosts, gateways, events, and manifests in force
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Get {
    #[arg(value_parser = Resource::parse, help = format!("What to list: {KINDS}"))]
    kind: Resource,

    /// Only the one of this name; for deployments `chat/prod` or `chat/prod#3`, for events what they are about
    name: Option<String>,

    /// Only the units or deployments of this stage
    #[arg(long, value_name = "ENVIRONMENT/STAGE")]
    stage: Option<StageId>,

    /// At most so many deployments or events, the newest
    #[arg(long, value_name = "N")]
    limit: Option<u32>,

    #[command(flatten)]
    form: ListForm,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ListForm {
    /// The form of the list
    #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
    output: ListFormat,
}

const EXAMPLES: &str = "\
Examples:
  denv get stages
  denv get units --stage chat/prod -o wide
  denv get deployments chat/prod --limit 5
  denv get release flash-r12 -o yaml
  denv get hosts -o json | jq '.items[] | select(.state != \"connected\") | .host'";

pub(crate) async fn run(get: &Get, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let resource = get.kind;
    get.check()?;
    let Some(name) = &get.name else {
        let answer = get.list(client, get.stage.as_ref()).await?;
        let of = get.stage.as_ref().map(|stage| format!(" of stage {stage}")).unwrap_or_default();
        return show(resource, &answer, &of, get.form, output);
    };
    match resource {
        // A stage's deployments are a list too.
        Resource::Deployments if !name.contains('#') => {
            let answer = get.list(client, Some(&stage_id(name)?)).await?;
            show(resource, &answer, &format!(" of stage {name}"), get.form, output)
        }
        Resource::Events => {
            let answer = get.list(client, None).await?;
            show(resource, &answer, &format!(" about {name}"), get.form, output)
        }
        Resource::Stages => show_one(resource, &client.stage(&stage_id(name)?).await?.0, get.form, output),
        _ => {
            let item = find(resource, &get.list(client, get.stage.as_ref()).await?, name)?;
            show_one(resource, &item, get.form, output)
        }
    }
}

impl Get {
    /// A filter that would do nothing is a mistake.
    fn check(&self) -> Result<(), Error> {
        let plural = self.kind.plural();
        let unknown =
            |what: &str| Error::Usage { message: format!("{plural} can't be listed {what}"), hint: None };
        if self.stage.is_some() && !matches!(self.kind, Resource::Units | Resource::Deployments) {
            return Err(unknown("with --stage"));
        }
        if self.limit.is_some() && !matches!(self.kind, Resource::Deployments | Resource::Events) {
            return Err(unknown("with --limit"));
        }
        Ok(())
    }

    async fn list(&self, client: &Client, stage: Option<&StageId>) -> Result<Answer, Error> {
        let answer = match self.kind {
            Resource::Sources => client.sources().await,
            Resource::Stages => client.stages().await,
            Resource::Deployments => match self.name.as_deref().and_then(|name| name.split_once('#')) {
                // The one of a number may be long ago.
                Some((stage, _)) => client.deployments(Some(&stage_id(stage)?), Some(1_000)).await,
                None => client.deployments(stage, self.limit).await,
            },
            Resource::Units => client.units(stage).await,
            Resource::Hosts => client.hosts().await,
            Resource::Gateways => client.gateways().await,
            Resource::Events => {
                client
                    .events(&EventsQuery { after: None, subject: self.name.clone(), limit: self.limit })
                    .await
            }
            Resource::Manifests(kind) => client.manifests(kind).await,
        };
        Ok(answer?)
    }
}

pub(crate) fn stage_id(text: &str) -> Result<StageId, Error> {
    text.parse().map_err(|_| Error::Usage {
        message: format!("`{text}` is not a stage"),
        hint: Some("write it as ENVIRONMENT/STAGE, for example chat/prod".to_owned()),
    })
}

/// The item of a name in a list.
pub(crate) fn find(resource: Resource, list: &Answer, name: &str) -> Result<Value, Error> {
    let items: Vec<Value> = list.items()?;
    let names: Vec<String> = items.iter().map(|item| resource.name_of(item)).collect();
    let found = items.into_iter().zip(&names).find(|(_, other)| *other == name).map(|(item, _)| item);
    found.ok_or_else(|| Error::NotFound {
        kind: resource.singular().to_owned(),
        name: name.to_owned(),
        hint: nearest(name, names.iter().map(String::as_str))
            .or_else(|| Some(format!("`denv get {}` lists what there is", resource.plural()))),
    })
}

/// A list, in its form. `of` says what was asked for, where there is nothing.
pub(crate) fn show(
    resource: Resource,
    answer: &Answer,
    of: &str,
    form: ListForm,
    output: &mut Output,
) -> Result<Exit, Error> {
    match form.output {
        ListFormat::Json => output.json(&answer.0)?,
        ListFormat::Yaml => output.yaml(&answer.0)?,
        ListFormat::Name => {
            for item in answer.items::<Value>()? {
                output.say(&resource.name_of(&item))?;
            }
        }
        ListFormat::Table | ListFormat::Wide if answer.items::<Value>()?.is_empty() => {
            output.note(&format!("no {}{of}", resource.plural()));
        }
        ListFormat::Table | ListFormat::Wide => {
            let wide = form.output == ListFormat::Wide;
            output.say(&table(resource, answer, wide, Timestamp::now())?)?;
        }
    }
    Ok(Exit::Done)
}

fn show_one(resource: Resource, item: &Value, form: ListForm, output: &mut Output) -> Result<Exit, Error> {
    match form.output {
        ListFormat::Json => output.json(item)?,
        ListFormat::Yaml => output.yaml(item)?,
        ListFormat::Table | ListFormat::Wide | ListFormat::Name => {
            let list = Answer(json!({"items": [item]}));
            return show(resource, &list, "", form, output);
        }
    }
    Ok(Exit::Done)
}

fn table(resource: Resource, answer: &Answer, wide: bool, now: Timestamp) -> Result<String, Error> {
    fn of<T: DeserializeOwned>(
        columns: &[Column<T>],
        answer: &Answer,
        wide: bool,
        now: Timestamp,
    ) -> Result<String, Error> {
        Ok(render(columns, &answer.items()?, wide, now))
    }
    match resource {
        Resource::Sources => of(views::SOURCES, answer, wide, now),
        Resource::Stages => of(views::STAGES, answer, wide, now),
        Resource::Deployments => of(views::DEPLOYMENTS, answer, wide, now),
        Resource::Units => of(views::UNITS, answer, wide, now),
        Resource::Hosts => of(views::HOSTS, answer, wide, now),
        Resource::Gateways => of(views::GATEWAYS, answer, wide, now),
        Resource::Events => of(views::EVENTS, answer, wide, now),
        Resource::Manifests(kind) => Ok(manifests::render(kind, &answer.items()?)),
    }
}
