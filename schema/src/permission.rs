//! What somebody must be allowed to do to make a change. Pure; it refuses to know tokens.

use std::collections::BTreeSet;

use crate::diff::{Change, Diff, ManifestChange};
use crate::manifest::{AccessSpec, Kind, Role};
use crate::{Catalog, StageId};

/// Where a role is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In each of these stages.
    Stages(BTreeSet<StageId>),
    /// In any stage: it belongs to none yet.
    Anywhere,
    /// In everything.
    Everything,
}

/// What one changed manifest needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub role: Role,
    pub reach: Reach,
}

impl AccessSpec {
    /// Whether they have a role that may do what `needed` may, in any stage.
    pub fn allows_anywhere(&self, needed: Role) -> bool {
        self.grants.iter().any(|grant| grant.role >= needed)
    }

    fn meets(&self, need: &Need) -> bool {
        match &need.reach {
            Reach::Everything => self.allows(need.role, None),
            Reach::Anywhere => self.allows_anywhere(need.role),
            Reach::Stages(stages) => stages.iter().all(|stage| self.allows(need.role, Some(stage))),
        }
    }

    /// Whether they may make this change; if not, what is missing, in words.
    pub fn may_change(&self, diff: &Diff, before: &Catalog, after: &Catalog) -> Result<(), String> {
        for change in &diff.changes {
            let need = needed(change, before, after);
            if !self.meets(&need) {
                let Need { role, reach } = need;
                let place = match reach {
                    Reach::Everything => "in everything (`\"*\"`)".to_owned(),
                    Reach::Anywhere => "in some stage".to_owned(),
                    Reach::Stages(stages) => {
                        let missing = stages.iter().filter(|stage| !self.allows(role, Some(stage)));
                        format!("in {}", missing.map(StageId::to_string).collect::<Vec<_>>().join(", "))
                    }
                };
                let (kind, name) = (change.kind, &change.name);
                return Err(format!("to change {kind} `{name}`, one must be {role} {place}"));
            }
        }
        Ok(())
    }
}

/// What the change of one manifest needs.
pub fn needed(change: &ManifestChange, before: &Catalog, after: &Catalog) -> Need {
    let publisher = |stages: BTreeSet<StageId>| {
        let reach = if stages.is_empty() { Reach::Anywhere } else { Reach::Stages(stages) };
        Need { role: Role::Publisher, reach }
    };
    match change.kind {
        Kind::Stage => publisher(change.name.parse().into_iter().collect()),
        Kind::Release | Kind::Recipe | Kind::Engine | Kind::ParitySuite | Kind::Alarm => {
            publisher(reached(change, before).chain(reached(change, after)).collect())
        }
        Kind::Environment => {
            let of = |catalog: &Catalog| {
                let stages = catalog.stages.keys().filter(|id| id.environment.as_str() == change.name);
                stages.cloned().collect::<Vec<_>>()
            };
            publisher(of(before).into_iter().chain(of(after)).collect())
        }
        Kind::Endpoint => {
            let of = |catalog: &Catalog| {
                let named = catalog.endpoints.iter().find(|(name, _)| name.as_str() == change.name);
                let models = named.into_iter().flat_map(|(_, endpoint)| &endpoint.models);
                models.map(|model| model.stage.clone()).collect::<Vec<_>>()
            };
            publisher(of(before).into_iter().chain(of(after)).collect())
        }
        Kind::Host if is_cordon(change) => Need { role: Role::Operator, reach: Reach::Everything },
        Kind::Provider
        | Kind::Fleet
        | Kind::Host
        | Kind::WeightCache
        | Kind::Customer
        | Kind::Key
        | Kind::PriceList
        | Kind::Access
        | Kind::Webhook => Need { role: Role::Admin, reach: Reach::Everything },
    }
}

fn is_cordon(change: &ManifestChange) -> bool {
    change.change == Change::Changed && change.fields.iter().all(|field| field.field == "spec.cordoned")
}

/// The stages that software of this kind and name has to do with.
fn reached<'a>(change: &'a ManifestChange, catalog: &'a Catalog) -> impl Iterator<Item = StageId> + 'a {
    let name = change.name.as_str();
    catalog.stages.iter().filter_map(move |(id, stage)| {
        let release = catalog.releases.get(&stage.release);
        let is_reached = match change.kind {
            Kind::Release => stage.release.as_str() == name,
            Kind::Recipe => release?.recipe.as_str() == name,
            Kind::Engine => release?.engine.as_str() == name,
            Kind::ParitySuite => stage.parity.as_ref()?.suite.as_str() == name,
            Kind::Alarm => stage.alarms.iter().any(|alarm| alarm.as_str() == name),
            _ => false,
        };
        is_reached.then(|| id.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{Configuration, diff};
    use crate::tree::Files;

    fn quickstart(edits: &[(&str, &str, &str)]) -> Configuration {
        let folder = format!("{}/../examples/manifests/quickstart", env!("CARGO_MANIFEST_DIR"));
        let mut files: Files = crate::tree::read(std::path::Path::new(&folder)).unwrap();
        for (file, from, to) in edits {
            let text = String::from_utf8(files[*file].clone()).unwrap();
            assert!(text.contains(from), "{from}");
            files.insert((*file).to_owned(), text.replace(from, to).into_bytes());
        }
        Configuration::of(&files).unwrap_or_else(|found| panic!("{found}"))
    }

    fn somebody(role: Role, stages: &str) -> AccessSpec {
        serde_json::from_value(serde_json::json!({
            "email": "a@example.com",
            "grants": [{"role": role, "stages": [stages]}],
        }))
        .unwrap()
    }

    #[test]
    fn who_may_change_what() {
        let before = quickstart(&[]);
        let bake = ("service.yaml", "bake: 3s", "bake: 4s");
        let flags = ("software.yaml", "[--threads, \"1\"]", "[--threads, \"2\"]");
        let cordon = ("capacity.yaml", "cpuSlots: 2", "cordoned: true\n  cpuSlots: 2");
        let slots = ("capacity.yaml", "cpuSlots: 2", "cpuSlots: 3");
        let customer = ("commerce.yaml", "The demo's own customer", "Somebody");
        for (role, stages, edit, allowed) in [
            (Role::Publisher, "chat/prod", bake, true),
            (Role::Publisher, "chat/*", bake, true),
            (Role::Publisher, "chat/test", bake, false),
            (Role::Operator, "*", bake, false),
            (Role::Publisher, "chat/prod", flags, true),
            (Role::Publisher, "code/*", flags, false),
            (Role::Operator, "*", cordon, true),
            (Role::Operator, "chat/*", cordon, false),
            (Role::Operator, "*", slots, false),
            (Role::Admin, "*", slots, true),
            (Role::Admin, "chat/*", customer, false),
            (Role::Admin, "*", customer, true),
        ] {
            let after = quickstart(&[edit]);
            let diff = diff(&before, &after);
            assert!(!diff.is_empty(), "{edit:?}");
            let verdict = somebody(role, stages).may_change(&diff, &before.catalog, &after.catalog);
            assert_eq!(verdict.is_ok(), allowed, "{role} {stages} {edit:?}: {verdict:?}");
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let (before, after) = (quickstart(&[]), quickstart(&[("service.yaml", "bake: 3s", "bake: 4s")]));
        let diff = diff(&before, &after);
        let denied = somebody(Role::Viewer, "*").may_change(&diff, &before.catalog, &after.catalog);
        assert_eq!(denied, Err("to change Stage `chat/prod`, one must be publisher in chat/prod".to_owned()));
    }
}
