//! What can be asked for, by the words people use for it.

use denv_schema::diagnostic::nearest;
use denv_schema::manifest::Kind;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Sources,
    Stages,
    Deployments,
    Units,
    Hosts,
    Gateways,
    Events,
    Manifests(Kind),
}

/// Every word, the plural of each first.
const WORDS: &[(Resource, &[&str])] = &[
    (Resource::Sources, &["sources", "source"]),
    (Resource::Stages, &["stages", "stage"]),
    (Resource::Deployments, &["deployments", "deployment", "deploy"]),
    (Resource::Units, &["units", "unit"]),
    (Resource::Hosts, &["hosts", "host"]),
    (Resource::Gateways, &["gateways", "gateway", "gw"]),
    (Resource::Events, &["events", "event"]),
    (Resource::Manifests(Kind::Provider), &["providers", "provider"]),
    (Resource::Manifests(Kind::Fleet), &["fleets", "fleet"]),
    (Resource::Manifests(Kind::WeightCache), &["weightcaches", "weightcache"]),
    (Resource::Manifests(Kind::Engine), &["engines", "engine"]),
    (Resource::Manifests(Kind::Recipe), &["recipes", "recipe"]),
    (Resource::Manifests(Kind::Release), &["releases", "release"]),
    (Resource::Manifests(Kind::Environment), &["environments", "environment", "env"]),
    (Resource::Manifests(Kind::ParitySuite), &["paritysuites", "paritysuite"]),
    (Resource::Manifests(Kind::Alarm), &["alarms", "alarm"]),
    (Resource::Manifests(Kind::Endpoint), &["endpoints", "endpoint"]),
    (Resource::Manifests(Kind::Customer), &["customers", "customer"]),
    (Resource::Manifests(Kind::Key), &["keys", "key"]),
    (Resource::Manifests(Kind::PriceList), &["pricelists", "pricelist"]),
    (Resource::Manifests(Kind::Access), &["accesses", "access"]),
    (Resource::Manifests(Kind::Webhook), &["webhooks", "webhook"]),
];

/// All that `get` knows, for its help.
pub(crate) const KINDS: &str = "sources, stages, deployments, units, hosts, gateways, events; manifests: providers, \
                                fleets, weightcaches, engines, recipes, releases, environments, paritysuites, alarms, \
                                endpoints, customers, keys, pricelists, accesses, webhooks";

impl Resource {
    /// In any case, singular or plural.
    pub(crate) fn parse(word: &str) -> Result<Resource, String> {
        let lower = word.to_lowercase();
        let found = WORDS.iter().find(|(_, words)| words.contains(&lower.as_str()));
        found.map(|(resource, _)| *resource).ok_or_else(|| {
            let words = WORDS.iter().flat_map(|(_, words)| words.iter().copied());
            unknown(word, words, KINDS)
        })
    }

    pub(crate) fn plural(self) -> &'static str {
        self.words()[0]
    }

    pub(crate) fn singular(self) -> &'static str {
        self.words()[1]
    }

    fn words(self) -> &'static [&'static str] {
        let found = WORDS.iter().find(|(resource, _)| *resource == self);
        found.map(|(_, words)| *words).expect("Host and Stage manifests are asked for as hosts and stages")
    }

    /// What an item is called on the command line.
    pub(crate) fn name_of(self, item: &Value) -> String {
        let text = |field: &str| match &item[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match self {
            Resource::Deployments => format!("{}#{}", text("stage"), text("number")),
            Resource::Stages => text("stage"),
            Resource::Units => text("unit"),
            Resource::Hosts => text("host"),
            Resource::Gateways => text("gateway"),
            Resource::Events => text("id"),
            Resource::Sources | Resource::Manifests(_) => text("name"),
        }
    }
}

/// A kind of manifest: all of them, in any case, singular or plural.
pub(crate) fn manifest_kind(word: &str) -> Result<Kind, String> {
    Kind::of_word(word).ok_or_else(|| {
        let kinds = Kind::ALL.iter().map(|kind| kind.as_str());
        unknown(word, kinds.clone(), &kinds.collect::<Vec<_>>().join(", "))
    })
}

fn unknown<'a>(word: &str, known: impl Iterator<Item = &'a str>, all: &str) -> String {
    match nearest(word, known) {
        Some(hint) => hint,
        None => format!("the kinds are {all}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_have_aliases_and_near_misses_are_named() {
        for word in ["stages", "Stage", "STAGE"] {
            assert_eq!(Resource::parse(word), Ok(Resource::Stages));
        }
        assert_eq!(Resource::parse("release"), Ok(Resource::Manifests(Kind::Release)));
        assert_eq!(Resource::parse("unitz"), Err("did you mean `unit`?".to_owned()));
        assert!(Resource::parse("spaceships").unwrap_err().starts_with("the kinds are sources,"));
        assert_eq!(manifest_kind("hosts"), Ok(Kind::Host));
        assert_eq!(manifest_kind("Relese"), Err("did you mean `Release`?".to_owned()));
    }

    #[test]
    fn every_kind_has_words_and_names() {
        for (resource, words) in WORDS {
            assert_eq!(resource.plural(), words[0]);
            let ending = if resource.singular().ends_with('s') { "es" } else { "s" };
            assert_eq!(format!("{}{ending}", resource.singular()), words[0]);
            assert!(KINDS.contains(words[0]));
        }
        let deployment = json!({"stage": "chat/prod", "number": 3});
        assert_eq!(Resource::Deployments.name_of(&deployment), "chat/prod#3");
    }
}
