//! One function a route.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State as Extracted};
use denv_link::{JoinToken, Role};
use denv_planner::{FleetSurvey, World, survey};
use denv_schema::api::{
    DeploymentView, EventView, GatewayView, HostView, JoinRole, Level, List, ManifestView, RolloutRequest,
    ScaleRequest, SourceView, StageView, TokenRequest, TokenResponse, UnitView, UsageView,
};
use denv_schema::manifest::{Kind, Role as Access};
use denv_schema::{Name, StageId};
use jiff::{SignedDuration, Timestamp};
use rand::Rng as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::person::Person;
use super::{Api, ApiError, views};
use crate::orchestrator::{Ask, AskError, Asked, State};
use crate::source::SourceHandle;
use crate::store::{Event, EventQuery, TokenGrant};

pub(super) type Answer<T> = Result<Json<T>, ApiError>;
pub(super) type Shared = Extracted<Arc<Api>>;

/// How long a join token may be used.
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
const MOST_ROWS: u32 = 1_000;
/// How long an answer waits for the plan that follows from what was asked.
pub(super) const PLANNED_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

pub(super) fn list<T>(items: Vec<T>) -> Answer<List<T>> {
    Ok(Json(List { items }))
}

impl Api {
    /// With what the stage's alarms read at this moment.
    fn with_alarms(&self, view: StageView) -> StageView {
        let alarms = self.observation.alarms(&view.stage).iter().map(views::alarm).collect();
        StageView { alarms, ..view }
    }

    /// The world as last planned. Before a first revision is in force there is none, which is no empty world.
    pub(super) async fn world(&self) -> Result<Arc<State>, ApiError> {
        if self.catalog.borrow().is_some() {
            // A first revision is in force, and planned in a moment.
            let mut states = self.state.clone();
            let planned = states.wait_for(|state| state.catalog.is_some());
            if let Ok(Ok(state)) = tokio::time::timeout(PLANNED_WITHIN, planned).await {
                return Ok(Arc::clone(&state));
            }
        }
        let views: Vec<SourceView> = self.sources.iter().map(SourceHandle::view).collect();
        let stands = |view: &&SourceView| view.problem.is_some() || view.refused.is_some();
        let Some(source) = views.iter().find(stands).or(views.first()) else {
            return Err(ApiError::unavailable("there is no source"));
        };
        let why = match (&source.problem, &source.refused) {
            (Some(problem), _) => problem.clone(),
            (None, Some(refused)) => format!("the newest revision was refused: {}", refused.reason),
            (None, None) => "it is being read".to_owned(),
        };
        Err(ApiError::unavailable(format!("no revision of source `{}` is in force yet: {why}", source.name))
            .hint(format!("see `denv describe source {}`", source.name)))
    }
}

