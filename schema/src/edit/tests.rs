use insta::assert_snapshot;

use super::*;
use crate::diff::{Configuration, diff};

const SERVICE: &str = "\
# The service that people use.
apiVersion: denv.dev/v1
kind: Environment
metadata: {name: chat}   # short
spec:
  stages: [prod]
---
# What runs.
apiVersion: denv.dev/v1
kind: Stage
metadata:
  name: prod
  labels: {team: chat}
spec:
  environment: chat
  # Move it with care.
  release: r1            # since May
  fleets:
    # The rack by the window.
    - {name: local, units: {min: 2}}
  rollout:
    batches: [1, 100%]   # one first
    bake: 3s
---
apiVersion: denv.dev/v1
kind: Endpoint
metadata: {name: chat}
spec:
  models:
    - name: m
      stage: chat/prod
";

fn files(text: &str) -> Files {
    Files::from([("service.yaml".to_owned(), text.as_bytes().to_vec())])
}

fn applied(before: &str, wanted: &str) -> (String, Edit) {
    let before = files(before);
    let edit =
        apply(&before, &Reading::of(&before), &files(wanted)).unwrap_or_else(|error| panic!("{error}"));
    let after = edit.applied_to(&before);
    (String::from_utf8(after["service.yaml"].clone()).unwrap(), edit)
}

/// The second document, with texts replaced.
fn stage(edits: &[(&str, &str)]) -> String {
    let mut text = SERVICE.split("---\n").nth(1).unwrap().to_owned();
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    // Who applies has none of the comments.
    text.lines()
        .map(|line| line.split('#').next().unwrap().trim_end())
        .fold(String::new(), |all, line| if line.trim().is_empty() { all } else { format!("{all}{line}\n") })
}

/// The lines that differ.
fn changes(before: &str, after: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("-{line}\n"));
    let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+{line}\n"));
    gone.chain(come).collect()
}

