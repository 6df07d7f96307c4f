//! The operator's own serving command: nothing is added to it but what it asks for.

use super::{LaunchTemplate, MODEL, PoolTemplate};
use crate::manifest::ReleaseSpec;

pub(super) fn render(template: &mut LaunchTemplate, pool: &mut PoolTemplate, release: &ReleaseSpec) {
    for argument in pool.argv.iter_mut().chain(template.env.values_mut()) {
        *argument = argument.replace(MODEL, &release.model.name);
    }
}
