//! Whether silent hosts are lost. When many fall silent at once, denv suspects itself first.

use denv_schema::Name;
use jiff::Timestamp;

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

/// When a silent host's units are replaced.
pub(crate) fn lost_at(world: &World<'_>, host: &Name, patience: std::time::Duration) -> Timestamp {
    world.silent_since(host) + signed(patience)
}
