//! All manifests of a revision, typed, cross-checked and indexed. Past this there is nothing left to validate.

mod check;
mod explain;
mod faulty;
mod parse;
mod reading;
mod secrets;
mod settings;
mod suggestions;

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::launch::LaunchTemplate;
use crate::manifest::{
    AccessSpec, AlarmSpec, CustomerSpec, EndpointSpec, EngineSpec, EnvironmentSpec, FleetSpec, HostSpec,
    KeySpec, ParitySuiteSpec, PriceListSpec, ProviderSpec, RecipeSpec, ReleaseSpec, StageSpec, WebhookSpec,
    WeightCacheSpec,
};
use crate::tree::Files;
use crate::wire::GatewayConfig;
use crate::{Digest, Name, StageId};

pub(crate) use parse::Entry;
pub use reading::Reading;

/// A validated configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    pub providers: BTreeMap<Name, ProviderSpec>,
    pub fleets: BTreeMap<Name, FleetSpec>,
    pub hosts: BTreeMap<Name, HostSpec>,
    pub weight_caches: BTreeMap<Name, WeightCacheSpec>,
    pub engines: BTreeMap<Name, EngineSpec>,
    pub recipes: BTreeMap<Name, RecipeSpec>,
    pub releases: BTreeMap<Name, ReleaseSpec>,
    pub environments: BTreeMap<Name, EnvironmentSpec>,
    pub stages: BTreeMap<StageId, StageSpec>,
    pub parity_suites: BTreeMap<Name, ParitySuiteSpec>,
    pub alarms: BTreeMap<Name, AlarmSpec>,
    pub endpoints: BTreeMap<Name, EndpointSpec>,
    pub customers: BTreeMap<Name, CustomerSpec>,
    pub keys: BTreeMap<Name, KeySpec>,
    pub price_lists: BTreeMap<Name, PriceListSpec>,
    pub access: BTreeMap<Name, AccessSpec>,
    pub webhooks: BTreeMap<Name, WebhookSpec>,
    /// What each release means on any host.
    pub rendered: BTreeMap<Name, Rendered>,
}

/// A release's template, with its digest: what a rollout compares, and what its immutability is judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub template: LaunchTemplate,
    pub digest: Digest,
}

impl Catalog {
    /// The catalog of these files, or everything that is wrong with them.
    pub fn from_files(files: &Files) -> Result<Catalog, Diagnostics> {
        Catalog::from_files_after(files, &BTreeMap::new())
    }

    /// The same, where `deployed` holds the digests of releases that have run: those may not read otherwise.
    pub fn from_files_after(
        files: &Files,
        deployed: &BTreeMap<Name, Digest>,
    ) -> Result<Catalog, Diagnostics> {
        Reading::of(files).catalog(deployed)
    }

    /// The hosts that a fleet has.
    pub fn hosts_of<'a>(&'a self, fleet: &'a Name) -> impl Iterator<Item = (&'a Name, &'a HostSpec)> {
        self.hosts.iter().filter(move |(_, host)| host.fleet == *fleet)
    }

    /// The part that gateways serve by.
    pub fn gateway_config(&self) -> GatewayConfig {
        GatewayConfig {
            endpoints: self.endpoints.clone(),
            customers: self.customers.clone(),
            keys: self.keys.clone(),
            routing: self.stages.iter().map(|(id, stage)| (id.clone(), stage.routing.clone())).collect(),
            residency: self
                .stages
                .iter()
                .filter(|(_, stage)| !stage.residency.is_empty())
                .map(|(id, stage)| (id.clone(), stage.residency.clone()))
                .collect(),
        }
    }

    fn render(&self) -> BTreeMap<Name, Rendered> {
        let render = |(name, release): (&Name, &ReleaseSpec)| {
            let (recipe, engine) = (self.recipes.get(&release.recipe)?, self.engines.get(&release.engine)?);
            let template = LaunchTemplate::render(release, recipe, engine);
            let digest = template.digest();
            Some((name.clone(), Rendered { template, digest }))
        };
        self.releases.iter().filter_map(render).collect()
    }
}

/// Reports something at a field of a manifest.
pub(crate) fn report(
    found: &mut Diagnostics,
    entry: &Entry<'_>,
    pointer: &str,
    code: crate::diagnostic::Code,
    message: String,
    hint: Option<String>,
) {
    let place = entry.source.value_place(pointer);
    found.push(Diagnostic {
        file: entry.file.to_owned(),
        line: place.line,
        column: place.column,
        code,
        message,
        hint,
    });
}

#[cfg(test)]
mod tests;
