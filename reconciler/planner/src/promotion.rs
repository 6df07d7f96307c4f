//! When a release that one stage has proven passes to the next by itself.

use std::collections::BTreeSet;

use denv_schema::manifest::{Promotion, PromotionMode};
use denv_schema::{Name, StageId};
use jiff::Timestamp;

use crate::records::Phase;
use crate::status::status;
use crate::world::{World, signed};

/// A promotion whose time has come, or will have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    pub from: StageId,
    pub to: StageId,
    pub release: Name,
    /// When the release has been good in `from` for long enough.
    pub due: Timestamp,
}

/// The promotions that environments leave to denv and that nothing speaks against. `tried` holds what stages have
/// ever deployed: a release that was tried in a stage and is not desired there was taken back, by denv or by a person, and
/// only a person may bring it again.
pub fn promotions(world: &World<'_>, tried: &BTreeSet<(StageId, Name)>) -> Vec<Proven> {
    let mut found = Vec::new();
    for (environment, spec) in &world.catalog.environments {
        let automatic = spec.promotion.iter().filter(|step| step.mode == PromotionMode::Automatic);
        found.extend(automatic.filter_map(|step| proven(world, environment, step, tried)));
    }
    found
}

fn proven(
    world: &World<'_>,
    environment: &Name,
    step: &Promotion,
    tried: &BTreeSet<(StageId, Name)>,
) -> Option<Proven> {
    let id = |stage: &Name| StageId { environment: environment.clone(), stage: stage.clone() };
    let (from, to) = (id(&step.from), id(&step.to));
    let release = &world.catalog.stages.get(&from)?.release;
    let record = world.records.stages.get(&from)?;
    let deployment = record.deployment.as_ref()?;
    let is_good = record.good.as_ref().is_some_and(|good| good.release == *release)
        && record.hold.is_none()
        && deployment.phase == Phase::Succeeded
        && deployment.to == *release;
    let units = world.records.units.iter().filter(|(_, unit)| unit.stage == from && unit.is_active());
    let is_well = units.into_iter().all(|(id, unit)| status(world, id, unit).is_ready());
    let is_new = world.catalog.stages.get(&to)?.release != *release;
    let is_untried = !tried.contains(&(to.clone(), release.clone()));
    (is_good && is_well && is_new && is_untried).then(|| Proven {
        due: deployment.since + signed(step.bake.map_or(std::time::Duration::ZERO, |bake| bake.get())),
        from,
        to,
        release: release.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use denv_schema::Catalog;
    use denv_schema::tree::Files;

    use super::*;
    use crate::records::{Good, Hold, Records};
    use crate::world::Observed;

    const NOTHING: [String; 0] = [];

    /// Two stages without units, the first of which has deployed `two`.
    fn world() -> (Catalog, Records) {
        let mut text = String::new();
        let mut add = |kind: &str, name: &str, spec: &str| {
            write!(
                text,
                "---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
            )
            .unwrap();
        };
        add("Provider", "p", "kind: owned");
        add(
            "Fleet",
            "f",
            "provider: p, region: r, purchase: owned, accelerator: cpu, hosts: {min: 0, max: 9}",
        );
        add("Host", "h", "fleet: f, cpuSlots: 4");
        add("Engine", "e", "kind: llama-cpp, version: '1', command: [serve]");
        add("Recipe", "r", "model: m, engine: e, hardware: {accelerator: cpu}");
        for (name, length) in [("one", 1024), ("two", 2048)] {
            let topology = "topology: {mode: aggregated, replica: {cpuSlots: 1}}";
            let spec = format!(
                "model: {{name: m}}, engine: e, recipe: r, {topology}, config: {{maxModelLen: {length}}}"
            );
            add("Release", name, &spec);
        }
        add(
            "Environment",
            "chat",
            "stages: [test, prod], promotion: [{from: test, to: prod, mode: automatic, bake: 1h}]",
        );
        for (name, release) in [("test", "two"), ("prod", "one")] {
            add(
                "Stage",
                name,
                &format!("environment: chat, release: {release}, fleets: [{{name: f, units: {{min: 0}}}}]"),
            );
        }
        let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
        let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
        let mut records = Records::default();
        let observed = Observed::default();
        for second in 0..1_000 {
            let now = at(second);
            let world = World { catalog: &catalog, records: &records, observed: &observed, now };
            let planned = crate::plan(&world);
            planned.steps.iter().for_each(|step| records.apply(step));
        }
        (catalog, records)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn due(catalog: &Catalog, records: &Records, tried: &[(&str, &str)]) -> Vec<String> {
        let observed = Observed::default();
        let world = World { catalog, records, observed: &observed, now: at(2_000) };
        let tried =
            tried.iter().map(|(stage, release)| (stage.parse().unwrap(), release.parse().unwrap())).collect();
        let text = |it: Proven| format!("{} {} to {} at {}", it.release, it.from, it.to, it.due.as_second());
        promotions(&world, &tried).into_iter().map(text).collect()
    }

    #[test]
    fn what_has_proven_itself_passes_on_once() {
        let (catalog, records) = world();
        let succeeded = records.stages[&"chat/test".parse().unwrap()].deployment.as_ref().unwrap().since;
        let expected = format!("two chat/test to chat/prod at {}", succeeded.as_second() + 3_600);
        assert_eq!(due(&catalog, &records, &[]), std::slice::from_ref(&expected));
        assert_eq!(due(&catalog, &records, &[("chat/test", "two"), ("chat/prod", "one")]), [expected]);
        // It was there before, and was taken back.
        assert_eq!(due(&catalog, &records, &[("chat/prod", "two")]), NOTHING);
        // It is there.
        let mut promoted = catalog.clone();
        promoted.stages.get_mut(&"chat/prod".parse().unwrap()).unwrap().release = "two".parse().unwrap();
        assert_eq!(due(&promoted, &records, &[]), NOTHING);
    }

    #[test]
    fn what_has_not_proven_itself_stays() {
        let (catalog, records) = world();
        let test = "chat/test".parse().unwrap();
        let mut held = records.clone();
        let stage = held.stages.get_mut(&test).unwrap();
        let inputs = stage.deployment.as_ref().unwrap().inputs;
        stage.hold =
            Some(Hold { inputs, release: "two".parse().unwrap(), reason: String::new(), since: at(1) });
        assert_eq!(due(&catalog, &held, &[]), NOTHING);
        let mut rolling = records.clone();
        rolling.stages.get_mut(&test).unwrap().deployment.as_mut().unwrap().phase = Phase::Verifying;
        assert_eq!(due(&catalog, &rolling, &[]), NOTHING);
        let mut another = records;
        let stage = another.stages.get_mut(&test).unwrap();
        stage.good = stage.good.take().map(|good| Good { release: "one".parse().unwrap(), ..good });
        assert_eq!(due(&catalog, &another, &[]), NOTHING);
        let mut manual = catalog;
        let environment = manual.environments.get_mut("chat").unwrap();
        environment.promotion[0].mode = PromotionMode::Manual;
        let (_, records) = world();
        assert_eq!(due(&manual, &records, &[]), NOTHING);
    }
}