#[test]
fn a_value_changes_in_its_line() {
    let wanted = stage(&[("release: r1", "release: r2"), ("bake: 3s", "bake: 1h"), ("min: 2", "min: 3")]);
    let (after, edit) = applied(SERVICE, &wanted);
    assert_eq!(edit.rewritten, []);
    assert_snapshot!(changes(SERVICE, &after), @r#"
    -  release: r1            # since May
    -    - {name: local, units: {min: 2}}
    -    bake: 3s
    +  release: r2            # since May
    +    - {name: local, units: {min: 3}}
    +    bake: 1h
    "#);
}

#[test]
fn fields_and_elements_come_and_go_where_they_belong() {
    let wanted = stage(&[
        ("    bake: 3s\n", "    drainTimeout: 30s\n"),
        ("batches: [1, 100%]", "batches: [1, 50%, 100%]"),
        ("  labels: {team: chat}\n", "  labels: {team: chat, tier: gold}\n"),
        ("units: {min: 2}}\n", "units: {min: 2}}\n    - {name: cloud, units: {min: 0}}\n"),
        ("  rollout:", "  routing: {maxInflightPerUnit: 8}\n  residency: [eu]\n  rollout:"),
    ]);
    let (after, edit) = applied(SERVICE, &wanted);
    assert_eq!(edit.rewritten, [], "{after}");
    assert_snapshot!(changes(SERVICE, &after), @r#"
    -  labels: {team: chat}
    -    batches: [1, 100%]   # one first
    -    bake: 3s
    +  labels: {team: chat, tier: gold}
    +    - name: cloud
    +      units:
    +        min: 0
    +    batches: [1, 50%, 100%]   # one first
    +    drainTimeout: 30s
    +  routing:
    +    maxInflightPerUnit: 8
    +  residency: [eu]
    "#);
}

#[test]
fn one_field_is_set_by_its_pointer() {
    let before = files(SERVICE);
    let key = ManifestKey { kind: Kind::Stage, name: "chat/prod".to_owned() };
    let edit = patch(&before, &Reading::of(&before), &key, "/spec/release", &"r2".into()).unwrap();
    let after = String::from_utf8(edit.applied_to(&before)["service.yaml"].clone()).unwrap();
    assert_eq!(after, SERVICE.replace("release: r1 ", "release: r2 "));
    assert!(patch(&before, &Reading::of(&before), &key, "/nowhere/release", &"r2".into()).is_err());
}

#[test]
fn what_says_the_same_is_not_touched() {
    let (after, edit) = applied(SERVICE, &stage(&[]));
    assert_eq!((after.as_str(), edit.files.len()), (SERVICE, 0));
}

#[test]
fn a_new_manifest_gets_a_file_of_its_own() {
    let wanted = "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {name: acme} # new\nspec: {}\n";
    let (after, edit) = applied(SERVICE, wanted);
    assert_eq!(after, SERVICE);
    assert_eq!(edit.files["customers/acme.yaml"].as_deref(), Some(wanted.as_bytes()));
}

#[test]
fn line_ends_stay_what_they_are() {
    let windows = SERVICE.replace('\n', "\r\n");
    let (after, edit) = applied(&windows, &stage(&[("release: r1", "release: r2")]));
    assert_eq!(edit.rewritten, []);
    assert_eq!(after, windows.replace("release: r1 ", "release: r2 "));
}

#[test]
fn a_manifest_is_taken_out_with_its_comments_and_an_empty_file_goes() {
    let before = files(SERVICE);
    let reading = Reading::of(&before);
    let keys: Vec<ManifestKey> = reading.entries().map(|entry| ManifestKey::of(&entry)).collect();
    let text = |edit: &Edit| String::from_utf8(edit.applied_to(&before)["service.yaml"].clone()).unwrap();
    let without_stage = text(&delete(&before, &reading, &keys[1..2]).unwrap());
    let parts: Vec<&str> = SERVICE.split("---\n").collect();
    assert_eq!(without_stage, [parts[0], parts[2]].join("---\n"));
    let without_first = text(&delete(&before, &reading, &keys[..1]).unwrap());
    assert_eq!(without_first, [parts[1], parts[2]].join("---\n"));
    let edit = delete(&before, &reading, &keys).unwrap();
    assert_eq!(edit.files["service.yaml"], None);
    let nobody = ManifestKey { kind: Kind::Stage, name: "chat/nobody".to_owned() };
    let error = delete(&before, &reading, &[nobody]).unwrap_err().to_string();
    assert_eq!(error, "there is no Stage `chat/nobody`");
}

/// The quickstart with its numbers, times and names changed, each applied over the quickstart.
#[test]
fn after_an_apply_there_is_no_difference_and_every_comment_is_there() {
    let folder = format!("{}/../examples/manifests/quickstart", env!("CARGO_MANIFEST_DIR"));
    let before = crate::tree::read(std::path::Path::new(&folder)).unwrap();
    let edits = [
        ("service.yaml", "maxUnavailable: 0", "maxUnavailable: 1"),
        ("service.yaml", "    onAlarm: rollback\n", ""),
        ("service.yaml", "[1, 100%]", "[1, 2]"),
        ("service.yaml", "lostAfter: 30s", "lostAfter: 31s\n  residency: []"),
        ("software.yaml", "[--threads, \"1\"]", "[--threads, \"2\", --flash-attn]"),
        ("software.yaml", "startTimeout: 60s", "startTimeout: 61s\n  env: {A: \"1.10\", B: \"yes\"}"),
        ("software.yaml", "version: \"2026.10\"", "version: \"2026.11\""),
        ("commerce.yaml", "The demo's own customer", "Somebody else"),
    ];
    for (file, from, to) in edits {
        let text = String::from_utf8(before[file].clone()).unwrap();
        assert!(text.contains(from), "{from}");
        let bare: String = text
            .replacen(from, to, 1)
            .lines()
            .map(|line| match line.find(" #") {
                Some(at) => format!("{}\n", line[..at].trim_end()),
                None if line.starts_with('#') => String::new(),
                None => format!("{line}\n"),
            })
            .collect();
        let wanted = Files::from([("stdin".to_owned(), bare.into_bytes())]);
        let edit = apply(&before, &Reading::of(&before), &wanted).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(edit.rewritten, [], "{to}");
        let after = edit.applied_to(&before);
        let mut meant = before.clone();
        meant.insert(file.to_owned(), wanted["stdin"].clone());
        let configuration =
            |files: &Files| Configuration { reading: Reading::of(files), catalog: crate::Catalog::default() };
        assert!(diff(&configuration(&meant), &configuration(&after)).is_empty(), "{to}");
        let comments = |files: &Files| {
            let text = String::from_utf8(files[file].clone()).unwrap();
            text.lines().filter(|line| line.contains('#')).count()
        };
        assert_eq!(comments(&before), comments(&after), "{to}");
    }
}
