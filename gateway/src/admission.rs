//! Who may ask for what: keys, customers, endpoints and models, as of one accepted revision.
//!
//! It owns the configuration in force. It refuses to know which units there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use denv_schema::manifest::{CustomerSpec, Routing};
use denv_schema::wire::GatewayConfig;
use denv_schema::{Digest, Name, StageId};
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;

use crate::metrics::{EndpointMetrics, Metrics};

/// The configuration in force. It is replaced whole: a request is served by the one it began with.
pub(crate) struct Admission {
    snapshot: ArcSwapOption<Snapshot>,
    metrics: Arc<Metrics>,
}

struct Snapshot {
    digest: Digest,
    /// By the SHA-256 of the key. The key is 256 random bits, so what a lookup's time tells of its digest tells
    /// nothing of the key.
    grants: HashMap<Digest, Arc<Grant>>,
}

/// What a key is good for.
pub(crate) struct Grant {
    hash: Digest,
    expires: Option<Timestamp>,
    pub(crate) key: Name,
    pub(crate) customer: Name,
    models: Arc<BTreeMap<String, Arc<Model>>>,
}

/// A model that an endpoint offers.
pub(crate) struct Model {
    pub(crate) endpoint: Name,
    pub(crate) name: String,
    pub(crate) stage: StageId,
    pub(crate) max_inflight_per_unit: u32,
    pub(crate) metrics: EndpointMetrics,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum AdmissionError {
    #[error("the gateway has no configuration yet")]
    NoConfiguration,
    #[error("you didn't provide an API key: send it in the `Authorization` header as `Bearer …`")]
    NoKey,
    #[error("the API key is not valid")]
    WrongKey,
    #[error("the API key has expired")]
    ExpiredKey,
    /// The same whether it is unknown or another's, so nothing leaks.
    #[error("the model `{0}` does not exist or you do not have access to it")]
    UnknownModel(String),
}

impl Admission {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Admission { snapshot: ArcSwapOption::empty(), metrics }
    }

    pub(crate) fn apply(&self, config: &GatewayConfig) {
        self.snapshot.store(Some(Arc::new(self.index(config))));
    }

    /// The digest of the configuration in force.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.snapshot.load().as_ref().map(|snapshot| snapshot.digest)
    }

    /// What the key in an `Authorization` header is good for.
    pub(crate) fn grant(&self, authorization: Option<&[u8]>) -> Result<Arc<Grant>, AdmissionError> {
        let snapshot = self.snapshot.load();
        let snapshot = snapshot.as_ref().ok_or(AdmissionError::NoConfiguration)?;
        let key = authorization.and_then(bearer).ok_or(AdmissionError::NoKey)?;
        let hash = Digest::of_bytes(key);
        let grant = snapshot.grants.get(&hash).ok_or(AdmissionError::WrongKey)?;
        // The map has compared already, but not in constant time.
        if !bool::from(grant.hash.as_bytes().ct_eq(hash.as_bytes())) {
            return Err(AdmissionError::WrongKey);
        }
        match grant.expires.filter(|expires| *expires <= Timestamp::now()) {
            Some(_) => Err(AdmissionError::ExpiredKey),
            None => Ok(grant.clone()),
        }
    }

    fn index(&self, config: &GatewayConfig) -> Snapshot {
        let models_of: BTreeMap<_, _> =
            config.endpoints.keys().map(|endpoint| (endpoint, self.models(config, endpoint))).collect();
        let customers: BTreeMap<_, _> = config
            .customers
            .iter()
            .map(|(name, customer)| {
                let mut models = BTreeMap::new();
                for (endpoint, offered) in &models_of {
                    if customer.endpoints.is_empty() || customer.endpoints.contains(endpoint) {
                        for model in offered.iter().filter(|it| may_serve(config, customer, &it.stage)) {
                            // Of two endpoints with a model of one name, the first by name serves it.
                            models.entry(model.name.clone()).or_insert_with(|| model.clone());
                        }
                    }
                }
                (name, Arc::new(models))
            })
            .collect();
        let mut grants = HashMap::with_capacity(config.keys.len());
        for (key, spec) in &config.keys {
            let Some(models) = customers.get(&spec.customer) else {
                tracing::warn!(%key, customer = %spec.customer, "a key of an unknown customer is good for nothing");
                continue;
            };
            let grant = Grant {
                hash: spec.hash,
                expires: spec.expires,
                key: key.clone(),
                customer: spec.customer.clone(),
                models: models.clone(),
            };
            grants.insert(spec.hash, Arc::new(grant));
        }
        Snapshot { digest: Digest::of(config), grants }
    }

    fn models(&self, config: &GatewayConfig, endpoint: &Name) -> Vec<Arc<Model>> {
        let metrics = self.metrics.endpoint(endpoint.as_str());
        let model = |offered: &denv_schema::manifest::EndpointModel| {
            let routing = config.routing.get(&offered.stage).cloned().unwrap_or_else(Routing::default);
            Arc::new(Model {
                endpoint: endpoint.clone(),
                name: offered.name.clone(),
                stage: offered.stage.clone(),
                max_inflight_per_unit: routing.max_inflight_per_unit,
                metrics: metrics.clone(),
            })
        };
        config.endpoints[endpoint].models.iter().map(model).collect()
    }
}

