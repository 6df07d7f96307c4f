//! What the reconciler, hosts and gateways say to each other. The same types are the planner's world, so what a
//! host reports is what a plan is made of.
//!
//! Messages are JSON on gRPC streams. A receiver ignores fields it does not know, so parts may be upgraded one at
//! a time.

mod artifact;
mod test;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::launch::{Claim, HandOver, LaunchSpec};
use crate::measures::{GatewayMeasures, HostMeasures};
use crate::{Digest, MemberId, Name, StageId, UnitId};

pub use artifact::{Artifact, ArtifactReport, ArtifactState, FetchedBytes};
pub use test::{
    Answer, CaseAnswer, LONGEST_ANSWER, MOST_PROMPTS, Prompt, Said, TestId, TestRequest, TestResult, ToolCall,
};

/// A leader's fencing term. A receiver refuses a term lower than one it has seen.
pub type Term = u64;
/// Counts the starts that a unit's record has been through. A receiver refuses an older one, and the same one with
/// another body.
pub type Generation = u64;

// ---- joining -------------------------------------------------------------------------------------------------

/// Asks for a certificate with a one-time token (or, when renewing, with the certificate that is about to end).
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequest {
    /// The token's secret part; empty when renewing.
    #[serde(default)]
    pub secret: String,
    /// A PKCS #10 request in PEM. Only its public key is used: the identity comes from the token.
    pub certificate_request: String,
    /// The asker's clock, so that skew can be diagnosed in words.
    pub clock: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinResponse {
    /// The new certificate, in PEM.
    pub certificate: String,
    /// The authority that signed it, in PEM.
    pub authority: String,
    /// The answerer's clock.
    pub clock: Timestamp,
}

// ---- hosts ---------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostMessage {
    /// First on every stream.
    Hello(HostHello),
    /// Everything the host sees, whole, whenever it changes, after each result, and at least every
    /// [`HOST_REPORT_INTERVAL`].
    Report(HostReport),
    Result(CommandResult),
    /// What its engines tell of themselves, whole, whenever it changes and at most every [`crate::measures::MEASURE_INTERVAL`].
    Measured(HostMeasures),
    /// What an engine answered to a test's prompts.
    Tested(TestResult),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostHello {
    pub version: String,
    /// `host:port` where gateways reach this host's ingress.
    pub ingress: String,
    pub clock: Timestamp,
    pub report: HostReport,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostReport {
    pub inventory: Inventory,
    pub members: BTreeMap<MemberId, MemberReport>,
    /// What is wrong with the host itself, for people: a full disk, a missing engine path.
    pub problems: Vec<String>,
    /// When its provider takes it back, where that has been announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Timestamp>,
    /// What it was last asked to have, and how far it is with that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    pub gpus: Vec<Gpu>,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// What the host's agent can do, beyond running programs that are on the host.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub abilities: BTreeSet<Ability>,
    /// The scale-up domain that the host was told it belongs to; its manifest's wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<Name>,
    /// What the host was told fails together with it; its manifest's wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<Name>,
}

/// What some hosts can do and others can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// Run engines from container images.
    Images,
    /// Fetch weights from elsewhere.
    FetchWeights,
    /// Prepare what engines are started from before it is needed.
    Prefetch,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ability::Images => "start engines from images",
            Ability::FetchWeights => "fetch weights",
            Ability::Prefetch => "prepare both ahead",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    pub index: u32,
    pub model: String,
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberReport {
    pub generation: Generation,
    /// The digest of the launch spec that runs.
    pub spec: Digest,
    pub state: MemberState,
    /// When the member entered this state.
    pub since: Timestamp,
    /// What the member has of the host, unless nothing of it is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// How often denvd restarted the engine in this generation.
    pub restarts: u32,
    /// How often the engine has ended lately, without having been healthy for long in between.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ends_in_a_row: u32,
    /// Why the state is what it is, for people: an exit status with the log's last lines, a failed check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// Weights are being fetched or verified.
    Preparing,
    /// The engine runs and has not passed a check yet.
    Starting,
    /// Checks pass.
    Healthy,
    /// Checks passed once and fail now, or the engine ended and is being restarted.
    Unhealthy,
    /// denvd gave up: it can't be prepared, or it ended too often before it was ever healthy.
    Failed,
    /// SIGTERM was sent.
    Stopping,
    /// Ended on command; nothing is left of it.
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::large_enum_variant, reason = "a host has few commands; a box would only add noise")]
pub enum HostInstruction {
    /// Answers a hello.
    Welcome {
        term: Term,
        clock: Timestamp,
    },
    Command(Command),
    /// The result of this command is recorded; the journal may drop it.
    ResultTaken {
        id: CommandId,
    },
    /// All that the host is to have ready for engines to come. It replaces what was asked for before.
    Prefetch(Vec<Artifact>),
    /// Asks an engine something. Nothing is kept of it: on a stream that ends it is given up, and asked anew on the next.
    Test(TestRequest),
}

/// Derived from what it does, so the same step planned twice is one command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CommandId(pub String);

/// One entry of a host's queue: delivered at least once, executed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    pub id: CommandId,
    /// The leader's term when it was delivered.
    pub term: Term,
    pub member: MemberId,
    pub generation: Generation,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::large_enum_variant, reason = "a host has few commands; a box would only add noise")]
