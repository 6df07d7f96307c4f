//! What a person may ask of a stage's deployment.

use denv_schema::api::{RolloutAction, RolloutRequest};
use denv_schema::manifest::StageSpec;
use denv_schema::{Name, StageId};
use jiff::Timestamp;

use crate::deployment::roll_back;
use crate::plan::Step;
use crate::records::{Approved, Phase, Records, Scale};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no stage `{0}`")]
    NoStage(StageId),
    #[error("there is no stage `{0}` with a deployment yet")]
    NoDeployment(StageId),
    #[error("the last deployment of `{stage}` is over: it {phase}; nothing to {action}")]
    Over { stage: StageId, phase: Phase, action: &'static str },
    #[error("`{0}` is rolling back; it can't be paused or aborted, but a new commit supersedes it")]
    RollingBack(StageId),
    #[error("the deployment of `{0}` is not paused")]
    NotPaused(StageId),
    #[error("the deployment of `{0}` is paused already")]
    AlreadyPaused(StageId),
    #[error("stage `{0}` is not held; there is nothing to try again")]
    NotHeld(StageId),
    #[error("the deployment of `{0}` has begun; there is nothing to approve")]
    Begun(StageId),
    #[error("the deployment of `{stage}` is approved already, by {by}")]
    AlreadyApproved { stage: StageId, by: String },
    #[error("the deployment of `{stage}` is to `{to}`, and not to `{asked}`")]
    OtherRelease { stage: StageId, to: Name, asked: Name },
    #[error(
        "`{stage}` can have {least} to {most} units, by the ranges of its fleets, and not {asked}; change `units` in its manifest"
    )]
    OutOfRange { stage: StageId, asked: u32, least: u32, most: u32 },
}

/// The steps that have a stage run so many units in all its fleets together, or none: as many as manifests say at least.
pub fn scale(
    spec: &StageSpec,
    stage: &StageId,
    units: Option<u32>,
    who: &str,
    at: Timestamp,
) -> Result<Vec<Step>, Refusal> {
    let least: u32 = spec.fleets.iter().map(|fleet| fleet.units.min).sum();
    let most: u32 = spec.fleets.iter().map(|fleet| fleet.units.most()).sum();
    if let Some(asked) = units.filter(|units| !(least..=most).contains(units)) {
        return Err(Refusal::OutOfRange { stage: stage.clone(), asked, least, most });
    }
    let scale = units.map(|units| Scale { units, by: who.to_owned(), at });
    Ok(vec![Step::Scale { stage: stage.clone(), scale }])
}

/// The steps that do as `who` asks, or why they can't be done.
pub fn act(
    records: &Records,
    stage: &StageId,
    request: &RolloutRequest,
    who: &str,
    at: Timestamp,
) -> Result<Vec<Step>, Refusal> {
    let action = request.action;
    let record = records.stages.get(stage).ok_or_else(|| Refusal::NoDeployment(stage.clone()))?;
    if let (Some(deployment), Some(asked)) = (&record.deployment, &request.release)
        && deployment.to != *asked
    {
        let (stage, to, asked) = (stage.clone(), deployment.to.clone(), asked.clone());
        return Err(Refusal::OtherRelease { stage, to, asked });
    }
    if action == RolloutAction::Retry {
        let over = record.deployment.as_ref().is_none_or(|deployment| deployment.phase.is_over());
        return match &record.hold {
            Some(_) if over => Ok(vec![Step::Unhold { stage: stage.clone() }]),
            Some(_) => Err(Refusal::RollingBack(stage.clone())),
            None => Err(Refusal::NotHeld(stage.clone())),
        };
    }
    let deployment = record.deployment.as_ref().ok_or_else(|| Refusal::NoDeployment(stage.clone()))?;
    if deployment.phase.is_over() {
        let action = match action {
            RolloutAction::Pause => "pause",
            RolloutAction::Resume => "resume",
            RolloutAction::Approve => "approve",
            RolloutAction::Abort | RolloutAction::Retry => "abort",
        };
        return Err(Refusal::Over { stage: stage.clone(), phase: deployment.phase, action });
    }
    match action {
        RolloutAction::Resume if !deployment.paused => Err(Refusal::NotPaused(stage.clone())),
        RolloutAction::Resume => Ok(vec![Step::ResumeDeployment { stage: stage.clone(), at }]),
        RolloutAction::Approve if deployment.phase != Phase::Pending => Err(Refusal::Begun(stage.clone())),
        RolloutAction::Approve => match &deployment.approved {
            Some(Approved { by, .. }) => {
                Err(Refusal::AlreadyApproved { stage: stage.clone(), by: by.clone() })
            }
            None => {
                let approved = Approved { by: who.to_owned(), at };
                Ok(vec![Step::ApproveDeployment { stage: stage.clone(), approved }])
            }
        },
        _ if deployment.phase == Phase::RollingBack => Err(Refusal::RollingBack(stage.clone())),
        RolloutAction::Pause if deployment.paused => Err(Refusal::AlreadyPaused(stage.clone())),
        RolloutAction::Pause => {
            Ok(vec![Step::PauseDeployment { stage: stage.clone(), reason: format!("by {who}"), at }])
        }
        RolloutAction::Abort | RolloutAction::Retry => {
            Ok(roll_back(stage, deployment, format!("aborted by {who}"), at).to_vec())
        }
    }
}
