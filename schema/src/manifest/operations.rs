use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::secret::SecretReference;
use crate::{Digest, InvalidName, Name, StageId};

/// Who may do what through the API: a person, or a machine that acts for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessSpec {
    /// A name for people, the author's in commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub display_name: Option<String>,
    /// The author's address in commits.
    #[schemars(
        regex(pattern = r"^[^\s@<>]+@[^\s@<>]+$"),
        extend("patternErrorMessage" = "an address is written `name@example.com`")
    )]
    pub email: String,
    /// The tokens that stand for them, as hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<AccessToken>,
    /// What they may do, and where. The widest counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
}

/// A token, as the hash of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessToken {
    /// The SHA-256 of the whole token. Tokens are 256 random bits, so a slow hash would add nothing.
    pub hash: Digest,
    /// From when on the token is refused, for example `2027-01-01T00:00:00Z`. Without it: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("patternErrorMessage" = "a time is written `2027-01-01T00:00:00Z`"))]
    pub expires: Option<Timestamp>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A role in some stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// What may be done.
    pub role: Role,
    /// Where: `chat/prod`, all stages of an environment (`chat/*`), or everything (`"*"`, in quotes).
    #[schemars(length(min = 1))]
    pub stages: Vec<StagePattern>,
}

/// What may be done. Each role may also do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See.
    Viewer,
    /// Steer what is under way: pause, resume, abort, retry and approve rollouts; cordon hosts.
    Operator,
    /// Change what is desired: apply, delete and promote.
    Publisher,
    /// Everything, also capacity, customers, prices and access.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Publisher => "publisher",
            Role::Admin => "admin",
        })
    }
}

impl AccessSpec {
    /// Whether they may do in `stage` what `needed` may. Without a stage, something is meant that belongs to none
    /// (fleets, customers, prices): only a grant for everything allows it.
    pub fn allows(&self, needed: Role, stage: Option<&StageId>) -> bool {
        let covers = |pattern: &StagePattern| {
            stage.map_or(*pattern == StagePattern::All, |stage| pattern.covers(stage))
        };
        self.grants.iter().any(|grant| grant.role >= needed && grant.stages.iter().any(covers))
    }

    /// Whether a token with this hash stands for them at this time.
    pub fn has_token(&self, hash: &Digest, now: Timestamp) -> bool {
        let is_valid = |token: &AccessToken| token.expires.is_none_or(|expires| now < expires);
        self.tokens.iter().any(|token| token.hash == *hash && is_valid(token))
    }
}

/// Some stages: `chat/prod`, `chat/*` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StagePattern {
    /// All there are, and what belongs to no stage.
    All,
    /// All stages of an environment.
    Environment(Name),
    /// One.
    Stage(StageId),
}

impl StagePattern {
    /// Whether the stage is one of these.
    pub fn covers(&self, stage: &StageId) -> bool {
        match self {
            StagePattern::All => true,
            StagePattern::Environment(environment) => stage.environment == *environment,
            StagePattern::Stage(of) => of == stage,
        }
    }
}

impl FromStr for StagePattern {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.strip_suffix("/*") {
            _ if text == "*" => Ok(StagePattern::All),
            Some(environment) => environment.parse().map(StagePattern::Environment),
            None => text.parse().map(StagePattern::Stage),
        }
    }
}

impl TryFrom<String> for StagePattern {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<StagePattern> for String {
    fn from(pattern: StagePattern) -> String {
        pattern.to_string()
    }
}

impl fmt::Display for StagePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StagePattern::All => f.write_str("*"),
            StagePattern::Environment(environment) => write!(f, "{environment}/*"),
            StagePattern::Stage(stage) => write!(f, "{stage}"),
        }
    }
}

impl JsonSchema for StagePattern {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "StagePattern".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?))$",
            "patternErrorMessage": "stages are written `environment/stage`, `environment/*` or `\"*\"`"
        })
    }
}

