mod crossings;
mod echoes;
mod kinds;
mod mutations;
mod rules;
mod shapes;
mod traps;

use super::*;
use insta::assert_snapshot;

const QUICKSTART: [(&str, &str); 4] = [
    ("capacity.yaml", include_str!("../../../../examples/manifests/quickstart/capacity.yaml")),
    ("software.yaml", include_str!("../../../../examples/manifests/quickstart/software.yaml")),
    ("service.yaml", include_str!("../../../../examples/manifests/quickstart/service.yaml")),
    ("commerce.yaml", include_str!("../../../../examples/manifests/quickstart/commerce.yaml")),
];

fn quickstart() -> Files {
    QUICKSTART.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

/// The quickstart with one text replaced in one file.
fn with(file: &str, from: &str, to: &str) -> Files {
    let mut files = quickstart();
    let text = String::from_utf8(files[file].clone()).unwrap();
    assert!(text.contains(from), "`{from}` is not in {file}");
    files.insert(file.to_owned(), text.replacen(from, to, 1).into_bytes());
    files
}

fn faults(files: &Files) -> String {
    Catalog::from_files(files).expect_err("these manifests are wrong").to_string()
}

#[test]
fn the_quickstart_is_valid() {
    let catalog = Catalog::from_files(&quickstart()).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(catalog.stages.len(), 1);
    assert_eq!(catalog.hosts.len(), 2);
    assert_eq!(catalog.rendered.len(), catalog.releases.len());
}

#[test]
fn a_reference_to_nothing_has_its_place_and_the_nearest_name() {
    let files = with("service.yaml", "release: smollm2-r1", "release: smollm2-r11");
    assert_snapshot!(faults(&files), @r"
    service.yaml:13:12: there is no Release `smollm2-r11`
      hint: did you mean `smollm2-r1`?
    ");
}

#[test]
fn everything_is_reported_at_once() {
    let mut files = with("service.yaml", "environment: chat", "enviroment: chat");
    let capacity = String::from_utf8(files["capacity.yaml"].clone()).unwrap();
    let capacity =
        capacity.replacen("cpuSlots: 2", "cpuSlots: two", 1).replacen("region: local", "region: 1.10", 1);
    files.insert("capacity.yaml".to_owned(), capacity.into_bytes());
    files.insert("more.yaml".to_owned(), b"apiVersion: denv.dev/v1\nkind: Relese\n".to_vec());
    files.insert("tab.yaml".to_owned(), b"a:\n\tb: 1\n".to_vec());
    files.insert("utf16.yaml".to_owned(), vec![0xff, 0xfe, 0x00]);
    let found = faults(&files);
    for expected in [
        "unknown field `enviroment` in `spec`",
        "hint: did you mean `environment`?",
        "`spec` lacks the field `environment`",
        "`spec.cpuSlots` must be a whole number, and is text",
        "`spec.region` must be text, and is a number",
        "hint: put it in quotes",
        "more.yaml:2:7: `Relese` is not a kind",
        "hint: did you mean `Release`?",
        "tab.yaml:2:",
        "utf16.yaml: the file is not UTF-8",
    ] {
        assert!(found.contains(expected), "missing `{expected}` in\n{found}");
    }
}

#[test]
fn duplicate_names_say_where_the_first_one_is() {
    let mut files = quickstart();
    files.insert("z.yaml".to_owned(), files["commerce.yaml"].clone());
    let found = faults(&files);
    assert!(found.contains("z.yaml:3:18: Customer `demo` exists already, at commerce.yaml:3"), "{found}");
}

#[test]
fn contradictions_are_found_with_a_way_out() {
    let cases = [
        ("service.yaml", "strategy: surge", "strategy: replace", "`replace` stops a unit first"),
        (
            "service.yaml",
            "batches: [1, 100%]",
            "batches: [2, 1]",
            "batch 2 is smaller than the one before it",
        ),
        (
            "service.yaml",
            "batches: [1, 100%]",
            "batches: [1]",
            "the last batch leaves units on the old release",
        ),
        (
            "service.yaml",
            "units: {min: 2}",
            "units: {min: 2, max: 5}",
            "5 units of 1 CPU slot each do not fit: the 2 hosts that fleet `local` may have hold 4",
        ),
        ("service.yaml", "stages: [prod]", "stages: [prod, prod]", "stage `prod` is listed twice"),
        ("capacity.yaml", "{min: 2, max: 2}", "{min: 0, max: 1}", "2 Hosts say they are of this fleet"),
        ("capacity.yaml", "accelerator: cpu", "accelerator: h200", "release `smollm2-r1` is for `cpu`"),
        (
            "software.yaml",
            "replica: {cpuSlots: 1}",
            "replica: {gpus: 2, parallelism: {tensor: 4}}",
            "is 4, and the replica has 2 GPUs",
        ),
        ("software.yaml", "replica: {cpuSlots: 1}", "replica: {}", "either `gpus` or `cpuSlots`"),
        (
            "software.yaml",
            "command: [llama-server]",
            "command: [llama-server, \"${prt}\"]",
            "`${prt}` is not filled in",
        ),
    ];
    for (file, from, to, expected) in cases {
        let found = faults(&with(file, from, to));
        assert!(found.contains(expected), "missing `{expected}` in\n{found}");
    }
}

#[test]
fn an_inline_secret_is_an_error_that_does_not_repeat_it() {
    let found =
        faults(&with("software.yaml", "startTimeout:", "env: {HF_TOKEN: hf_planted}\n  startTimeout:"));
    assert!(found.contains("`HF_TOKEN` looks like a secret"), "{found}");
    assert!(!found.contains("hf_planted"), "{found}");

    // A key where its hash belongs.
    let commerce = String::from_utf8(quickstart()["commerce.yaml"].clone()).unwrap();
    let start = commerce.find("sha256:").unwrap();
    let hash = &commerce[start..start + 71];
    let found = faults(&with("commerce.yaml", hash, "sk-denv-planted"));
    assert!(found.contains("`spec.hash` is not valid"), "{found}");
    assert!(!found.contains("planted"), "{found}");
}

#[test]
fn a_release_that_ran_cannot_change() {
    let before = Catalog::from_files(&quickstart()).unwrap();
    let deployed: BTreeMap<Name, Digest> =
        before.rendered.iter().map(|(name, rendered)| (name.clone(), rendered.digest)).collect();
    assert!(Catalog::from_files_after(&quickstart(), &deployed).is_ok());
    let changed = with("software.yaml", "maxModelLen: 2048", "maxModelLen: 1024");
    let found = Catalog::from_files_after(&changed, &deployed).unwrap_err().to_string();
    assert!(found.contains("release `smollm2-r1` was deployed and would mean something else now"), "{found}");
    // Editing what is around it is free.
    let comment = with("software.yaml", "kind: Release", "kind: Release # a note");
    assert!(Catalog::from_files_after(&comment, &deployed).is_ok());
}
