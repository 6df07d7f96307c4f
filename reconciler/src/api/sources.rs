//! Sources: how they stand, and what people may ask of them.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State as Extracted};
use denv_schema::api::{ApprovalRequest, List, SourceView};
use denv_schema::manifest::Role;

use super::handlers::{Answer, PLANNED_WITHIN, Shared, list};
use super::person::Person;
use super::{Api, ApiError};
use crate::orchestrator::State;
use crate::source::{ApprovalError, Gone, SourceHandle};

impl Api {
    pub(super) fn source(&self, name: &str) -> Result<&SourceHandle, ApiError> {
        let found = self.sources.iter().find(|source| source.name() == name);
        found.ok_or_else(|| {
            let known = self.sources.iter().map(|source| format!("`{}`", source.name())).collect::<Vec<_>>();
            ApiError::not_found(format!("there is no source `{name}`"))
                .hint(format!("there is {}", known.join(", ")))
        })
    }

    /// Waits until what is in force is planned: who asks next is to see what the revision means, a deployment that is
    /// open, not the stage before it.
    pub(super) async fn planned(&self) {
        let mut states = self.state.clone();
        let planned = |state: &Arc<State>| match (&state.catalog, &*self.catalog.borrow()) {
            (Some(planned), Some(in_force)) => Arc::ptr_eq(planned, in_force),
            (planned, in_force) => planned.is_none() && in_force.is_none(),
        };
        let _ = tokio::time::timeout(PLANNED_WITHIN, states.wait_for(planned)).await;
    }
}

pub(super) async fn sources(Extracted(api): Shared, person: Person) -> Answer<List<SourceView>> {
    person.must_somewhere(Role::Viewer)?;
    list(api.sources.iter().map(SourceHandle::view).collect())
}

/// Looks at the remote now, and answers when it has been looked at and judged.
pub(super) async fn refresh(
    Extracted(api): Shared,
    person: Person,
    Path(name): Path<String>,
) -> Answer<SourceView> {
    person.must_somewhere(Role::Operator)?;
    let source = api.source(&name)?;
    source.look().await?;
    api.planned().await;
    Ok(Json(source.view()))
}

/// Accepts the revision that waits for it, and answers when that is planned.
pub(super) async fn approve(
    Extracted(api): Shared,
    person: Person,
    Path(name): Path<String>,
    request: Result<Json<ApprovalRequest>, JsonRejection>,
) -> Answer<SourceView> {
    person.must_everywhere(Role::Admin)?;
    let Json(request) = request?;
    let source = api.source(&name)?;
    source.approve(request.revision, person.name()).await??;
    api.planned().await;
    Ok(Json(source.view()))
}

impl From<Gone> for ApiError {
    fn from(gone: Gone) -> Self {
        ApiError::unavailable(gone.to_string())
    }
}

impl From<ApprovalError> for ApiError {
    fn from(error: ApprovalError) -> Self {
        match error {
            ApprovalError::Store(error) => error.into(),
            ApprovalError::Unreadable(_) => ApiError::unavailable(crate::chain(&error)),
            ApprovalError::NothingWaits { ref source_name }
            | ApprovalError::Another { ref source_name, .. } => {
                let hint = format!("see `denv describe source {source_name}`");
                ApiError::conflict(error.to_string()).hint(hint)
            }
            ApprovalError::Refused { .. } => ApiError::conflict(error.to_string()),
        }
    }
}
