//! All that runs for one tenant: its sources, its orchestrator, and what its hosts, gateways and people reach. Tenants
//! share the process, the store's file and the authority, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use denv_link::Authority;
use denv_reconciler::api::Api;
use denv_reconciler::link::{Link, Queues, Serving};
use denv_reconciler::observation::Observation;
use denv_reconciler::orchestrator::{Orchestrator, State};
use denv_reconciler::source::{Shelf, Source, SourceConfig};
use denv_reconciler::statuses::Statuses;
use denv_reconciler::store::Store;
use denv_schema::{Digest, Name};
use futures::future::{join_all, select_all};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

/// What tenants have in common.
pub(crate) struct Shared {
    pub(crate) authority: Arc<Authority>,
    pub(crate) admin_token: Digest,
    pub(crate) certificate_lifetime: Duration,
}

pub(crate) struct Tenant {
    pub(crate) name: Name,
    pub(crate) link: Arc<Link>,
    pub(crate) api: Arc<Api>,
    sources: Vec<Source>,
    statuses: Vec<Statuses>,
    orchestrator: Orchestrator,
    observation: Arc<Observation>,
    store: Store,
}

impl Tenant {
    /// Takes the lead for the tenant, and wires what is to run for it.
    pub(crate) async fn new(
        name: Name,
        configs: Vec<SourceConfig>,
        store: Store,
        shared: &Shared,
    ) -> anyhow::Result<Self> {
        let term = store.lead().await?;
        let observation = Arc::new(Observation::load(&store, Timestamp::now()).await?);
        let (shelf, catalogs) = Shelf::new();
        let (mut sources, mut handles) = (Vec::new(), Vec::new());
        for config in configs {
            let (source, handle) = Source::new(config, store.clone(), &shelf).await?;
            sources.push(source);
            handles.push(handle);
        }
        let (state, states) = watch::channel(Arc::new(State::default()));
        let (serving, servings) = watch::channel(Arc::new(Serving::default()));
        let (answer, answers) = mpsc::channel(256);
        let (ask, asks) = mpsc::channel(16);
        let queues = Arc::new(Queues::default());
        let orchestrator = Orchestrator {
            records: store.records().await?,
            store: store.clone(),
            term,
            catalog: catalogs.clone(),
            observation: Arc::clone(&observation),
            answers,
            asks,
            queues: Arc::clone(&queues),
            state,
            serving,
            doubtful: false,
        };
        let link = Link::new(
            store.clone(),
            Arc::clone(&observation),
            Arc::clone(&shared.authority),
            name.clone(),
            term,
            shared.certificate_lifetime,
            servings,
            answer,
            queues,
        );
        let statuses =
            handles.iter().filter_map(|source| Statuses::of(source, states.clone(), catalogs.clone()));
        let statuses = statuses.collect();
        let api = Api {
            store: store.clone(),
            state: states,
            sources: handles,
            catalog: catalogs,
            asks: ask,
            authority: Arc::clone(&shared.authority),
            admin_token: shared.admin_token,
        };
        tracing::info!(tenant = %name, sources = sources.len(), term, "leading");
        let (link, api) = (Arc::new(link), Arc::new(api));
        Ok(Tenant { name, link, api, sources, statuses, orchestrator, observation, store })
    }

    /// Runs until a part of it ends, which none should.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let sources = self.sources.into_iter().map(|source| Box::pin(source.run()));
        // They end when their source does, and are never what the process waits for.
        let statuses = async {
            join_all(self.statuses.into_iter().map(Statuses::run)).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = statuses => bail!("the statuses ended"),
            _ = select_all(sources) => bail!("a source ended"),
            led = self.orchestrator.run() => led.context("the orchestrator ended"),
            () = self.observation.keep_saved(&self.store) => bail!("saving ended"),
        }
    }
}
