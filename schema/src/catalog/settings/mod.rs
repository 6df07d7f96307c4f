//! Settings that can't all be followed, within a manifest and between manifests.
//!
//! Where something else is missing or faulty, that is what is said, and nothing is judged by it here.

mod capacity;
mod commerce;
mod environment;
mod fit;
mod quality;
mod rollout;
mod software;
mod stage;
mod topology;

use std::collections::BTreeMap;

use super::faulty::Faulty;
use super::secrets::secrets;
use super::{Catalog, Entry, report};
use crate::diagnostic::{Code, Diagnostics};
use crate::manifest::AnyManifest;
use crate::{Digest, Name};

/// Settings that can't all be followed.
pub(super) fn settings(entries: &[Entry<'_>], catalog: &Catalog, faulty: &Faulty, found: &mut Diagnostics) {
    let hosts = capacity::Hosts::of(catalog);
    let offers = commerce::Offers::of(catalog);
    let mut taken = Taken::default();
    for entry in entries {
        let report = &mut Report { entry, found };
        match entry.manifest {
            AnyManifest::Provider(m) => capacity::provider(&m.spec, report),
            AnyManifest::Fleet(m) => {
                capacity::fleet(&m.metadata.name, &m.spec, (catalog, &hosts, faulty), report);
            }
            AnyManifest::Host(m) => capacity::host(&m.spec, (catalog, &hosts), report),
            AnyManifest::WeightCache(m) => capacity::weight_cache(&m.spec, report),
            AnyManifest::Engine(m) => software::engine(&m.spec, report),
            AnyManifest::Recipe(m) => software::recipe(&m.spec, report),
            AnyManifest::Release(m) => software::release(&m.metadata.name, &m.spec, catalog, report),
            AnyManifest::Environment(m) => environment::environment(&m.metadata.name, &m.spec, report),
            AnyManifest::Stage(m) => {
                stage::stage(m, catalog, report);
                rollout::rollout(&m.spec, catalog, report);
                fit::units(&m.spec, catalog, report);
            }
            AnyManifest::ParitySuite(m) => quality::suite(&m.spec, catalog, report),
            AnyManifest::Alarm(m) => quality::alarm(&m.spec, report),
            AnyManifest::Endpoint(m) => {
                stage::endpoint(&m.metadata.name, &m.spec, &mut taken.models, report);
            }
            AnyManifest::Customer(m) => commerce::customer(&m.spec, (catalog, &offers, faulty), report),
            AnyManifest::Key(m) => {
                taken.hash("/spec/hash", m.spec.hash, "Key", &m.metadata.name, report);
                commerce::key(&m.spec, catalog, report);
            }
            AnyManifest::PriceList(m) => commerce::price_list(&m.spec, report),
            AnyManifest::Access(m) => {
                for (i, token) in m.spec.tokens.iter().enumerate() {
                    let pointer = format!("/spec/tokens/{i}/hash");
                    taken.hash(&pointer, token.hash, "Access", &m.metadata.name, report);
                }
            }
            AnyManifest::Webhook(m) => listed_once("/spec/events", &m.spec.events, "event", report),
        }
        secrets(entry, found);
    }
}

/// Where findings about one manifest go.
struct Report<'a> {
    entry: &'a Entry<'a>,
    found: &'a mut Diagnostics,
}

impl Report<'_> {
    /// Two settings that can't both be followed: where, what, and perhaps a way out.
    fn contradict(&mut self, pointer: &str, message: String, hint: Option<&str>) {
        self.say(Code::Contradiction, pointer, message, hint);
    }

    fn say(&mut self, code: Code, pointer: &str, message: String, hint: Option<&str>) {
        report(self.found, self.entry, pointer, code, message, hint.map(str::to_owned));
    }
}

/// What may be used once in all manifests.
#[derive(Default)]
struct Taken {
    /// Hashes of keys and tokens, with whose they are.
    hashes: BTreeMap<Digest, String>,
    /// Models that endpoints offer.
    models: BTreeMap<String, Name>,
}

impl Taken {
    fn hash(&mut self, pointer: &str, hash: Digest, kind: &str, name: &Name, report: &mut Report<'_>) {
        if let Some(other) = self.hashes.insert(hash, format!("{kind} `{name}`")) {
            let message = format!("{other} has the same hash");
            report.contradict(pointer, message, Some("make one for each"));
        }
    }
}

/// Something that serialises to a word, listed twice.
fn listed_once<T: serde::Serialize>(pointer: &str, items: &[T], what: &str, report: &mut Report<'_>) {
    let words = items.iter().map(|item| serde_json::to_value(item).unwrap_or_default());
    let words: Vec<String> = words.map(|word| word.as_str().unwrap_or_default().to_owned()).collect();
    let mut seen = std::collections::BTreeSet::new();
    for (i, word) in words.iter().enumerate() {
        if !seen.insert(word) {
            report.contradict(&format!("{pointer}/{i}"), format!("{what} `{word}` is listed twice"), None);
        }
    }
}
