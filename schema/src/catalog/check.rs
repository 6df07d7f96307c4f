//! What no single manifest can say: names that are taken, references to nothing, releases that have run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt::Display;

use super::faulty::Faulty;
use super::suggestions::Suggestions;
use super::{Catalog, Entry, report};
use crate::diagnostic::{Code, Diagnostics};
use crate::manifest::{AnyManifest, Kind, Manifest, StagePattern, StageSpec};
use crate::{Digest, Name, StageId};

/// Puts every manifest under its name; a name that is taken is reported with the place that took it.
pub(super) fn index(entries: &[Entry<'_>], found: &mut Diagnostics) -> Catalog {
    let mut catalog = Catalog::default();
    let mut taken: BTreeMap<(Kind, Option<&Name>, &Name), &Entry<'_>> = BTreeMap::new();
    for entry in entries {
        let name = &entry.manifest.metadata().name;
        let within = match entry.manifest {
            AnyManifest::Stage(stage) => Some(&stage.spec.environment),
            _ => None,
        };
        match taken.entry((entry.manifest.kind(), within, name)) {
            Slot::Vacant(slot) => {
                slot.insert(entry);
            }
            Slot::Occupied(slot) => {
                let kind = entry.manifest.kind();
                let key = within.map_or_else(|| name.to_string(), |within| format!("{within}/{name}"));
                let first = slot.get();
                let line = first.source.value_place("/metadata/name").line;
                let message = format!("{kind} `{key}` exists already, at {}:{line}", first.file);
                let hint = Some("give one of them another name, or remove it".to_owned());
                report(found, entry, "/metadata/name", Code::DuplicateName, message, hint);
                continue;
            }
        }
        let name = name.clone();
        match entry.manifest {
            AnyManifest::Provider(m) => drop(catalog.providers.insert(name, m.spec.clone())),
            AnyManifest::Fleet(m) => drop(catalog.fleets.insert(name, m.spec.clone())),
            AnyManifest::Host(m) => drop(catalog.hosts.insert(name, m.spec.clone())),
            AnyManifest::WeightCache(m) => drop(catalog.weight_caches.insert(name, m.spec.clone())),
            AnyManifest::Engine(m) => drop(catalog.engines.insert(name, m.spec.clone())),
            AnyManifest::Recipe(m) => drop(catalog.recipes.insert(name, m.spec.clone())),
            AnyManifest::Release(m) => drop(catalog.releases.insert(name, m.spec.clone())),
            AnyManifest::Environment(m) => drop(catalog.environments.insert(name, m.spec.clone())),
            AnyManifest::Stage(m) => drop(catalog.stages.insert(stage_id(m), m.spec.clone())),
            AnyManifest::ParitySuite(m) => drop(catalog.parity_suites.insert(name, m.spec.clone())),
            AnyManifest::Alarm(m) => drop(catalog.alarms.insert(name, m.spec.clone())),
            AnyManifest::Endpoint(m) => drop(catalog.endpoints.insert(name, m.spec.clone())),
            AnyManifest::Customer(m) => drop(catalog.customers.insert(name, m.spec.clone())),
            AnyManifest::Key(m) => drop(catalog.keys.insert(name, m.spec.clone())),
            AnyManifest::PriceList(m) => drop(catalog.price_lists.insert(name, m.spec.clone())),
            AnyManifest::Access(m) => drop(catalog.access.insert(name, m.spec.clone())),
            AnyManifest::Webhook(m) => drop(catalog.webhooks.insert(name, m.spec.clone())),
        }
    }
    catalog
}

fn stage_id(manifest: &Manifest<StageSpec>) -> StageId {
    StageId { environment: manifest.spec.environment.clone(), stage: manifest.metadata.name.clone() }
}

/// Every name that a manifest mentions must be one that exists.
pub(super) fn references(
    entries: &[Entry<'_>],
    catalog: &Catalog,
    mut faulty: Faulty,
    found: &mut Diagnostics,
) {
    for id in catalog.stages.keys().filter(|id| !catalog.environments.contains_key(&id.environment)) {
        faulty.add_stray_stage(&id.stage);
    }
    let mut suggestions = Suggestions::default();
    for entry in entries {
        let mut refer = Referrer { entry, faulty: &faulty, suggestions: &mut suggestions, found };
        match entry.manifest {
            AnyManifest::Provider(_)
            | AnyManifest::WeightCache(_)
            | AnyManifest::Engine(_)
            | AnyManifest::Alarm(_)
            | AnyManifest::PriceList(_) => {}
            AnyManifest::Fleet(m) => {
                refer.to("/spec/provider", Kind::Provider, &m.spec.provider, &catalog.providers);
                if let Some(cache) = &m.spec.weight_cache {
                    refer.to("/spec/weightCache", Kind::WeightCache, cache, &catalog.weight_caches);
                }
            }
            AnyManifest::Host(m) => refer.to("/spec/fleet", Kind::Fleet, &m.spec.fleet, &catalog.fleets),
            AnyManifest::Recipe(m) => {
                refer.to("/spec/engine", Kind::Engine, &m.spec.engine, &catalog.engines)
            }
            AnyManifest::Release(m) => {
                refer.to("/spec/engine", Kind::Engine, &m.spec.engine, &catalog.engines);
                refer.to("/spec/recipe", Kind::Recipe, &m.spec.recipe, &catalog.recipes);
            }
            AnyManifest::Environment(m) => {
                let environment = &m.metadata.name;
                // A promotion's stages are among these, or it is a contradiction.
                for (i, stage) in m.spec.stages.iter().enumerate() {
                    let id = StageId { environment: environment.clone(), stage: stage.clone() };
                    refer.to(format_args!("/spec/stages/{i}"), Kind::Stage, &id, &catalog.stages);
                }
            }
            AnyManifest::Stage(m) => {
                refer.to("/spec/environment", Kind::Environment, &m.spec.environment, &catalog.environments);
                refer.to("/spec/release", Kind::Release, &m.spec.release, &catalog.releases);
                for (i, fleet) in m.spec.fleets.iter().enumerate() {
                    refer.to(
                        format_args!("/spec/fleets/{i}/name"),
                        Kind::Fleet,
                        &fleet.name,
                        &catalog.fleets,
                    );
                }
                if let Some(parity) = &m.spec.parity {
                    refer.to("/spec/parity/suite", Kind::ParitySuite, &parity.suite, &catalog.parity_suites);
                }
                for (i, alarm) in m.spec.alarms.iter().enumerate() {
                    refer.to(format_args!("/spec/alarms/{i}"), Kind::Alarm, alarm, &catalog.alarms);
                }
            }
            AnyManifest::ParitySuite(m) => {
                let reference = m.spec.reference.as_ref();
                if let Some(endpoint) = reference.and_then(|reference| reference.endpoint.as_ref()) {
                    refer.to("/spec/reference/endpoint", Kind::Endpoint, endpoint, &catalog.endpoints);
                }
            }
            AnyManifest::Endpoint(m) => {
                for (i, model) in m.spec.models.iter().enumerate() {
                    refer.to(
                        format_args!("/spec/models/{i}/stage"),
                        Kind::Stage,
                        &model.stage,
                        &catalog.stages,
                    );
                }
            }
            AnyManifest::Customer(m) => {
                for (i, endpoint) in m.spec.endpoints.iter().enumerate() {
                    refer.to(
                        format_args!("/spec/endpoints/{i}"),
                        Kind::Endpoint,
                        endpoint,
                        &catalog.endpoints,
                    );
                }
                if let Some(list) = &m.spec.price_list {
                    refer.to("/spec/priceList", Kind::PriceList, list, &catalog.price_lists);
                }
            }
            AnyManifest::Access(m) => {
                for (i, grant) in m.spec.grants.iter().enumerate() {
                    refer.stages(format_args!("/spec/grants/{i}/stages"), &grant.stages, catalog);
                }
            }
            AnyManifest::Webhook(m) => refer.stages("/spec/stages", &m.spec.stages, catalog),
            AnyManifest::Key(m) => {
                refer.to("/spec/customer", Kind::Customer, &m.spec.customer, &catalog.customers)
            }
        }
    }
}

struct Referrer<'a> {
    entry: &'a Entry<'a>,
    faulty: &'a Faulty,
    suggestions: &'a mut Suggestions,
    found: &'a mut Diagnostics,
}

impl Referrer<'_> {
    fn stages(&mut self, pointer: impl Display, patterns: &[StagePattern], catalog: &Catalog) {
        for (i, pattern) in patterns.iter().enumerate() {
            let pointer = format_args!("{pointer}/{i}");
            match pattern {
                StagePattern::All => {}
                StagePattern::Environment(name) => {
                    self.to(pointer, Kind::Environment, name, &catalog.environments);
                }
                StagePattern::Stage(id) => self.to(pointer, Kind::Stage, id, &catalog.stages),
            }
        }
    }

    /// The pointer is written out only where it is shown: nearly all references lead somewhere.
    fn to<K: Ord + ToString, V>(
        &mut self,
        pointer: impl Display,
        kind: Kind,
        name: &K,
        known: &BTreeMap<K, V>,
    ) {
        if known.contains_key(name) {
            return;
        }
        let name = name.to_string();
        if self.faulty.may_be(kind, &name) {
            return;
        }
        let hint = Some(self.suggestions.hint(kind, &name, known.keys()));
        report(
            self.found,
            self.entry,
            &pointer.to_string(),
            Code::UnknownReference,
            format!("there is no {kind} `{name}`"),
            hint,
        );
    }
}

/// A release that has run must mean what it meant.
pub(super) fn deployed(
    entries: &[Entry<'_>],
    catalog: &Catalog,
    deployed: &BTreeMap<Name, Digest>,
    found: &mut Diagnostics,
) {
    for entry in entries {
        let AnyManifest::Release(manifest) = entry.manifest else { continue };
        let name = &manifest.metadata.name;
        let (Some(before), Some(now)) = (deployed.get(name), catalog.rendered.get(name)) else { continue };
        if *before != now.digest {
            let message = format!("release `{name}` was deployed and would mean something else now");
            let hint = "leave it, its recipe and its engine as they were; make a new Release under another name and \
                        point the stage at it"
                .to_owned();
            report(found, entry, "/metadata/name", Code::ChangedRelease, message, Some(hint));
        }
    }
}