/// Who is told of what happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookSpec {
    /// Where events are posted to, as JSON: `https://` and a host, and perhaps a path.
    #[schemars(
        regex(pattern = r"^https://[^\s/@]+(/[^\s@]*)?$"),
        extend("patternErrorMessage" = "an address is `https://` and a host, without spaces and without a user or password")
    )]
    pub url: String,
    /// What is told.
    #[schemars(length(min = 1))]
    pub events: Vec<WebhookEvent>,
    /// Of which stages. Empty: of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StagePattern>,
    /// What the body is signed with (HMAC-SHA256, in the header `Denv-Signature`), so that the receiver knows the sender.
    pub signing_secret: SecretReference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookEvent {
    /// A deployment began.
    DeploymentStarted,
    /// A deployment succeeded.
    DeploymentSucceeded,
    /// A deployment was rolled back.
    DeploymentRolledBack,
    /// A deployment is paused.
    DeploymentPaused,
    /// A deployment waits for a person's approval.
    ApprovalNeeded,
    /// An alarm fired.
    AlarmFired,
    /// A parity suite failed.
    ParityFailed,
    /// A unit is unhealthy or has failed.
    UnitFailed,
    /// A host fell silent, or was reclaimed.
    HostLost,
    /// A revision was refused.
    RevisionRefused,
    /// A customer has used up a limit or the budget.
    LimitReached,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(grants: &[(Role, &str)]) -> AccessSpec {
        let grant =
            |(role, stage): &(Role, &str)| Grant { role: *role, stages: vec![stage.parse().unwrap()] };
        AccessSpec {
            display_name: None,
            email: "a@example.com".to_owned(),
            tokens: Vec::new(),
            grants: grants.iter().map(grant).collect(),
        }
    }

    #[test]
    fn a_grant_allows_its_role_and_those_below_where_it_reaches() {
        let stage = |text: &str| text.parse::<StageId>().unwrap();
        let (prod, test, other) = (stage("chat/prod"), stage("chat/test"), stage("code/prod"));
        let ada = access(&[(Role::Viewer, "*"), (Role::Publisher, "chat/test"), (Role::Operator, "chat/*")]);
        for (needed, at, is_allowed) in [
            (Role::Viewer, Some(&other), true),
            (Role::Viewer, None, true),
            (Role::Operator, Some(&prod), true),
            (Role::Operator, Some(&other), false),
            (Role::Publisher, Some(&prod), false),
            (Role::Publisher, Some(&test), true),
            (Role::Admin, Some(&test), false),
            // What belongs to no stage is not in an environment's reach.
            (Role::Operator, None, false),
        ] {
            assert_eq!(ada.allows(needed, at), is_allowed, "{needed} {at:?}");
        }
        assert!(access(&[(Role::Admin, "*")]).allows(Role::Publisher, None));
        assert!(!access(&[(Role::Admin, "chat/*")]).allows(Role::Viewer, Some(&other)));
        assert!(!access(&[]).allows(Role::Viewer, None));
    }

    #[test]
    fn a_token_stands_for_its_owner_until_it_expires() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (kept, expiring) = (Digest::of_bytes(b"kept"), Digest::of_bytes(b"expiring"));
        let mut ada = access(&[]);
        let token = |hash, expires| AccessToken { hash, expires, note: None };
        ada.tokens = vec![token(kept, None), token(expiring, Some(at(100)))];
        assert!(ada.has_token(&kept, at(1_000)));
        assert!(ada.has_token(&expiring, at(99)));
        assert!(!ada.has_token(&expiring, at(100)));
        assert!(!ada.has_token(&Digest::of_bytes(b"other"), at(1)));
    }

    #[test]
    fn patterns_are_read_and_written_alike() {
        for text in ["*", "chat/*", "chat/prod"] {
            assert_eq!(text.parse::<StagePattern>().unwrap().to_string(), text);
        }
        for bad in ["", "chat", "*/prod", "chat/", "chat/**", "a/b/*"] {
            assert!(bad.parse::<StagePattern>().is_err(), "{bad}");
        }
    }
}
