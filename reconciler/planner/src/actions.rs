//! What a person may ask of a stage's deployment.

use denv_schema::StageId;
use denv_schema::api::RolloutAction;
use jiff::Timestamp;

use crate::deployment::roll_back;
use crate::plan::Step;
use crate::records::{Phase, Records};

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
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
}

/// The steps that do as `who` asks, or why they can't be done.
pub fn act(
    records: &Records,
    stage: &StageId,
    action: RolloutAction,
    who: &str,
    at: Timestamp,
) -> Result<Vec<Step>, Refusal> {
    let record = records.stages.get(stage).ok_or_else(|| Refusal::NoDeployment(stage.clone()))?;
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
            RolloutAction::Abort | RolloutAction::Retry => "abort",
        };
        return Err(Refusal::Over { stage: stage.clone(), phase: deployment.phase, action });
    }
    match action {
        RolloutAction::Resume if !deployment.paused => Err(Refusal::NotPaused(stage.clone())),
        RolloutAction::Resume => Ok(vec![Step::ResumeDeployment { stage: stage.clone(), at }]),
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
