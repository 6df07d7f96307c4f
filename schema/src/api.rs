//! What the reconciler's HTTP/JSON API says. The CLI, the OpenAPI document and the server share these types.

use std::collections::BTreeSet;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::diagnostic::Diagnostics;
use crate::manifest::{Kind, PoolName};
use crate::wire::{Ability, Generation, MemberState, TokenCounts};
use crate::{MemberId, Name, StageId, UnitId};

/// Every list the API gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct List<T> {
    pub items: Vec<T>,
}

/// Every refusal the API gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    pub error: ErrorMessage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorMessage {
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What is wrong with the manifests that came with the request.
    #[serde(default, skip_serializing_if = "Diagnostics::is_empty")]
    pub diagnostics: Diagnostics,
}

/// `GET /v1/sources`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceView {
    pub name: String,
    pub url: String,
    pub branch: String,
    pub state: SourceState,
    /// In force.
    pub accepted: Option<RevisionView>,
    /// The newest, where it was refused; the accepted one stays in force.
    pub refused: Option<RefusedView>,
    /// The newest, where it deletes so much that a person is to approve it; the accepted one stays in force.
    #[serde(default)]
    pub awaiting: Option<AwaitingView>,
    /// `Ready`, `Reconciling` and `Stalled`, as Kubernetes' tools read them.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Why the remote can't be read, in words.
    pub problem: Option<String>,
    /// When the remote last answered.
    pub fetched_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SourceState {
    /// Nothing was read yet.
    Starting,
    /// The newest revision is in force.
    Ready,
    /// The newest revision was refused.
    Refused,
    /// The newest revision deletes much, and waits for `denv source approve`.
    AwaitingApproval,
    /// The remote can't be read.
    Unreachable,
}

/// One aspect of how a thing stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: ConditionKind,
    pub status: ConditionStatus,
    /// One word, for tools.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// The newest commit that was judged when this was said.
    pub observed_revision: Option<String>,
    /// When the status last changed.
    pub last_transition: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionKind {
    /// The newest revision is in force.
    Ready,
    /// denv is at work on it, or tries again by itself.
    Reconciling,
    /// It goes on only when a person does something.
    Stalled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// A commit as people are shown it: the beginning, which Git and `denv source approve` take for the whole.
pub fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionView {
    pub commit: String,
    pub author: String,
    /// The first line of the message.
    pub summary: String,
    /// When denv judged it.
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedView {
    pub revision: RevisionView,
    /// Why as a whole: `2 faults in its manifests`, or that history was rewritten.
    pub reason: String,
    pub diagnostics: Diagnostics,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwaitingView {
    pub revision: RevisionView,
    /// What would go, as a whole: `12 of 20 hosts`.
    pub reason: String,
    pub deletions: Vec<DeletionView>,
}

/// What a revision would delete of a kind of which it deletes much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionView {
    /// `units`, `hosts`, `customers` or `keys`.
    pub kind: String,
    pub deleted: usize,
    /// How many are in force.
    pub of: usize,
    pub names: Vec<String>,
}

/// `POST /v1/webhooks/{source}`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookAnswer {
    /// What became of the hook, for the forge's list of deliveries.
    pub message: String,
}

/// `POST /v1/sources/{name}/approve`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalRequest {
    /// The commit that waits, whole or its beginning.
    pub revision: String,
}

/// `GET /v1/stages`, `GET /v1/stages/{environment}/{stage}`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageView {
    pub stage: StageId,
    /// What Git says.
    pub desired: Name,
    /// What last succeeded.
    pub good: Option<Name>,
    pub held: Option<HeldView>,
    pub ready: u32,
    pub wanted: u32,
    /// Who asked for that many, where not the manifest did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_by: Option<String>,
    pub deployment: Option<DeploymentView>,
    /// What its alarms say now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmView>,
    /// What does not go on, and why: of the stage and of its units.
    pub waiting: Vec<WaitingView>,
    pub units: Vec<UnitView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldView {
    /// What is not tried again by itself.
    pub release: Name,
    pub reason: String,
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingView {
    /// `stage chat/prod` or `unit chat.prod.3`.
    pub subject: String,
    pub on: String,
}

/// `GET /v1/deployments`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentView {
    pub stage: StageId,
    /// Counts a stage's deployments from 1.
    pub number: u64,
    pub from: Option<Name>,
    pub to: Name,
    /// `pending`, `gating`, `rolling (batch 1)`, `baking (batch 1)`, `verifying`, `succeeded`, `rolling-back`, `rolled-back`,
    /// `superseded`.
    pub phase: String,
    pub paused: bool,
    /// It has come to its end.
    pub over: bool,
    /// It has come to a good end.
    pub succeeded: bool,
    pub reason: Option<String>,
    pub opened: Timestamp,
    pub since: Timestamp,
    /// Where a person approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateView>,
}

