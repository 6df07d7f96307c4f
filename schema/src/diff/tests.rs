use std::fmt::Write as _;

use insta::assert_snapshot;

use super::*;
use crate::tree::Files;

fn files() -> Files {
    let read = |name: &str| {
        let path = format!("{}/../examples/manifests/quickstart/{name}", env!("CARGO_MANIFEST_DIR"));
        (name.to_owned(), std::fs::read(path).unwrap())
    };
    ["capacity.yaml", "software.yaml", "service.yaml", "commerce.yaml"].into_iter().map(read).collect()
}

fn edited(edits: &[(&str, &str, &str)]) -> Files {
    let mut files = files();
    for (file, from, to) in edits {
        let text = String::from_utf8(files[*file].clone()).unwrap();
        assert!(text.contains(from), "`{from}` is not in {file}");
        files.insert((*file).to_owned(), text.replace(from, to).into_bytes());
    }
    files
}

fn compare(before: &Files, after: &Files) -> Diff {
    let configuration = |files: &Files| Configuration::of(files).unwrap_or_else(|found| panic!("{found}"));
    let apart = diff(&configuration(before), &configuration(after));
    // What both sides have in common is left out where they were read together, and nothing else is.
    let [old, new] = Configuration::pair(before, after, &BTreeMap::new())
        .map(|side| side.unwrap_or_else(|found| panic!("{found}")));
    assert_eq!(diff(&old, &new), apart);
    apart
}

fn text(diff: &Diff) -> String {
    let mut text = String::new();
    for change in &diff.changes {
        writeln!(text, "{:?} {} {} {}:{}", change.change, change.kind, change.name, change.file, change.line)
            .unwrap();
        for field in &change.fields {
            let value = |value: &Option<serde_json::Value>| {
                value.as_ref().map_or("-".to_owned(), ToString::to_string)
            };
            let hidden = if field.hidden { " (hidden)" } else { "" };
            let (before, after) = (value(&field.before), value(&field.after));
            writeln!(text, "  {}:{} {before} -> {after}{hidden}", field.field, field.line).unwrap();
        }
        change.effects.iter().for_each(|effect| writeln!(text, "  => {effect}").unwrap());
    }
    text
}

#[test]
fn the_same_is_no_difference() {
    assert!(compare(&files(), &files()).is_empty());
    // Nor is a comment, a default that is written out, or another file.
    let mut otherwise =
        edited(&[("service.yaml", "spec:\n  environment:", "spec: # a word\n  environment:")]);
    let moved = otherwise.remove("commerce.yaml").unwrap();
    otherwise.insert("elsewhere/money.yaml".to_owned(), moved);
    assert_eq!(text(&compare(&files(), &otherwise)), "");
}

/// The release under another name, perhaps with another setting.
fn renamed(edits: &[(&str, &str, &str)]) -> Files {
    let mut all = vec![("service.yaml", "release: smollm2-r1", "release: r2")];
    all.push(("software.yaml", "name: smollm2-r1", "name: r2"));
    all.extend_from_slice(edits);
    edited(&all)
}

#[test]
fn a_stage_that_moves_to_another_release_restarts_its_units_or_only_renames() {
    let rename = renamed(&[("service.yaml", "bake: 3s", "bake: 4s")]);
    let shown = text(&compare(&files(), &rename));
    assert_snapshot!(shown.split_once("Changed ").unwrap().1, @r#"
    Stage chat/prod service.yaml:9
      spec.release:13 "smollm2-r1" -> "r2"
      spec.rollout.bake:21 "3s" -> "4s"
      => calls what chat/prod runs `r2`, which means the same; nothing restarts
      => only changes later rollouts: stage chat/prod
    "#);
    assert!(shown.contains("Added Release r2 software.yaml:23\n  spec.model.name:26 - -> "), "{shown}");
    let other = renamed(&[("software.yaml", "maxModelLen: 2048", "maxModelLen: 1024")]);
    let shown = text(&compare(&files(), &other));
    assert!(shown.contains("=> restarts 2 units of chat/prod: `smollm2-r1` to `r2`"), "{shown}");
    let same_name = edited(&[("software.yaml", "[--threads, \"1\"]", "[--threads, \"2\"]")]);
    assert_snapshot!(text(&compare(&files(), &same_name)), @r#"
    Changed Recipe smollm2-cpu software.yaml:12
      spec.flags:17 ["--threads","1"] -> ["--threads","2"]
      => restarts 2 units of chat/prod, since `smollm2-r1` means something else
    "#);
}

#[test]
fn a_stage_and_a_key_that_go_say_what_goes_with_them() {
    let mut after = files();
    after.remove("commerce.yaml");
    let text_of = text(&compare(&files(), &after));
    assert!(text_of.contains("Removed Key"), "{text_of}");
    assert!(text_of.contains("=> only changes who may ask"), "{text_of}");
}

#[test]
fn a_variable_that_may_be_a_secret_is_not_shown_and_its_change_is() {
    let with = |value: &str| {
        let spec = format!("  env: {{GREETING: {value}, PLACE: 'env:PLACE'}}\n  hardware:");
        edited(&[("software.yaml", "  hardware:", &spec)])
    };
    let diff = compare(&with("PLANTED-1"), &with("PLANTED-2"));
    let shown = text(&diff);
    assert!(shown.contains("spec.env.GREETING") && shown.contains("(hidden)"), "{shown}");
    let all = format!("{diff:?} {}", serde_json::to_string(&diff).unwrap());
    assert!(!all.contains("PLANTED"), "{all}");
    // What is a reference is no secret.
    assert!(text(&compare(&files(), &with("x"))).contains("\"env:PLACE\""));
}

#[test]
fn lists_are_compared_by_name() {
    let after =
        edited(&[("service.yaml", "  models:\n", "  models:\n    - {name: other, stage: chat/prod}\n")]);
    let shown = text(&compare(&files(), &after));
    assert!(shown.contains("spec.models[other].stage"), "{shown}");
    assert!(!shown.contains("spec.models[smollm2]"), "{shown}");
}
