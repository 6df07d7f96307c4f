//! Each route of the API, once.

use denv_schema::StageId;
use denv_schema::api::{ApprovalRequest, RolloutRequest, ScaleRequest, TokenRequest};
use denv_schema::change::ChangeRequest;
use denv_schema::manifest::Kind;
use jiff::Timestamp;

use super::{Answer, Client, ClientError};

#[derive(Clone, Debug, Default)]
pub(crate) struct EventsQuery {
    /// Only those with a larger id.
    pub after: Option<i64>,
    pub subject: Option<String>,
    /// At most so many, the newest.
    pub limit: Option<u32>,
}

impl Client {
    pub(crate) async fn sources(&self) -> Result<Answer, ClientError> {
        self.get(&["sources"], &[]).await
    }

    /// After the source has looked at its remote again.
    pub(crate) async fn refresh(&self, source: &str) -> Result<Answer, ClientError> {
        self.post(&["sources", source, "refresh"], &serde_json::json!({})).await
    }

    /// Has manifests changed in the source's repository.
    pub(crate) async fn change(&self, source: &str, change: &ChangeRequest) -> Result<Answer, ClientError> {
        self.post(&["sources", source, "changes"], change).await
    }

    /// Everything the control plane plans by.
    pub(crate) async fn snapshot(&self) -> Result<Answer, ClientError> {
        self.get(&["snapshot"], &[]).await
    }

    /// After the revision that waited is in force.
    pub(crate) async fn approve(
        &self,
        source: &str,
        request: &ApprovalRequest,
    ) -> Result<Answer, ClientError> {
        self.post(&["sources", source, "approve"], request).await
    }

    pub(crate) async fn stages(&self) -> Result<Answer, ClientError> {
        self.get(&["stages"], &[]).await
    }

    pub(crate) async fn stage(&self, stage: &StageId) -> Result<Answer, ClientError> {
        self.get(&["stages", stage.environment.as_str(), stage.stage.as_str()], &[]).await
    }

    /// The last run of the stage's parity suite that is of this deployment and time.
    pub(crate) async fn parity(
        &self,
        stage: &StageId,
        deployment: Option<u64>,
        when: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let path = ["stages", stage.environment.as_str(), stage.stage.as_str(), "parity"];
        let deployment = deployment.map(|number| ("deployment", number.to_string()));
        let when = when.map(|when| ("when", when.to_owned()));
        self.get(&path, &deployment.into_iter().chain(when).collect::<Vec<_>>()).await
    }

    pub(crate) async fn deployments(
        &self,
        stage: Option<&StageId>,
        limit: Option<u32>,
    ) -> Result<Answer, ClientError> {
        let mut query: Vec<_> = of_stage(stage).collect();
        query.extend(limit.map(|limit| ("limit", limit.to_string())));
        self.get(&["deployments"], &query).await
    }

    pub(crate) async fn units(&self, stage: Option<&StageId>) -> Result<Answer, ClientError> {
        self.get(&["units"], &of_stage(stage).collect::<Vec<_>>()).await
    }

    pub(crate) async fn hosts(&self) -> Result<Answer, ClientError> {
        self.get(&["hosts"], &[]).await
    }

    pub(crate) async fn gateways(&self) -> Result<Answer, ClientError> {
        self.get(&["gateways"], &[]).await
    }

    pub(crate) async fn manifests(&self, kind: Kind) -> Result<Answer, ClientError> {
        self.get(&["manifests", &kind.plural()], &[]).await
    }

    pub(crate) async fn events(&self, query: &EventsQuery) -> Result<Answer, ClientError> {
        let after = query.after.map(|after| ("after", after.to_string()));
        let subject = query.subject.clone().map(|subject| ("subject", subject));
        let limit = query.limit.map(|limit| ("limit", limit.to_string()));
        self.get(&["events"], &after.into_iter().chain(subject).chain(limit).collect::<Vec<_>>()).await
    }

    pub(crate) async fn usage(
        &self,
        since: Option<Timestamp>,
        customer: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let since = since.map(|since| ("since", since.to_string()));
        let customer = customer.map(|customer| ("customer", customer.to_owned()));
        self.get(&["usage"], &since.into_iter().chain(customer).collect::<Vec<_>>()).await
    }

    pub(crate) async fn create_token(&self, request: &TokenRequest) -> Result<Answer, ClientError> {
        self.post(&["tokens"], request).await
    }

    pub(crate) async fn rollout(
        &self,
        stage: &StageId,
        request: &RolloutRequest,
    ) -> Result<Answer, ClientError> {
        let path = ["stages", stage.environment.as_str(), stage.stage.as_str(), "rollout"];
        self.post(&path, request).await
    }

    pub(crate) async fn placement(&self, stage: &StageId) -> Result<Answer, ClientError> {
        self.get(&["stages", stage.environment.as_str(), stage.stage.as_str(), "placement"], &[]).await
    }

    pub(crate) async fn scale(&self, stage: &StageId, request: &ScaleRequest) -> Result<Answer, ClientError> {
        let path = ["stages", stage.environment.as_str(), stage.stage.as_str(), "scale"];
        self.post(&path, request).await
    }
}

fn of_stage(stage: Option<&StageId>) -> impl Iterator<Item = (&'static str, String)> {
    stage.map(|stage| ("stage", stage.to_string())).into_iter()
}
