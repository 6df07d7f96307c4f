//! `denv why`: why something is as it is, and not otherwise, in the planner's own words.

use clap::Args;
use denv_planner::FleetSurvey;
use denv_schema::StageId;
use denv_schema::api::{StageView, UnitView, WaitingView};
use jiff::Timestamp;
use serde_json::json;

use crate::client::{Client, read};
use crate::describe::page::Page;
use crate::error::Error;
use crate::get::{find, stage_id};
use crate::output::{Exit, Format, Output};
use crate::resource::Resource;
use crate::table::{Cell, Column, render};
use crate::text::counted;
use crate::views::{hosts_shown, phase, stage_status, unit_status};

/// Say why a stage or unit is as it is: what waits on what, where units go, and why nowhere else
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Why {
    /// stage or unit
    #[arg(value_parser = Resource::parse)]
    kind: Resource,

    /// Its name
    name: String,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  denv why stage chat/prod
  denv why unit chat.prod.7";

type Domain = denv_planner::DomainVerdict;

const DOMAINS: &[Column<Domain>] = &[
    Column { title: "DOMAIN", wide: false, cell: |domain, _| Cell::plain(&domain.domain) },
    Column { title: "HOSTS", wide: false, cell: |domain, _| Cell::number(domain.hosts) },
    Column { title: "FREE", wide: false, cell: |domain, _| Cell::number(domain.free) },
    Column { title: "WHY", wide: false, cell: |domain, _| Cell::plain(&domain.why) },
];

pub(crate) async fn run(why: &Why, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let (value, text) = match why.kind {
        Resource::Stages => {
            let (stage, placement) = stage(&stage_id(&why.name)?, client).await?;
            let text = of_stage(&stage, &placement);
            (json!({"stage": stage, "placement": placement}), text)
        }
        Resource::Units => {
            let unit: UnitView = read(&find(why.kind, &client.units(None).await?, &why.name)?)?;
            let (stage, placement) = stage(&unit.stage, client).await?;
            let text = of_unit(&unit, &stage);
            (json!({"unit": unit, "stage": stage, "placement": placement}), text)
        }
        _ => {
            let message = "only a stage or a unit has a why".to_owned();
            return Err(Error::Usage { message, hint: Some("write `denv why stage chat/prod`".to_owned()) });
        }
    };
    match why.output {
        Format::Json => output.json(&value)?,
        Format::Yaml => output.yaml(&value)?,
        Format::Text => output.say(text.trim_end())?,
    }
    Ok(Exit::Done)
}

async fn stage(id: &StageId, client: &Client) -> Result<(StageView, Vec<FleetSurvey>), Error> {
    Ok((client.stage(id).await?.read()?, client.placement(id).await?.items()?))
}

fn of_stage(stage: &StageView, placement: &[FleetSurvey]) -> String {
    let mut page = Page::default();
    let ready = format!("{} of {} ready", stage.ready, counted(stage.wanted as usize, "unit"));
    page.field("Stage", &stage.stage).cell("Status", &stage_status(stage)).field(
        "Units",
        match &stage.scaled_by {
            Some(who) => format!("{ready}; as many as {who} asked for"),
            None => ready,
        },
    );
    if let Some(deployment) = stage.deployment.as_ref().filter(|deployment| !deployment.over) {
        page.field("Moves to", &deployment.to)
            .cell("Phase", &phase(deployment))
            .maybe("Because", deployment.reason.as_ref());
    }
    if let Some(held) = &stage.held {
        page.field("Held", format!("{} is not tried again: {}", held.release, held.reason));
    }
    page.waiting(&stage.waiting.iter().collect::<Vec<_>>());
    if stage.waiting.is_empty() {
        page.section("Waiting").lines("nothing: it is as it should be");
    }
    for fleet in placement {
        page.section(&format!("The next unit, in fleet {}: {}", fleet.fleet, fleet.takes));
        if let Some(waiting) = &fleet.waiting {
            page.lines(waiting);
        }
        if !fleet.domains.is_empty() {
            page.lines(&render(DOMAINS, &fleet.domains, false, Timestamp::now()));
        }
        if fleet.left_out > 0 {
            page.lines(&format!("and {}, which are no better", counted(fleet.left_out as usize, "domain")));
        }
    }
    page.finish()
}

fn of_unit(unit: &UnitView, stage: &StageView) -> String {
    let mut page = Page::default();
    let own = format!("unit {}", unit.unit);
    let above = format!("stage {}", unit.stage);
    let waiting: Vec<&WaitingView> =
        stage.waiting.iter().filter(|waiting| waiting.subject == own || waiting.subject == above).collect();
    page.field("Unit", &unit.unit)
        .cell("Status", &unit_status(unit))
        .field("Runs", &unit.release)
        .maybe("Because", unit.reason.as_ref())
        .field("On", format!("{}, of fleet {}", hosts_shown(unit), unit.fleet))
        .maybe("Chosen", unit.chosen.as_ref());
    let troubled = unit.members.iter().filter(|member| member.reason.is_some());
    for member in troubled {
        let reason = member.reason.as_deref().unwrap_or_default();
        page.field("Member", format!("{} on {}: {reason}", member.member, member.host));
    }
    if unit.release != stage.desired {
        let good = stage.good.as_ref().map_or("nothing yet", |good| good.as_str());
        page.field("Desired", format!("{}; good is {good}", stage.desired));
    }
    page.waiting(&waiting).finish()
}