impl Grant {
    pub(crate) fn model(&self, name: &str) -> Result<&Arc<Model>, AdmissionError> {
        self.models.get(name).ok_or_else(|| AdmissionError::UnknownModel(name.to_owned()))
    }

    /// The models that the key may use, by name.
    pub(crate) fn models(&self) -> impl Iterator<Item = &Model> {
        self.models.values().map(Arc::as_ref)
    }
}

/// Whether the stage keeps traffic where the customer allows it to be.
fn may_serve(config: &GatewayConfig, customer: &CustomerSpec, stage: &StageId) -> bool {
    let kept = || {
        config.residency.get(stage).is_some_and(|kept| kept.iter().all(|it| customer.residency.contains(it)))
    };
    customer.residency.is_empty() || kept()
}

fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.split_at_checked(b"bearer ".len())?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> GatewayConfig {
        serde_json::from_value(serde_json::json!({
            "endpoints": {
                "public": {"models": [{"name": "small", "stage": "chat/prod"}, {"name": "big", "stage": "chat/big"}]},
                "secret": {"models": [{"name": "small", "stage": "lab/prod"}, {"name": "odd", "stage": "lab/prod"}]},
            },
            "customers": {"everyone": {}, "lab": {"endpoints": ["secret"]}},
            "keys": {
                "one": {"customer": "everyone", "hash": Digest::of_bytes(b"sk-1")},
                "two": {"customer": "lab", "hash": Digest::of_bytes(b"sk-2")},
                "lost": {"customer": "nobody", "hash": Digest::of_bytes(b"sk-3")},
            },
            "routing": {"chat/prod": {"maxInflightPerUnit": 3}},
        }))
        .unwrap()
    }

    fn admission() -> Admission {
        let admission = Admission::new(Arc::new(Metrics::new()));
        admission.apply(&config());
        admission
    }

    #[test]
    fn keys_open_their_customers_endpoints_and_no_others() {
        let admission = admission();
        let one = admission.grant(Some(b"Bearer sk-1")).unwrap();
        let small = one.model("small").unwrap();
        assert_eq!((small.stage.to_string().as_str(), small.max_inflight_per_unit), ("chat/prod", 3));
        assert_eq!(one.model("big").unwrap().max_inflight_per_unit, Routing::default().max_inflight_per_unit);
        assert_eq!(
            one.models().map(|model| model.name.as_str()).collect::<Vec<_>>(),
            ["big", "odd", "small"]
        );

        let two = admission.grant(Some(b"bearer sk-2")).unwrap();
        assert_eq!(two.model("small").unwrap().stage.to_string(), "lab/prod");
        assert_eq!(two.model("big").err(), Some(AdmissionError::UnknownModel("big".to_owned())));
    }

    #[test]
    fn other_keys_open_nothing() {
        let admission = admission();
        for (header, error) in [
            (None, AdmissionError::NoKey),
            (Some("sk-1"), AdmissionError::NoKey),
            (Some("Bearer  "), AdmissionError::NoKey),
            (Some("Bearer sk-9"), AdmissionError::WrongKey),
            (Some("Bearer sk-3"), AdmissionError::WrongKey),
        ] {
            assert_eq!(admission.grant(header.map(str::as_bytes)).err(), Some(error), "{header:?}");
        }
        let unconfigured = Admission::new(Arc::new(Metrics::new()));
        assert_eq!(unconfigured.grant(Some(b"Bearer sk-1")).err(), Some(AdmissionError::NoConfiguration));
    }

    #[test]
    fn a_key_that_has_expired_opens_nothing() {
        let mut config = config();
        let at = |text: &str| Some(text.parse().unwrap());
        config.keys.get_mut("one").unwrap().expires = at("2020-01-01T00:00:00Z");
        config.keys.get_mut("two").unwrap().expires = at("2999-01-01T00:00:00Z");
        let admission = admission();
        admission.apply(&config);
        assert_eq!(admission.grant(Some(b"Bearer sk-1")).err(), Some(AdmissionError::ExpiredKey));
        assert!(admission.grant(Some(b"Bearer sk-2")).is_ok());
    }

    #[test]
    fn a_customer_is_served_only_where_its_residency_allows() {
        let mut config = config();
        let names = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Name>>();
        config.customers.get_mut("everyone").unwrap().residency = names(&["eu", "ch"]);
        config.residency.insert("chat/prod".parse().unwrap(), names(&["eu"]));
        config.residency.insert("chat/big".parse().unwrap(), names(&["eu", "us"]));
        let admission = admission();
        admission.apply(&config);
        let one = admission.grant(Some(b"Bearer sk-1")).unwrap();
        // `big` may be served in the US, and `odd` anywhere.
        assert_eq!(one.models().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["small"]);
        // Who says nothing is served anywhere.
        assert!(admission.grant(Some(b"Bearer sk-2")).unwrap().model("odd").is_ok());
    }

    #[test]
    fn a_new_configuration_replaces_the_old_one_whole() {
        let admission = admission();
        let before = admission.digest();
        let held = admission.grant(Some(b"Bearer sk-1")).unwrap();
        let mut config = config();
        config.keys.remove("one");
        admission.apply(&config);
        assert_ne!(admission.digest(), before);
        assert_eq!(admission.grant(Some(b"Bearer sk-1")).err(), Some(AdmissionError::WrongKey));
        assert!(held.model("small").is_ok(), "a request that began is served by what it began with");
    }
}