pub(super) async fn health(Extracted(api): Shared) -> Result<Json<Value>, ApiError> {
    match &api.state.borrow().problem {
        None => Ok(Json(json!({ "status": "ok" }))),
        Some(problem) => Err(ApiError::unavailable(problem.clone())),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfStage {
    stage: Option<StageId>,
    limit: Option<u32>,
}

pub(super) async fn stages(Extracted(api): Shared, person: Person) -> Answer<List<StageView>> {
    let state = api.world().await?;
    let stages = state.catalog.iter().flat_map(|catalog| catalog.stages.keys());
    let stages = stages.filter(|id| person.sees(id));
    list(stages.filter_map(|id| views::stage(&state, id)).map(|view| api.with_alarms(view)).collect())
}

pub(super) async fn stage(
    Extracted(api): Shared,
    person: Person,
    Path((environment, stage)): Path<(String, String)>,
) -> Answer<StageView> {
    let state = api.world().await?;
    let view = find_stage(&state, &environment, &stage)?;
    person.must(Access::Viewer, &view.stage)?;
    Ok(Json(api.with_alarms(view)))
}

pub(super) fn find_stage(state: &State, environment: &str, stage: &str) -> Result<StageView, ApiError> {
    let id = format!("{environment}/{stage}");
    let parsed: Option<StageId> = id.parse().ok();
    parsed.and_then(|id| views::stage(state, &id)).ok_or_else(|| {
        let known = state.catalog.iter().flat_map(|catalog| catalog.stages.keys());
        let known = known.map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
        let hint = if known.is_empty() {
            "no revision has been accepted yet".to_owned()
        } else {
            format!("there are {known}")
        };
        ApiError::not_found(format!("there is no stage `{id}`")).hint(hint)
    })
}

/// Where the next unit of a stage would go, and why nowhere else.
pub(super) async fn placement(
    Extracted(api): Shared,
    person: Person,
    Path((environment, stage)): Path<(String, String)>,
) -> Answer<List<FleetSurvey>> {
    let state = api.world().await?;
    let id = find_stage(&state, &environment, &stage)?.stage;
    person.must(Access::Viewer, &id)?;
    let Some(catalog) = state.catalog.as_ref() else { return list(Vec::new()) };
    let world = World { catalog, records: &state.records, observed: &state.observed, now: Timestamp::now() };
    list(survey(&world, &id))
}

pub(super) async fn rollout(
    Extracted(api): Shared,
    person: Person,
    Path((environment, stage)): Path<(String, String)>,
    request: Result<Json<RolloutRequest>, JsonRejection>,
) -> Answer<StageView> {
    let Json(request) = request?;
    ask(&api, &person, (&environment, &stage), Asked::Rollout(request)).await
}

pub(super) async fn scale(
    Extracted(api): Shared,
    person: Person,
    Path((environment, stage)): Path<(String, String)>,
    request: Result<Json<ScaleRequest>, JsonRejection>,
) -> Answer<StageView> {
    let Json(request) = request?;
    ask(&api, &person, (&environment, &stage), Asked::Scale(request)).await
}

/// Has the orchestrator do what a person asks of a stage, and shows the stage as it is then.
async fn ask(
    api: &Api,
    person: &Person,
    (environment, stage): (&str, &str),
    what: Asked,
) -> Answer<StageView> {
    let id = find_stage(&*api.world().await?, environment, stage)?.stage;
    person.must(Access::Operator, &id)?;
    let (sender, answer) = oneshot::channel();
    let ask = Ask { stage: id, what, who: person.name(), answer: sender };
    let mut changes = api.state.clone();
    changes.mark_unchanged();
    let stopping = || ApiError::unavailable("the control plane is stopping");
    api.asks.send(ask).await.map_err(|_| stopping())?;
    match answer.await.map_err(|_| stopping())? {
        Ok(()) => {}
        Err(AskError::Refused(refusal)) => return Err(ApiError::conflict(refusal.to_string())),
        Err(AskError::Store(error)) => return Err(error.into()),
    }
    // What was asked shows in the next state; the asker is shown that one.
    let _ = tokio::time::timeout(PLANNED_WITHIN, changes.changed()).await;
    let view = find_stage(&*api.world().await?, environment, stage)?;
    Ok(Json(api.with_alarms(view)))
}

pub(super) async fn deployments(
    Extracted(api): Shared,
    person: Person,
    query: Result<Query<OfStage>, QueryRejection>,
) -> Answer<List<DeploymentView>> {
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(50).min(MOST_ROWS);
    let found = api.store.deployments(query.stage.as_ref(), limit).await?;
    let seen = found.iter().filter(|(stage, _)| person.sees(stage));
    list(seen.map(|(stage, deployment)| views::deployment(stage, deployment)).collect())
}

pub(super) async fn units(
    Extracted(api): Shared,
    person: Person,
    query: Result<Query<OfStage>, QueryRejection>,
) -> Answer<List<UnitView>> {
    let Query(query) = query?;
    let units = views::units(&*api.world().await?, query.stage.as_ref());
    list(units.into_iter().filter(|unit| person.sees(&unit.stage)).collect())
}

pub(super) async fn hosts(Extracted(api): Shared, person: Person) -> Answer<List<HostView>> {
    person.must_somewhere(Access::Viewer)?;
    list(views::hosts(&*api.world().await?, Timestamp::now()))
}

pub(super) async fn gateways(Extracted(api): Shared, person: Person) -> Answer<List<GatewayView>> {
    person.must_somewhere(Access::Viewer)?;
    list(views::gateways(&*api.world().await?))
}

pub(super) async fn manifests(
    Extracted(api): Shared,
    person: Person,
    Path(kind): Path<String>,
) -> Answer<List<ManifestView>> {
    person.must_somewhere(Access::Viewer)?;
    let found = Kind::of_word(&kind);
    let Some(kind) = found else {
        let known = Kind::ALL.iter().map(|kind| kind.plural()).collect::<Vec<_>>().join(", ");
        return Err(
            ApiError::not_found(format!("there is no kind `{kind}`")).hint(format!("there are {known}"))
        );
    };
    let state = api.world().await?;
    list(state.catalog.as_ref().map_or_else(Vec::new, |catalog| views::manifests(catalog, kind)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    #[serde(default)]
    after: i64,
    subject: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn events(
    Extracted(api): Shared,
    person: Person,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Answer<List<EventView>> {
    person.must_somewhere(Access::Viewer)?;
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(50).min(MOST_ROWS);
    list(
        api.store
            .events(&EventQuery {
                after: query.after,
                subject: query.subject,
                limit,
                // Without a place to go on from, the newest are meant.
                first: query.after > 0,
            })
            .await?,
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    since: Option<Timestamp>,
    customer: Option<String>,
}

pub(super) async fn usage(
    Extracted(api): Shared,
    person: Person,
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Answer<List<UsageView>> {
    person.must_everywhere(Access::Viewer)?;
    let Query(query) = query?;
    let since = query.since.unwrap_or(Timestamp::UNIX_EPOCH);
    list(api.store.usage(since, query.customer.as_deref()).await?)
}

pub(super) async fn grant_token(
    Extracted(api): Shared,
    person: Person,
    request: Result<Json<TokenRequest>, JsonRejection>,
) -> Answer<TokenResponse> {
    person.must_everywhere(Access::Admin)?;
    let Json(request) = request?;
    let role = match request.role {
        JoinRole::Host => Role::Host,
        JoinRole::Gateway => Role::Gateway,
    };
    if role == Role::Host {
        known_host(&*api.world().await?, &request.name)?;
    }
    let secret = {
        let mut bytes = [0u8; 32];
        rand::rng().fill(&mut bytes);
        denv_schema::Digest::from_bytes(bytes).to_string().trim_start_matches("sha256:").to_owned()
    };
    let expires = Timestamp::now() + TOKEN_LIFETIME;
    let grant = TokenGrant { role, name: request.name.clone() };
    api.store.grant_token(JoinToken::secret_hash(&secret), &grant, expires).await?;
    let message = format!("a join token was made, good once until {expires}");
    let event = Event {
        at: Timestamp::now(),
        subject: format!("{role} {}", request.name),
        level: Level::Normal,
        message,
    };
    api.store.note(&event).await?;
    let token = JoinToken { secret, authority: api.authority.fingerprint() }.to_string();
    Ok(Json(TokenResponse { token, expires }))
}

fn known_host(state: &State, name: &Name) -> Result<(), ApiError> {
    let known = |host: &Name| state.catalog.as_ref().is_some_and(|catalog| catalog.hosts.contains_key(host));
    if known(name) {
        return Ok(());
    }
    let hosts = state.catalog.iter().flat_map(|catalog| catalog.hosts.keys());
    let hosts = hosts.take(8).map(|host| format!("`{host}`")).collect::<Vec<_>>().join(", ");
    let hint = if hosts.is_empty() {
        "write a Host manifest for it first".to_owned()
    } else {
        format!("there are {hosts}; write a Host manifest for a new one first")
    };
    Err(ApiError::not_found(format!("there is no Host `{name}` in the manifests")).hint(hint))
}
