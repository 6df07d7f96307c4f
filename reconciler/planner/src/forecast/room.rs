//! How much of a fleet is free, before, on the way and after.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::placement::Usage;
use crate::world::World;

/// A fleet's room, in GPUs, or in CPU slots where no host of it has GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// `GPUs` or `CPU slots`.
    pub of: String,
    /// All there are, taken or not, on hosts that are heard of.
    pub total: u32,
    pub free_before: u32,
    /// The least that is free at any time on the way.
    pub free_least: u32,
    pub free_after: u32,
}

pub(super) fn rooms(world: &World<'_>) -> BTreeMap<Name, Room> {
    let room = |(fleet, (of, total, free)): (Name, (&str, u32, u32))| {
        let of = of.to_owned();
        (fleet, Room { of, total, free_before: free, free_least: free, free_after: free })
    };
    Usage::of(world, &BTreeSet::new()).free().into_iter().map(room).collect()
}

pub(super) fn note(rooms: &mut BTreeMap<Name, Room>, world: &World<'_>) {
    for (fleet, (_, _, free)) in Usage::of(world, &BTreeSet::new()).free() {
        if let Some(room) = rooms.get_mut(&fleet) {
            room.free_after = free;
            room.free_least = room.free_least.min(free);
        }
    }
}