pub enum Action {
    Start(LaunchSpec),
    Stop {},
}

impl Command {
    /// Of a member at a generation there is one start and one stop.
    pub fn new(term: Term, member: MemberId, generation: Generation, action: Action) -> Self {
        let verb = match action {
            Action::Start(_) => "start",
            Action::Stop {} => "stop",
        };
        Command { id: CommandId(format!("{member}@{generation}/{verb}")), term, member, generation, action }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandResult {
    pub id: CommandId,
    pub outcome: CommandOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CommandOutcome {
    /// Taken up: what comes of it is seen in the reports.
    Accepted,
    /// Fenced: an older term or generation, or the same generation with another body.
    Refused { reason: String },
}

/// How often a host reports when nothing changes. That it is there at all is the link's to know: of thousands of hosts at rest,
/// most say nothing most of the time.
pub const HOST_REPORT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(60);
/// How often a gateway reports when nothing changes.
pub const REPORT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);
/// Who has been away for this long is silent.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(10);

// ---- gateways ------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GatewayMessage {
    /// First on every stream.
    Hello(GatewayHello),
    /// What the gateway routes to now, whole, whenever it changes and at least every [`REPORT_INTERVAL`].
    Report(GatewayReport),
    Usage(UsageBatch),
    /// What the gateway has counted of units, every [`crate::measures::MEASURE_INTERVAL`] where something has happened.
    Measured(GatewayMeasures),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayHello {
    pub version: String,
    pub clock: Timestamp,
    pub report: GatewayReport,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayReport {
    /// The configuration in force.
    pub config: Option<Digest>,
    pub units: BTreeMap<UnitId, UnitReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitReport {
    pub generation: Generation,
    /// The instruction that the gateway follows for the unit now: an `Out` here confirms that it has taken it up.
    pub rotation: Rotation,
    /// New requests may be given to it. The gateway has connected to the unit at least once in this generation.
    pub in_rotation: bool,
    pub inflight: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GatewayInstruction {
    Config(GatewayConfig),
    /// All units there are, whole. One that is missing is gone: it leaves rotation at once.
    Units(Vec<UnitRoute>),
    /// Records of this ledger below `next` are recorded and may be dropped.
    UsageTaken {
        ledger: String,
        next: u64,
    },
}

/// Everything a gateway serves by, from one accepted revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayConfig {
    pub endpoints: BTreeMap<Name, crate::manifest::EndpointSpec>,
    pub customers: BTreeMap<Name, crate::manifest::CustomerSpec>,
    pub keys: BTreeMap<Name, crate::manifest::KeySpec>,
    pub routing: BTreeMap<StageId, crate::manifest::Routing>,
    /// The jurisdictions that each stage keeps traffic in; those that keep it nowhere are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub residency: BTreeMap<StageId, Vec<Name>>,
}

/// A unit as gateways reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitRoute {
    pub unit: UnitId,
    pub generation: Generation,
    pub stage: StageId,
    pub release: Name,
    /// The model's name as the engine knows it.
    pub model: String,
    /// The member that takes requests; of a unit of two pools, that which writes the answers.
    #[serde(flatten)]
    pub at: MemberRoute,
    /// The member that is asked first, in a unit of two pools whose engine leaves that to gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<PrefillRoute>,
    pub rotation: Rotation,
}

impl UnitRoute {
    /// The members that are asked.
    pub fn members(&self) -> impl Iterator<Item = &MemberId> {
        self.prefill.iter().map(|prefill| &prefill.at.member).chain([&self.at.member])
    }
}

/// The prefill member of a unit, and how what it has read is brought to the decode member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefillRoute {
    #[serde(flatten)]
    pub at: MemberRoute,
    pub hand_over: HandOver,
}

/// A member as gateways reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRoute {
    /// The host that runs it, as its certificate names it.
    pub host: Name,
    /// `host:port` of that host's ingress.
    pub ingress: String,
    pub member: MemberId,
    /// The path at which its engine says whether it can serve.
    pub health: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rotation {
    In,
    /// No new requests; those in flight finish.
    Out,
}

/// Consecutive records of one gateway's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageBatch {
    /// Names the ledger for ever: a new one is begun when the file is lost.
    pub ledger: String,
    /// The first record's number.
    pub first: u64,
    pub records: Vec<UsageRecord>,
}

/// The tokens of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRecord {
    pub at: Timestamp,
    pub request: String,
    pub customer: Name,
    pub key: Name,
    pub endpoint: Name,
    /// The model that was asked for.
    pub model: String,
    pub unit: UnitId,
    pub release: Name,
    #[serde(flatten)]
    pub tokens: TokenCounts,
    pub outcome: RequestOutcome,
}

/// Tokens by how they are charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenCounts {
    /// Prompt tokens that were computed; cached ones are not among them.
    pub input: u64,
    pub cached_input: u64,
    /// Generated tokens; reasoning ones are among them.
    pub output: u64,
    pub reasoning: u64,
}

impl std::ops::AddAssign for TokenCounts {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cached_input += other.cached_input;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RequestOutcome {
    /// The whole answer was sent.
    Completed,
    /// The client left; what had been generated is counted.
    ClientLeft,
    /// The engine ended in the middle of the answer; what had been generated is counted.
    EngineFailed,
}
