//! The architecture, as a test: dependencies point one way, files stay readable, names say something.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate's floors, from the top down. A module may use those below its floor; neighbours never use each other.
const FLOORS: [(&str, &[&[&str]]); 3] = [
    (
        "reconciler/src",
        &[
            &["main"],
            &["arguments", "tenant"],
            &["api", "statuses", "promoter", "gates"],
            &["orchestrator"],
            &["source", "link"],
            &["observation", "measurement"],
            &["store"],
        ],
    ),
    (
        "agent/src",
        &[
            &["main"],
            &["daemon"],
            &["arguments"],
            &["link", "ingress"],
            &["engines"],
            &["runner", "prefetch"],
            &["inventory", "reclaim", "supervisor", "runtimes", "weights"],
            &["journal"],
        ],
    ),
    (
        "gateway/src",
        &[
            &["main"],
            &["process"],
            &["api", "control_plane"],
            &["proxy", "last_known"],
            &["admission", "units", "meter"],
            &["routing"],
            &["request", "answer"],
            &["metrics", "tally", "kv_index"],
        ],
    ),
];

/// What each crate may use of denv's own.
const CRATES: [(&str, &[&str]); 12] = [
    ("schema", &[]),
    ("link", &["denv-schema"]),
    ("weights", &["denv-schema"]),
    ("repository", &["denv-schema"]),
    ("forge", &[]),
    ("reconciler/gates", &["denv-schema"]),
    ("reconciler/planner", &["denv-gates", "denv-schema"]),
    ("reconciler/git-transport", &[]),
    (
        "reconciler",
        &[
            "denv-forge",
            "denv-gates",
            "denv-git-transport",
            "denv-link",
            "denv-planner",
            "denv-repository",
            "denv-schema",
        ],
    ),
    ("agent", &["denv-link", "denv-schema", "denv-weights"]),
    ("gateway", &["denv-link", "denv-schema"]),
    ("cli", &["denv-forge", "denv-gates", "denv-planner", "denv-repository", "denv-schema", "denv-weights"]),
];

/// Names that say nothing of what a thing owns or does.
const BANNED: [&str; 12] = [
    "utils", "util", "helpers", "helper", "common", "base", "manager", "service", "misc", "legacy",
    "context", "new",
];

const LONGEST_FILE: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn modules_use_only_the_floors_below_them() {
    let mut wrong = Vec::new();
    for (krate, floors) in FLOORS {
        let level: BTreeMap<&str, usize> = floors
            .iter()
            .enumerate()
            .flat_map(|(level, names)| names.iter().map(move |name| (*name, level)))
            .collect();
        let folder = root().join(krate);
        for file in sources(&folder) {
            let inside = file.strip_prefix(&folder).unwrap();
            let module = inside.components().next().unwrap().as_os_str().to_string_lossy().replace(".rs", "");
            if module == "lib" {
                continue;
            }
            let Some(own) = level.get(module.as_str()) else {
                wrong.push(format!(
                    "{krate}: module `{module}` has no floor; give it one in tests/architecture.rs"
                ));
                continue;
            };
            let text = fs::read_to_string(&file).unwrap();
            for used in text.split("crate::").skip(1) {
                let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if used != module && level.get(used.as_str()).is_some_and(|level| level <= own) {
                    wrong.push(format!("{} uses `{used}`, which is not below `{module}`", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_use_only_the_crates_below_them() {
    let mut wrong = Vec::new();
    for (krate, allowed) in CRATES {
        let manifest = fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines().filter(|line| line.starts_with("denv-")) {
            let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
            if !allowed.contains(&name.as_str()) {
                wrong.push(format!("{krate} uses {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_are_short_enough_to_read() {
    let long: Vec<String> = sources(&root())
        .into_iter()
        .map(|file| (fs::read_to_string(&file).unwrap().lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .map(|(lines, file)| format!("{} has {lines} lines; cut it along its decisions", file.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn names_say_what_they_own() {
    let stem = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    let bad: Vec<_> =
        sources(&root()).into_iter().filter(|file| BANNED.contains(&stem(file).as_str())).collect();
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn the_pure_cores_know_no_clock_no_randomness_no_hash_order() {
    let banned = [
        "Timestamp::now",
        "Instant::now",
        "SystemTime",
        "HashMap",
        "HashSet",
        "std::env",
        "std::fs",
        "tokio",
        "tracing",
    ];
    let mut wrong = Vec::new();
    let cores = ["reconciler/gates/src", "reconciler/planner/src"];
    for file in cores.iter().flat_map(|core| sources(&root().join(core))) {
        let text = fs::read_to_string(&file).unwrap();
        wrong.extend(
            banned
                .iter()
                .filter(|word| text.contains(**word))
                .map(|word| format!("{}: {word}", file.display())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
