//! Changes of the source repository that people ask for, and the world that previews are made of.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State as Extracted};
use denv_planner::Snapshot;
use denv_schema::change::{ChangeRequest, ChangeView};
use denv_schema::diff::Diff;
use denv_schema::manifest::Role;
use denv_schema::{Catalog, Diagnostics};
use jiff::Timestamp;

use super::ApiError;
use super::handlers::{Answer, Shared};
use super::person::Person;
use crate::source::{Permission, PublicationError, PushError};

/// Edits, judges, commits and pushes, in the asker's name; answers when what follows is planned.
pub(super) async fn change(
    Extracted(api): Shared,
    person: Person,
    Path(name): Path<String>,
    request: Result<Json<ChangeRequest>, JsonRejection>,
) -> Answer<ChangeView> {
    let Json(request) = request?;
    person.must_somewhere(Role::Operator)?;
    let source = api.source(&name)?;
    let access = person.access();
    let permission: Permission = Box::new(move |diff: &Diff, before: &Catalog, after: &Catalog| {
        access.as_ref().map_or(Ok(()), |access| access.may_change(diff, before, after))
    });
    let view = source.publish(request, person.author(), permission).await??;
    if view.commit.is_some() {
        api.planned().await;
    }
    Ok(Json(view))
}

/// Everything a plan is made of.
pub(super) async fn snapshot(Extracted(api): Shared, person: Person) -> Answer<Snapshot> {
    person.must_everywhere(Role::Viewer)?;
    let state = api.world().await?;
    let mut manifests = BTreeMap::new();
    let mut revision = None;
    for source in &api.sources {
        let files =
            source.files_in_force().await.map_err(|error| ApiError::unavailable(crate::chain(&error)))?;
        let text = |(path, bytes): (String, Vec<u8>)| {
            // As diagnostics name them: one source's files may be called as another's.
            let path = if api.sources.len() > 1 { format!("{}/{path}", source.name()) } else { path };
            (path, String::from_utf8_lossy(&bytes).into_owned())
        };
        manifests.extend(files.into_iter().map(text));
        revision = revision.or(source.view().accepted.map(|accepted| accepted.commit));
    }
    Ok(Json(Snapshot {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        taken_at: Timestamp::now(),
        revision,
        manifests,
        deployed: api.store.deployed_releases().await?,
        records: state.records.clone(),
        observed: state.observed.clone(),
    }))
}

impl From<PublicationError> for ApiError {
    fn from(error: PublicationError) -> Self {
        let message = error.to_string();
        match error {
            PublicationError::Invalid(found) => ApiError::invalid(message, found),
            PublicationError::Edit(_) => ApiError::bad_request(message),
            PublicationError::Denied(why) => ApiError::forbidden(why)
                .hint("who may do what stands in Access manifests; ask whoever may change them"),
            PublicationError::OtherBase { .. }
            | PublicationError::BranchExists(_)
            | PublicationError::Conflict(_)
            | PublicationError::Elsewhere(_)
            | PublicationError::Unsigned => ApiError::conflict(message),
            PublicationError::Push(
                error @ (PushError::Moved { .. } | PushError::Rejected { .. } | PushError::NotBare { .. }),
            ) => ApiError::conflict(crate::chain(&error)),
            PublicationError::Push(error) => ApiError::unavailable(crate::chain(&error)),
            PublicationError::Unread(_) => ApiError::unavailable(message),
            PublicationError::Mirror(source) => ApiError::unavailable(format!("{message}: {source:#}")),
            PublicationError::Store(error) => error.into(),
        }
    }
}

impl ApiError {
    fn invalid(message: String, diagnostics: Diagnostics) -> Self {
        ApiError { diagnostics, ..ApiError::bad_request(message) }
    }
}
