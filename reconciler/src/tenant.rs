//! All that runs for one tenant: its sources, its orchestrator, and what its hosts, gateways and people reach. Tenants
//! share the process, the store's file and the authority, and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use denv_link::Authority;
use denv_reconciler::api::Api;
use denv_reconciler::gates::Gates;
use denv_reconciler::link::{Engines, Link, Queues, Serving};
use denv_reconciler::measurement::Measurement;
use denv_reconciler::observation::Observation;
use denv_reconciler::orchestrator::{Orchestrator, State};
use denv_reconciler::promoter::Promoter;
use denv_reconciler::source::{Shelf, Source, SourceConfig};
use denv_reconciler::statuses::Statuses;
use denv_reconciler::store::{Event, Store};
use denv_schema::api::Level;
use denv_schema::secret::SecretReference;
use denv_schema::{Digest, Name};
use futures::future::{join_all, select_all};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

/// What tenants have in common.
pub(crate) struct Shared {
    pub(crate) authority: Arc<Authority>,
    pub(crate) admin_token: Digest,
    pub(crate) certificate_lifetime: Duration,
    /// What manifests may refer to of the control plane's secrets.
    pub(crate) manifest_secrets: Arc<BTreeSet<SecretReference>>,
    /// Sources that are no more, and may take what they had in force with them.
    pub(crate) forget: BTreeSet<String>,
}

/// A source that is set no more would take all it has in force with it, unseen: a person is to say that this is meant.
async fn forget(
    tenant: &Name,
    configs: &[SourceConfig],
    store: &Store,
    forget: &BTreeSet<String>,
) -> anyhow::Result<()> {
    for source in store.sources_in_force().await? {
        if configs.iter().any(|config| config.name == source) {
            continue;
        }
        if !forget.contains(&source) {
            bail!(
                "source `{source}` of tenant `{tenant}` has a revision in force and is set no more, so all that only it \
                 declares would end; set it again, or say that this is meant with `forget: [{source}]` in the file of \
                 --sources, or --source-forget {source}"
            );
        }
        let message = "forgotten, as the settings say; what only it declares ends".to_owned();
        let subject = format!("source {source}");
        let event = Event { at: Timestamp::now(), subject, level: Level::Warning, message };
        store.forget_source(&source, &event).await?;
    }
    Ok(())
}

pub(crate) struct Tenant {
    pub(crate) name: Name,
    pub(crate) link: Arc<Link>,
    pub(crate) api: Arc<Api>,
    sources: Vec<Source>,
    statuses: Vec<Statuses>,
    promoter: Promoter,
    gates: Gates,
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
        forget(&name, &configs, &store, &shared.forget).await?;
        let term = store.lead(Timestamp::now()).await?;
        let observation = Arc::new(Observation::load(&store, Timestamp::now()).await?);
        let measurement = Arc::new(Measurement::new(Timestamp::now()));
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
        let (queues, engines) = (Arc::new(Queues::default()), Arc::new(Engines::default()));
        store.asked_hosts().await?.iter().for_each(|host| queues.wake(host));
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
        let link = Link {
            store: store.clone(),
            observation: Arc::clone(&observation),
            measurement: Arc::clone(&measurement),
            authority: Arc::clone(&shared.authority),
            tenant: name.clone(),
            term,
            lifetime: shared.certificate_lifetime,
            serving: servings,
            answers: answer,
            queues,
            engines: Arc::clone(&engines),
        };
        let statuses =
            handles.iter().filter_map(|source| Statuses::of(source, states.clone(), catalogs.clone()));
        let statuses = statuses.collect();
        let promoter = Promoter { store: store.clone(), state: states.clone(), sources: handles.clone() };
        let gates = Gates {
            store: store.clone(),
            state: states.clone(),
            observation: Arc::clone(&observation),
            measurement: Arc::clone(&measurement),
            engines: Arc::clone(&engines),
            secrets: Arc::clone(&shared.manifest_secrets),
        };
        let api = Api {
            store: store.clone(),
            state: states,
            observation: Arc::clone(&observation),
            sources: handles,
            catalog: catalogs,
            asks: ask,
            authority: Arc::clone(&shared.authority),
            admin_token: shared.admin_token,
        };
        tracing::info!(tenant = %name, sources = sources.len(), term, "leading");
        let (link, api) = (Arc::new(link), Arc::new(api));
        Ok(Tenant { name, link, api, sources, statuses, promoter, gates, orchestrator, observation, store })
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
            () = self.promoter.run() => bail!("the promoter ended"),
            () = self.gates.run() => bail!("the gates ended"),
            _ = select_all(sources) => bail!("a source ended"),
            led = self.orchestrator.run() => led.context("the orchestrator ended"),
            () = self.observation.keep_saved(&self.store) => bail!("saving ended"),
        }
    }
}
