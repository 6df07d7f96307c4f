//! What people and tools ask the reconciler's API.

use std::time::Duration;

use anyhow::{Context as _, bail};
use denv_schema::api::{
    EventView, HostView, JoinRole, List, RolloutAction, RolloutRequest, SourceView, StageView, TokenRequest,
    TokenResponse, UsageView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    pub server: String,
    token: String,
}

impl Client {
    pub fn new(server: &str, token: &str) -> anyhow::Result<Self> {
        denv_link::install_tls_provider();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build()?;
        Ok(Client { http, server: server.to_owned(), token: token.trim().to_owned() })
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request = self.http.get(format!("{}{path}", self.server)).bearer_auth(&self.token);
        read(request).await.with_context(|| format!("GET {path}"))
    }

    pub async fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> anyhow::Result<T> {
        let request = self.http.post(format!("{}{path}", self.server)).bearer_auth(&self.token).json(body);
        read(request).await.with_context(|| format!("POST {path}"))
    }

    /// Has the source looked at now, as a hook would.
    pub async fn refresh(&self) -> anyhow::Result<SourceView> {
        self.post("/v1/sources/main/refresh", &()).await
    }

    pub async fn source(&self) -> anyhow::Result<SourceView> {
        let list: List<SourceView> = self.get("/v1/sources").await?;
        list.items.into_iter().next().context("there is a source")
    }

    pub async fn stage(&self, stage: &str) -> anyhow::Result<StageView> {
        self.get(&format!("/v1/stages/{stage}")).await
    }

    pub async fn hosts(&self) -> anyhow::Result<Vec<HostView>> {
        Ok(self.get::<List<HostView>>("/v1/hosts").await?.items)
    }

    pub async fn events(&self, after: i64) -> anyhow::Result<Vec<EventView>> {
        Ok(self.get::<List<EventView>>(&format!("/v1/events?after={after}&limit=1000")).await?.items)
    }

    pub async fn usage(&self) -> anyhow::Result<Vec<UsageView>> {
        Ok(self.get::<List<UsageView>>("/v1/usage").await?.items)
    }

    pub async fn token(&self, role: JoinRole, name: &str) -> anyhow::Result<String> {
        let request = TokenRequest { role, name: name.parse()? };
        Ok(self.post::<_, TokenResponse>("/v1/tokens", &request).await?.token)
    }

    pub async fn rollout(&self, stage: &str, action: RolloutAction) -> anyhow::Result<StageView> {
        self.post(&format!("/v1/stages/{stage}/rollout"), &RolloutRequest { action, release: None }).await
    }
}

async fn read<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> anyhow::Result<T> {
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    if !status.is_success() {
        bail!("{status}: {text}");
    }
    serde_json::from_str(&text).with_context(|| format!("an unexpected answer: {text}"))
}
