//! Customers, keys and prices: that what is sold has a price, and may be served where the customer asks.

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, listed_once};
use crate::Name;
use crate::catalog::Catalog;
use crate::catalog::faulty::Faulty;
use crate::diagnostic::Code;
use crate::manifest::{CustomerSpec, EndpointSpec, KeySpec, PriceListSpec};

/// What endpoints offer, worked out once: customers may be many.
pub(super) struct Offers<'a> {
    models: BTreeSet<&'a str>,
    /// Of each endpoint, the residencies of the fleets that serve it. None: a fleet that states none.
    residencies: BTreeMap<&'a Name, BTreeSet<Option<&'a Name>>>,
    /// Of each price list, which of all models it lacks.
    unpriced: BTreeMap<&'a Name, Vec<&'a str>>,
}

impl<'a> Offers<'a> {
    pub(super) fn of(catalog: &'a Catalog) -> Self {
        let models: BTreeSet<&str> = catalog
            .endpoints
            .values()
            .flat_map(|endpoint| &endpoint.models)
            .map(|model| model.name.as_str())
            .collect();
        let residencies = catalog.endpoints.iter().map(|(name, endpoint)| (name, places(endpoint, catalog)));
        let lists = catalog.price_lists.iter();
        let unpriced = lists.map(|(name, list)| {
            let priced: BTreeSet<&str> = list.models.iter().map(|price| price.model.as_str()).collect();
            (name, models.difference(&priced).copied().collect())
        });
        Offers { residencies: residencies.collect(), unpriced: unpriced.collect(), models }
    }
}

fn places<'a>(endpoint: &EndpointSpec, catalog: &'a Catalog) -> BTreeSet<Option<&'a Name>> {
    let stages = endpoint.models.iter().filter_map(|model| catalog.stages.get(&model.stage));
    let fleets = stages.flat_map(|stage| &stage.fleets).filter_map(|fleet| catalog.fleets.get(&fleet.name));
    fleets.map(|fleet| fleet.residency.as_ref()).collect()
}

pub(super) fn customer(
    spec: &CustomerSpec,
    (catalog, offers, faulty): (&Catalog, &Offers<'_>, &Faulty),
    report: &mut Report<'_>,
) {
    listed_once("/spec/endpoints", &spec.endpoints, "endpoint", report);
    listed_once("/spec/residency", &spec.residency, "residency", report);
    if spec.monthly_budget.is_some() && spec.price_list.is_none() {
        let message = "nothing is ever spent of a budget without prices".to_owned();
        report.contradict("/spec/monthlyBudget", message, Some("write `priceList`"));
    }
    // A document with a fault of its own may be the one that sells or serves.
    if faulty.is_empty() {
        prices(spec, catalog, offers, report);
        residency(spec, offers, report);
    }
}

fn prices(spec: &CustomerSpec, catalog: &Catalog, offers: &Offers<'_>, report: &mut Report<'_>) {
    let Some((name, list)) =
        spec.price_list.as_ref().and_then(|name| Some((name, catalog.price_lists.get(name)?)))
    else {
        return;
    };
    let mut lacking: Vec<&str> = if spec.endpoints.is_empty() {
        offers.unpriced.get(name).cloned().unwrap_or_default()
    } else {
        let endpoints = spec.endpoints.iter().filter_map(|name| catalog.endpoints.get(name));
        let sold = endpoints.flat_map(|endpoint| &endpoint.models).map(|model| model.name.as_str());
        sold.filter(|model| list.price_of(model).is_none()).collect()
    };
    lacking.sort_unstable();
    lacking.dedup();
    if lacking.is_empty() {
        return;
    }
    let mut models: Vec<String> = lacking.iter().take(4).map(|model| format!("`{model}`")).collect();
    if lacking.len() > models.len() {
        models.push(format!("{} more", lacking.len() - models.len()));
    }
    let message =
        format!("PriceList `{name}` has no price of {}, which the customer may use", models.join(", "));
    let hint = if spec.endpoints.is_empty() && offers.models.len() > lacking.len() {
        "add the price, or name the endpoints that the customer may use"
    } else {
        "add the price"
    };
    report.say(Code::MissingPrice, "/spec/priceList", message, Some(hint));
}

fn residency(spec: &CustomerSpec, offers: &Offers<'_>, report: &mut Report<'_>) {
    if spec.residency.is_empty() {
        return;
    }
    let is_served =
        |places: &BTreeSet<Option<&Name>>| spec.residency.iter().any(|of| places.contains(&Some(of)));
    let allowed = spec.residency.iter().map(|of| format!("`{of}`")).collect::<Vec<_>>().join(", ");
    let hint = "give a stage a fleet there, or leave the endpoint out";
    if spec.endpoints.is_empty() {
        if !offers.residencies.is_empty() && !offers.residencies.values().any(is_served) {
            let message = format!("no endpoint is served in {allowed}");
            report.say(Code::Residency, "/spec/residency", message, Some("give a stage a fleet there"));
        }
        return;
    }
    for (i, name) in spec.endpoints.iter().enumerate() {
        if offers.residencies.get(name).is_some_and(|places| !is_served(places)) {
            let message = format!("no fleet that serves endpoint `{name}` is in {allowed}");
            report.say(Code::Residency, &format!("/spec/endpoints/{i}"), message, Some(hint));
        }
    }
}

pub(super) fn key(spec: &KeySpec, catalog: &Catalog, report: &mut Report<'_>) {
    let Some(customer) = catalog.customers.get(&spec.customer) else { return };
    let (own, all) = (&spec.limits, &customer.limits);
    for (field, own, all) in [
        ("requestsPerMinute", own.requests_per_minute, all.requests_per_minute),
        ("tokensPerMinute", own.tokens_per_minute, all.tokens_per_minute),
        ("concurrentRequests", own.concurrent_requests, all.concurrent_requests),
    ] {
        if let (Some(own), Some(all)) = (own, all)
            && own > all
        {
            let message =
                format!("the key may use {own}, and all keys of customer `{}` together {all}", spec.customer);
            report.contradict(
                &format!("/spec/limits/{field}"),
                message,
                Some("lower it, or raise the customer's"),
            );
        }
    }
}

pub(super) fn price_list(spec: &PriceListSpec, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (i, price) in spec.models.iter().enumerate() {
        if !seen.insert(&price.model) {
            let message = format!("model `{}` has a price already", price.model);
            report.contradict(&format!("/spec/models/{i}/model"), message, Some("remove one of them"));
        }
    }
}
