//! Whether a revision deletes so much that a person is to say yes first. Pure: two catalogs in, an answer out.

use std::collections::{BTreeMap, BTreeSet};

use denv_schema::Catalog;
use denv_schema::api::DeletionView;

/// The share of units, hosts, customers or keys, in percent, above which a revision's deletions wait for approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionShare(u8);

impl DeletionShare {
    pub const DEFAULT: DeletionShare = DeletionShare(30);
}

impl Default for DeletionShare {
    fn default() -> Self {
        DeletionShare::DEFAULT
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a share is written as `30%`, from `0%` (every deletion waits) to `100%` (none does)")]
pub struct InvalidShare;

impl std::str::FromStr for DeletionShare {
    type Err = InvalidShare;
    fn from_str(text: &str) -> Result<Self, InvalidShare> {
        let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
        percent.filter(|percent| *percent <= 100).map(DeletionShare).ok_or(InvalidShare)
    }
}

impl std::fmt::Display for DeletionShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// One of a few is a large share, and an everyday change; so fewer than this never wait, unless the share is 0 %.
const FEWEST: usize = 2;

/// What the revision would delete, of each kind of which it is more than the share; empty where nothing waits.
pub(super) fn large(in_force: &Catalog, next: &Catalog, share: DeletionShare) -> Vec<DeletionView> {
    let kinds = [
        units(in_force, next),
        named("hosts", &in_force.hosts, &next.hosts),
        named("customers", &in_force.customers, &next.customers),
        named("keys", &in_force.keys, &next.keys),
    ];
    kinds.into_iter().filter(|deletion| is_large(deletion.deleted, deletion.of, share)).collect()
}

fn is_large(deleted: usize, of: usize, share: DeletionShare) -> bool {
    let fewest = if share.0 == 0 { 1 } else { FEWEST };
    deleted >= fewest && deleted * 100 > of * usize::from(share.0)
}

/// Units that no stage wants any more. A stage that shrinks deletes too; one that moves to another fleet does not.
fn units(in_force: &Catalog, next: &Catalog) -> DeletionView {
    let wanted = |catalog: &Catalog| -> BTreeMap<String, usize> {
        let count = |units: u32| usize::try_from(units).unwrap_or(usize::MAX);
        let stages = catalog.stages.iter();
        stages
            .map(|(id, stage)| {
                (id.to_string(), stage.fleets.iter().map(|fleet| count(fleet.units.min)).sum())
            })
            .collect()
    };
    let (before, after) = (wanted(in_force), wanted(next));
    let lost = |(stage, units): (&String, &usize)| {
        let lost = units.saturating_sub(after.get(stage).copied().unwrap_or(0));
        (lost > 0).then(|| (format!("{lost} of {units} of stage {stage}"), lost))
    };
    let lost: Vec<(String, usize)> = before.iter().filter_map(lost).collect();
    DeletionView {
        kind: "units".to_owned(),
        deleted: lost.iter().map(|(_, lost)| lost).sum(),
        of: before.values().sum(),
        names: lost.into_iter().map(|(name, _)| name).collect(),
    }
}

fn named<N: Ord + ToString, A, B>(
    kind: &str,
    before: &BTreeMap<N, A>,
    after: &BTreeMap<N, B>,
) -> DeletionView {
    let after: BTreeSet<&N> = after.keys().collect();
    let names: Vec<String> =
        before.keys().filter(|name| !after.contains(name)).map(ToString::to_string).collect();
    DeletionView { kind: kind.to_owned(), deleted: names.len(), of: before.len(), names }
}

/// `12 of 20 hosts, 3 of 4 keys`
pub(super) fn said(deletions: &[DeletionView]) -> String {
    let one = |it: &DeletionView| format!("{} of {} {}", it.deleted, it.of, it.kind);
    deletions.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use denv_schema::Name;
    use denv_schema::manifest::HostSpec;
    use proptest::prelude::*;

    use super::*;

    fn hosts(from: usize, to: usize) -> Catalog {
        let spec = HostSpec {
            fleet: "racks".parse().unwrap(),
            domain: None,
            failure_domain: None,
            cpu_slots: None,
            cordoned: false,
        };
        let name = |number: usize| format!("gpu-{number}").parse::<Name>().unwrap();
        Catalog {
            hosts: (from..to).map(|number| (name(number), spec.clone())).collect(),
            ..Catalog::default()
        }
    }

    fn share(text: &str) -> DeletionShare {
        text.parse().unwrap()
    }

    #[test]
    fn more_than_the_share_waits_and_one_alone_never_does() {
        let large = |before, after, of: &str| said(&large(&hosts(0, before), &hosts(0, after), share(of)));
        assert_eq!(large(10, 7, "30%"), "");
        assert_eq!(large(10, 6, "30%"), "4 of 10 hosts");
        assert_eq!(large(1, 0, "30%"), "");
        assert_eq!(large(2, 0, "30%"), "2 of 2 hosts");
        assert_eq!(large(100, 99, "0%"), "1 of 100 hosts");
        assert_eq!(large(9, 0, "100%"), "");
    }

    #[test]
    fn units_are_counted_by_stage() {
        let files = |units: &str, stage: &str| {
            let service = include_str!("../../../examples/manifests/quickstart/service.yaml");
            let service = service.replace("min: 2", units).replace("name: prod", stage);
            let capacity = include_str!("../../../examples/manifests/quickstart/capacity.yaml");
            let capacity = capacity.replace("cpuSlots: 2", "cpuSlots: 4");
            let mut files = denv_schema::tree::Files::new();
            for (name, text) in [
                ("capacity.yaml", capacity.as_str()),
                ("software.yaml", include_str!("../../../examples/manifests/quickstart/software.yaml")),
                ("service.yaml", &service),
                ("commerce.yaml", include_str!("../../../examples/manifests/quickstart/commerce.yaml")),
            ] {
                files.insert(name.to_owned(), text.as_bytes().to_vec());
            }
            Catalog::from_files(&files).unwrap()
        };
        let before = files("min: 6", "name: prod");
        let found = large(&before, &files("min: 2", "name: prod"), DeletionShare::DEFAULT);
        assert_eq!(said(&found), "4 of 6 units");
        assert_eq!(found[0].names, ["4 of 6 of stage chat/prod"]);
        assert!(large(&before, &files("min: 8", "name: prod"), DeletionShare::DEFAULT).is_empty());
    }

    #[test]
    fn a_share_is_a_percentage() {
        for wrong in ["30", "101%", "-1%", "", "x%"] {
            assert_eq!(wrong.parse::<DeletionShare>(), Err(InvalidShare), "{wrong}");
        }
    }

    proptest! {
        /// A revision that deletes nothing never waits; a larger share never makes more wait; all of many always does.
        #[test]
        fn a_larger_share_never_asks_for_more(before in 0usize..40, kept in 0usize..40, added in 0usize..40, share in 0u8..100) {
            let kept = kept.min(before);
            let next = hosts(before - kept, before + added);
            let waits = |share| !large(&hosts(0, before), &next, DeletionShare(share)).is_empty();
            prop_assert!(kept < before || !waits(share));
            prop_assert!(!waits(share + 1) || waits(share));
            prop_assert!(!waits(100));
            prop_assert!(kept > 0 || added > 0 || before < 2 || waits(share));
        }
    }
}