/// What an alarm says of what a stage moves to, or of what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlarmView {
    pub alarm: Name,
    /// `pass`, `fail` (it fires) or `inconclusive`.
    pub outcome: String,
    /// With figures.
    pub reason: String,
}

/// A parity suite that was put to somebody for a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateView {
    /// `reference`, `before` or `after`.
    pub part: String,
    pub suite: Name,
    /// Counted from 1: a run that says nothing is made again.
    pub attempt: u32,
    /// Who was asked, in words.
    pub asked: String,
    pub since: Timestamp,
    /// `pass`, `fail` or `inconclusive`; none while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// With figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Who approved a deployment, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedView {
    pub by: String,
    pub at: Timestamp,
}

/// `GET /v1/units`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitView {
    pub unit: UnitId,
    pub stage: StageId,
    pub release: Name,
    pub fleet: Name,
    /// Of the member that takes requests.
    pub host: Name,
    /// The member that takes requests.
    pub member: MemberId,
    /// All its members: the pools in their order, and in each by rank.
    pub members: Vec<MemberView>,
    /// Why it is where it is.
    pub chosen: Option<String>,
    pub generation: Generation,
    /// `planned`, `preparing`, `starting`, `withheld`, `checking`, `ready`, `unhealthy`, `failed`, `silent`, `drifted`, `draining`,
    /// `stopping` or `stopped`.
    pub status: String,
    pub reason: Option<String>,
    /// Since when denv wants of it what it wants now.
    pub since: Timestamp,
    /// How often its engine was restarted.
    pub restarts: u32,
    /// Requests in flight, over all gateways.
    pub inflight: u32,
}

/// The part of a unit on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    pub member: MemberId,
    pub pool: PoolName,
    pub host: Name,
    pub gpus: Vec<u32>,
    pub cpu_slots: u32,
    /// What its host says of it; none, if it says nothing.
    pub state: Option<MemberState>,
    pub restarts: u32,
    pub reason: Option<String>,
}

/// `GET /v1/hosts`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    pub host: Name,
    pub fleet: Name,
    /// `connected`, `silent` or `never-joined`.
    pub state: String,
    /// When it was last there; of one that is connected, now. It need not have said anything for a minute.
    pub last_seen: Option<Timestamp>,
    pub version: Option<String>,
    pub ingress: Option<String>,
    pub cordoned: bool,
    /// What units take of what there is: `1/2 CPU slots`, `4/8 GPUs`.
    pub used: String,
    pub units: Vec<UnitId>,
    pub problems: Vec<String>,
    /// What its agent can do, beyond running programs that are on the host.
    #[serde(default)]
    pub abilities: BTreeSet<Ability>,
}

/// `GET /v1/gateways`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayView {
    pub gateway: Name,
    /// `connected` or `silent`.
    pub state: String,
    pub last_seen: Timestamp,
    pub version: String,
    /// Units it gives new requests to.
    pub in_rotation: Vec<UnitId>,
    /// It serves by the configuration in force.
    pub up_to_date: bool,
}

/// `GET /v1/manifests/{kind}`: a manifest in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestView {
    pub kind: Kind,
    pub name: String,
    pub spec: Value,
}

/// `GET /v1/events`, and each message of `GET /v1/watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Counts up; `?after=` gives those with a larger one.
    pub id: i64,
    pub at: Timestamp,
    /// `stage chat/prod`, `unit chat.prod.3`, `host h1`, `source main`, `gateway g`.
    pub subject: String,
    pub level: Level,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Normal,
    Warning,
}

/// `GET /v1/usage`: what a customer used of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageView {
    pub customer: Name,
    pub model: String,
    pub requests: u64,
    #[serde(flatten)]
    pub tokens: TokenCounts,
}

/// `POST /v1/tokens`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    pub role: JoinRole,
    /// The host's or gateway's name. A host must be in the manifests.
    pub name: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JoinRole {
    Host,
    Gateway,
}

/// The token, this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenResponse {
    pub token: String,
    pub expires: Timestamp,
}

/// `POST /v1/stages/{environment}/{stage}/scale`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleRequest {
    /// In all fleets together, within their ranges. Without it: as many as manifests say at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u32>,
}

/// `POST /v1/stages/{environment}/{stage}/rollout`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutRequest {
    pub action: RolloutAction,
    /// Only if the deployment is to this release: what was looked at is then what is asked of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutAction {
    /// Nothing more starts or drains; what runs runs on.
    Pause,
    Resume,
    /// Go back to the good release, and hold there.
    Abort,
    /// Try again what is held.
    Retry,
    /// Let a deployment begin that waits for a person's approval. It may be said before it waits, while it is pending.
    Approve,
}
