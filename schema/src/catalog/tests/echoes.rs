//! One fault is one finding: what is there but faulty is not also missing.

use super::*;

/// Replaces several texts, and gives what is found, hints left out.
fn found(changes: &[(&str, &str, &str)]) -> Vec<String> {
    let mut files = quickstart();
    for (file, from, to) in changes {
        let text = String::from_utf8(files[*file].clone()).unwrap();
        assert!(text.contains(from), "`{from}` is not in {file}");
        files.insert((*file).to_owned(), text.replacen(from, to, 1).into_bytes());
    }
    let found = Catalog::from_files(&files).expect_err("these manifests are wrong");
    found.iter().map(|finding| finding.message.clone()).collect()
}

#[test]
fn a_faulty_document_is_not_missing() {
    let host_a = "{name: host-a}\nspec:\n  fleet: local\n  cpuSlots: 2";
    let cases: &[(&str, &str, &str, &str)] = &[
        ("service.yaml", "lostAfter: 30s", "lostAfter: soon", "`spec.lostAfter` is not valid"),
        (
            "service.yaml",
            "  environment: chat",
            "  environment: chat\n  colour: red",
            "unknown field `colour`",
        ),
        ("service.yaml", "stages: [prod]", "stages: prod", "`spec.stages` must be a list"),
        ("service.yaml", "kind: Stage", "kind: stage", "`stage` is not a kind"),
        ("service.yaml", "{name: prod}", "{name: Prod}", "`metadata.name` is not valid"),
        (
            "service.yaml",
            "    drainTimeout: 30s",
            "\tdrainTimeout: 30s",
            "a tab stands where only spaces may",
        ),
        ("service.yaml", "batches: [1, 100%]", "batches: [1, 100%", ""),
        ("service.yaml", "environment: chat", "environment: chatt", "there is no Environment `chatt`"),
        ("capacity.yaml", "{kind: owned}", "{kind: owned, x: 1}", "unknown field `x` in `spec`"),
        ("capacity.yaml", "region: local", "region: 1.10", "`spec.region` must be text"),
        (
            "capacity.yaml",
            host_a,
            "{name: host-a}\nspec: {fleet: local, cpuSlots: x}",
            "`spec.cpuSlots` must be",
        ),
        ("capacity.yaml", host_a, "{name: host-a}\nspec: {fleet: [local]}", "`spec.fleet` must be text"),
        (
            "capacity.yaml",
            host_a,
            "{name: host-a}\nspec: {fleet: local, fleet: local}",
            "the key `fleet` is written twice",
        ),
        ("capacity.yaml", "kind: Host", "kind: Hosts", "`Hosts` is not a kind"),
        ("software.yaml", "version: \"2026.10\"", "version: 2026.10", "`spec.version` must be text"),
        (
            "software.yaml",
            "flags: [--threads, \"1\"]",
            "flags: [--threads, 1]",
            "`spec.flags[1]` must be text",
        ),
        (
            "software.yaml",
            "mode: aggregated",
            "mode: split",
            "`spec.topology.mode` must be one of aggregated, disaggregated",
        ),
        ("commerce.yaml", "displayName: The demo's", "displayName: [x", ""),
        ("commerce.yaml", "kind: Customer", "kind: Custommer", "`Custommer` is not a kind"),
        ("commerce.yaml", "kind: Customer\n", "", "the document has no `kind`"),
        ("commerce.yaml", "apiVersion: denv.dev/v1\n", "", "the document has no `apiVersion`"),
        (
            "commerce.yaml",
            "apiVersion: denv.dev/v1\n",
            "apiVersion: denv.dev/v2\n",
            "`denv.dev/v2` is not a version",
        ),
    ];
    for (file, from, to, expected) in cases {
        let found = found(&[(file, from, to)]);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{to}: {found:#?}");
    }
}

#[test]
fn a_whole_file_that_cannot_be_read_has_no_echoes() {
    for bytes in [
        quickstart()["service.yaml"].iter().flat_map(|byte| [*byte, 0]).chain([0xff]).collect::<Vec<u8>>(),
        quickstart()["service.yaml"].iter().copied().chain([0xff]).collect(),
    ] {
        let mut files = quickstart();
        files.insert("service.yaml".to_owned(), bytes);
        files.insert(
            "more.yaml".to_owned(),
            b"apiVersion: denv.dev/v1\nkind: Endpoint\nmetadata: {name: more}\nspec: {models: [{name: m, stage: chat/prod}, {name: n, stage: chat/tset}]}\n".to_vec(),
        );
        assert_eq!(
            faults(&files),
            "more.yaml:4:63: there is no Stage `chat/tset`\n  hint: there is no Stage yet\nservice.yaml: the file is not UTF-8\n  hint: save it as UTF-8\n"
        );
    }
}

#[test]
fn a_fault_does_not_hide_others() {
    let found = found(&[
        ("service.yaml", "stages: [prod]", "stages: [prod"),
        ("service.yaml", "release: smollm2-r1", "release: smollm2-r2"),
        ("service.yaml", "stage: chat/prod", "stage: chat/prodd"),
        ("capacity.yaml", "cpuSlots: 2", "cpuSlots: 0"),
        ("capacity.yaml", "fleet: local", "fleet: locl"),
        ("software.yaml", "engine: llama-cpp", "engine: llama"),
    ]);
    for expected in [
        "there is no Release `smollm2-r2`",
        "there is no Stage `chat/prodd`",
        "`spec.cpuSlots` must be at least 1",
        "there is no Engine `llama`",
    ] {
        assert!(found.iter().any(|message| message == expected), "missing `{expected}` in {found:#?}");
    }
}
