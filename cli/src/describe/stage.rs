use denv_schema::api::{EventView, StageView};
use jiff::Timestamp;

use super::deployment;
use super::page::Page;
use crate::time::at;
use crate::views::stage_status;

pub(super) fn render(stage: &StageView, events: &[EventView], now: Timestamp) -> String {
    let mut page = Page::default();
    page.field("Stage", &stage.stage)
        .field("Desired", format!("{}, by Git", stage.desired))
        .field("Good", stage.good.as_ref().map_or("none yet", |good| good.as_str()))
        .cell("Status", &stage_status(stage))
        .field("Units ready", format!("{} of {}", stage.ready, stage.wanted));
    if let Some(held) = &stage.held {
        let stays = match &stage.good {
            Some(good) => format!("the stage stays at {good}"),
            None => "nothing runs, since no release succeeded before it".to_owned(),
        };
        page.section("Held")
            .lines(&format!("{} is not tried again by itself; {stays}.", held.release))
            .field("  Since", at(held.since, now))
            .field("  Why", &held.reason)
            .lines(&format!(
                "Commit another release, or try again with `denv rollout retry {}`.",
                stage.stage
            ));
    }
    if let Some(deployment) = &stage.deployment {
        page.section(&format!("Deployment {}", deployment.number));
        deployment::fields(&mut page, deployment, "  ", now);
    }
    page.alarms(&stage.alarms);
    // That a stage is held was said above.
    let said = stage.held.as_ref().map(|_| format!("stage {}", stage.stage));
    let waiting = stage.waiting.iter().filter(|waiting| Some(&waiting.subject) != said.as_ref());
    page.waiting(&waiting.collect::<Vec<_>>());
    page.units(&stage.units, now).events(events, now).finish()
}
