//! What manifests may say and this version does not act on yet. Whoever writes it is told, so that nobody relies on it.

use crate::Catalog;
use crate::manifest::RoutingPolicy;

/// Fields that are kept and have no effect, each as `Customer acme: spec.limits`, in the order of kinds and names.
pub fn unheeded(catalog: &Catalog) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |is_said: bool, subject: String, field: &str| {
        if is_said {
            found.push(format!("{subject}: {field}"));
        }
    };
    for (id, stage) in &catalog.stages {
        let subject = || format!("Stage {id}");
        say(stage.routing.policy != RoutingPolicy::Priority, subject(), "spec.routing.policy");
        say(stage.fleets.iter().any(|fleet| fleet.weight.is_some()), subject(), "spec.fleets[].weight");
    }
    for (name, customer) in &catalog.customers {
        let subject = || format!("Customer {name}");
        say(!customer.limits.is_empty(), subject(), "spec.limits");
        say(customer.monthly_budget.is_some(), subject(), "spec.monthlyBudget");
    }
    for (name, key) in &catalog.keys {
        say(!key.limits.is_empty(), format!("Key {name}"), "spec.limits");
    }
    for name in catalog.price_lists.keys() {
        say(true, format!("PriceList {name}"), "usage is counted, and not priced");
    }
    for name in catalog.webhooks.keys() {
        say(true, format!("Webhook {name}"), "nobody is told");
    }
    for (name, fleet) in &catalog.fleets {
        say(fleet.weight_cache.is_some(), format!("Fleet {name}"), "spec.weightCache");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_yet_is_named() {
        let read = |name: &str| {
            let folder = format!("{}/../examples/manifests/{name}", env!("CARGO_MANIFEST_DIR"));
            let files = crate::tree::read(std::path::Path::new(&folder)).unwrap();
            unheeded(&Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}")))
        };
        assert_eq!(read("quickstart"), [] as [String; 0]);
        let seller = read("token-seller");
        assert!(
            seller.iter().any(|it| it.starts_with("Customer ") && it.ends_with(": spec.limits")),
            "{seller:?}"
        );
        assert!(seller.iter().any(|it| it.starts_with("Webhook ")), "{seller:?}");
    }
}
