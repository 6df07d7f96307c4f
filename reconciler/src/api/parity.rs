//! Runs of parity suites, as they were kept.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Extracted};
use denv_gates::parity::{Report, When};
use denv_schema::manifest::Role as Access;
use serde::Deserialize;

use super::ApiError;
use super::handlers::{Answer, Shared, find_stage};
use super::person::Person;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfRun {
    deployment: Option<u64>,
    when: Option<When>,
}

pub(super) async fn report(
    Extracted(api): Shared,
    person: Person,
    Path((environment, stage)): Path<(String, String)>,
    query: Result<Query<OfRun>, QueryRejection>,
) -> Answer<Report> {
    let Query(OfRun { deployment, when }) = query?;
    let view = find_stage(&*api.world().await?, &environment, &stage)?;
    person.must(Access::Viewer, &view.stage)?;
    let found = api.store.report(&view.stage, deployment, when).await?;
    found.map(Json).ok_or_else(|| {
        let of = deployment.map_or_else(String::new, |number| format!(" for deployment {number}"));
        let message = format!("no parity suite was run of stage `{}`{of}", view.stage);
        ApiError::not_found(message)
            .hint("a stage names its suite in `spec.parity`; one is run by each deployment")
    })
}
