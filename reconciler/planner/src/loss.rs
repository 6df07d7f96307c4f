//! Whether silent hosts are lost. When many fall silent at once, denv suspects itself first.

use jiff::Timestamp;

use crate::records::UnitRecord;
use crate::waiting::WaitingOn;
use crate::world::{World, signed};

/// More than this share of the known hosts, and at least two, silent at once is a fault of denv's own network until
/// shown otherwise.
const SHARE: usize = 4;

/// Some when the brake is on: nothing is removed or replaced for silence.
pub(crate) fn brake(world: &World<'_>) -> Option<WaitingOn> {
    let quiet = world.observed.hosts.iter().filter(|(_, host)| !host.connected).map(|(name, _)| name);
    let silent =
        quiet.filter(|name| world.is_silent(name) && world.catalog.hosts.contains_key(*name)).count();
    if silent < 2 {
        return None;
    }
    let total = world.catalog.hosts.keys().filter(|host| world.observed.hosts.contains_key(*host)).count();
    let count = |hosts: usize| u32::try_from(hosts).unwrap_or(u32::MAX);
    (silent * SHARE > total).then(|| WaitingOn::SilentHosts { silent: count(silent), known: count(total) })
}

/// When a unit with a silent host is replaced. None: no host of it is silent.
pub(crate) fn lost_at(
    world: &World<'_>,
    unit: &UnitRecord,
    patience: std::time::Duration,
) -> Option<Timestamp> {
    world.silent_host(unit).map(|(_, since)| since + signed(patience))
}
