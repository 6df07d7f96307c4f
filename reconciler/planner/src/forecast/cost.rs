//! What an hour of what runs costs, by the prices that fleets have.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::manifest::PricedBy;
use denv_schema::quantity::Currency;
use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::world::World;

/// The cost of an hour, in one currency. Amounts are exact decimals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HourlyCost {
    pub currency: Currency,
    pub before: String,
    /// The most at any time on the way.
    pub most: String,
    pub after: String,
}

/// Amounts by currency, as the forecast goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs(BTreeMap<Currency, [Decimal; 3]>);

impl Costs {
    pub(super) fn begin(world: &World<'_>) -> Self {
        Costs(hourly(world).into_iter().map(|(currency, amount)| (currency, [amount; 3])).collect())
    }

    pub(super) fn note(&mut self, world: &World<'_>) {
        let now = hourly(world);
        for currency in now.keys() {
            self.0.entry(*currency).or_default();
        }
        for (currency, [_, most, after]) in &mut self.0 {
            *after = now.get(currency).copied().unwrap_or_default();
            *most = (*most).max(*after);
        }
    }

    pub(super) fn finish(&self) -> Vec<HourlyCost> {
        let text = |amount: Decimal| amount.normalize().to_string();
        let cost = |(currency, [before, most, after]): (&Currency, &[Decimal; 3])| HourlyCost {
            currency: *currency,
            before: text(*before),
            most: text(*most),
            after: text(*after),
        };
        self.0.iter().map(cost).collect()
    }
}

/// An accelerator is paid for by the unit that has it, a host by whoever uses any of it.
fn hourly(world: &World<'_>) -> BTreeMap<Currency, Decimal> {
    let mut costs: BTreeMap<Currency, Decimal> = BTreeMap::new();
    let mut hosts = BTreeSet::new();
    for unit in world.records.units.values() {
        let Some(price) = world.catalog.fleets.get(&unit.fleet).and_then(|fleet| fleet.price.as_ref()) else {
            continue;
        };
        let count: usize = match price.per {
            PricedBy::GpuHour => unit.members.iter().map(|member| member.spec.claim.gpus.len()).sum(),
            PricedBy::HostHour => unit.members.iter().filter(|member| hosts.insert(&member.host)).count(),
        };
        *costs.entry(price.currency).or_default() += price.amount.get() * Decimal::from(count);
    }
    costs
}
