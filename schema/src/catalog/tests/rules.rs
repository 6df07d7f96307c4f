//! The rule of a type is told wherever a value breaks it, also where the field has a description of its own.

use super::*;

/// What is found, one line each, hints left out.
fn messages(files: &Files) -> Vec<String> {
    let found = Catalog::from_files(files).expect_err("these manifests are wrong");
    found.iter().map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.message)).collect()
}

const NAME: &str = "a name has lower-case letters, digits, `-` and `.`, begins and ends with a letter or digit, and is \
                    at most 63 characters long";
const DIGEST: &str = "a digest is written `sha256:` and 64 lower-case hexadecimal digits";
const PERIOD: &str = "a length of time is written `500ms`, `30s`, `5m`, `2h`, `1d` or `1h30m`, largest unit first, and \
                      is at most a century";
const SOURCE: &str = "a source is `file:` and a path, without spaces: `file:model.gguf` or `file:/srv/model.gguf`; or it \
                      is like `s3://bucket/path`, `https://host/path` or `hf:owner/name`, without a user or password";
const STAGE: &str = "a stage is written `environment/stage`, in lower-case letters, digits and `-`";
const AMOUNT: &str = "write a number of units, or a share of them from `0%` to `100%`";

#[test]
fn every_type_says_its_rule() {
    let digest = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
    let weights = "file:smollm2-135m-instruct.gguf ";
    let long = "name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (file, from, to, field, rule) in [
        ("capacity.yaml", "{name: laptop}", "{name: Laptop}", "metadata.name", NAME),
        ("capacity.yaml", "name: laptop", long, "metadata.name", NAME),
        ("capacity.yaml", "accelerator: cpu", "accelerator: C_P_U", "spec.accelerator", NAME),
        ("software.yaml", digest, "B1", "spec.model.weights.digest", DIGEST),
        ("software.yaml", weights, "s3://user:password@models/x ", "spec.model.weights.source", SOURCE),
        ("software.yaml", weights, "file://host/x ", "spec.model.weights.source", SOURCE),
        ("software.yaml", "startTimeout: 60s", "startTimeout: 60 s", "spec.startTimeout", PERIOD),
        ("service.yaml", "lostAfter: 30s", "lostAfter: 99999d", "spec.lostAfter", PERIOD),
        ("service.yaml", "lostAfter: 30s", "lostAfter: 99999999999999999999d", "spec.lostAfter", PERIOD),
        ("service.yaml", "bake: 3s", "bake: 3s1m", "spec.rollout.bake", PERIOD),
        ("service.yaml", "stage: chat/prod", "stage: prod", "spec.models[0].stage", STAGE),
        ("service.yaml", "[1, 100%]", "[1, 200%]", "spec.rollout.batches[1]", AMOUNT),
        ("commerce.yaml", "0000000000\n", "\n", "spec.hash", DIGEST),
    ] {
        let found = messages(&with(file, from, to));
        let expected = format!(": `{field}` is not valid: {rule}");
        assert!(found.len() == 1 && found[0].ends_with(&expected), "no `{expected}` in {found:#?}");
    }
}

#[test]
fn every_other_rule_has_words() {
    for (file, from, to, expected) in [
        ("service.yaml", "[1, 100%]", "[-1, 100%]", "`spec.rollout.batches[0]` must be at least 0"),
        ("service.yaml", "[1, 100%]", "[]", "`spec.rollout.batches` must not be empty"),
        ("service.yaml", "[1, 100%]", "[1.0, 100%]", "a whole number is written without a point"),
        ("service.yaml", "surge", "srge", "`spec.rollout.strategy` must be one of surge, replace, auto"),
        ("service.yaml", "{min: 2}", "{min: 20000}", "`spec.fleets[0].units.min` must be at most 10000"),
        ("capacity.yaml", "max: 2}", "max: 4294967296}", "`spec.hosts.max` must be at most 4294967295"),
        (
            "capacity.yaml",
            "{kind: owned}",
            "{kind: rented}",
            "`spec.kind` must be one of owned, kubernetes, aws, gcp, azure, oci, lambda, coreweave, crusoe, nebius",
        ),
        ("capacity.yaml", "cpuSlots: 2", "cpuSlots:", "`spec.cpuSlots` must be a whole number, and is empty"),
    ] {
        let found = messages(&with(file, from, to));
        assert!(found.len() == 1 && found[0].ends_with(expected), "no `{expected}` in {found:#?}");
    }
}

#[test]
fn every_pattern_of_a_schema_has_words() {
    fn wordless(schema: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        if let Some(object) = schema.as_object() {
            let is_rule = object.get("pattern").is_some_and(serde_json::Value::is_string);
            if is_rule && !object.contains_key("patternErrorMessage") {
                found.push(path.to_owned());
            }
            object.iter().for_each(|(key, value)| wordless(value, &format!("{path}/{key}"), found));
        }
    }
    let mut found = Vec::new();
    for kind in crate::manifest::Kind::ALL {
        wordless(&kind.json_schema().to_value(), kind.as_str(), &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn an_unknown_field_has_the_nearest_as_a_hint_at_any_depth() {
    for (file, from, to, expected) in [
        ("software.yaml", "maxModelLen:", "maxModelLength:", "did you mean `maxModelLen`?"),
        ("software.yaml", "cpuSlots:", "cpuSlot:", "did you mean `cpuSlots`?"),
        (
            "software.yaml",
            "{cpuSlots: 1}",
            "{cpuSlots: 1, parallelism: {tenser: 1}}",
            "did you mean `tensor`?",
        ),
        ("software.yaml", "      source:", "      sorce:", "did you mean `source`?"),
        ("service.yaml", "drainTimeout:", "drainTimout:", "did you mean `drainTimeout`?"),
        ("service.yaml", "maxInflightPerUnit:", "perUnit:", "the fields `policy`, `maxInflightPerUnit`"),
        ("service.yaml", "{min: 2}", "{mn: 2}", "did you mean `min`?"),
        (
            "service.yaml",
            "metadata: {name: prod}",
            "metadata: {name: prod, label: {}}",
            "did you mean `labels`?",
        ),
        ("service.yaml", "spec:", "specs:", "did you mean `spec`?"),
    ] {
        let found = faults(&with(file, from, to));
        assert!(found.contains("unknown field") && found.contains(expected), "{found}");
    }
}

#[test]
fn counts_agree_with_their_words() {
    let found = faults(&with("capacity.yaml", "{min: 2, max: 2}", "{min: 3, max: 3}"));
    assert!(found.contains("2 Hosts say they are of this fleet, and it has at least 3"), "{found}");
    let mut files = with("capacity.yaml", "{min: 2, max: 2}", "{min: 0, max: 0}");
    let text = String::from_utf8(files["capacity.yaml"].clone()).unwrap();
    let last = text.rfind("---").unwrap();
    files.insert("capacity.yaml".to_owned(), text.as_bytes()[..last].to_vec());
    let found = faults(&files);
    assert!(found.contains("1 Host says it is of this fleet, and it has at most 0"), "{found}");
    let found = faults(&with("software.yaml", "{cpuSlots: 1}", "{gpus: 1, parallelism: {tensor: 2}}"));
    assert!(found.contains("parallelism is 2, and the replica has 1 GPU\n"), "{found}");
}

#[test]
fn references_to_secrets_must_be_ones_that_denvd_can_follow() {
    let env = |env: &str| with("software.yaml", "startTimeout:", &format!("env: {{{env}}}\n  startTimeout:"));
    for good in [
        "HF_TOKEN: 'env:HF_TOKEN'",
        "HF_TOKEN: 'file:/etc/denv/hf'",
        "MAX_TOKENS: '5'",
        "A: 'file:/x/${model}'",
    ] {
        assert!(Catalog::from_files(&env(good)).is_ok(), "{good}");
    }
    for (bad, expected) in [
        ("HF_TOKEN: 'env:'", "the reference that `HF_TOKEN` takes its value from is not valid"),
        ("A: 'file:relative'", "hint: write `file:` and an absolute path on the host"),
        ("A: 'env:DENV_JOIN_TOKEN'", "hint: denvd's own settings (`DENV_…`) are not for engines"),
        ("DENV_PORT: '1'", "`DENV_PORT` would take the place of a variable that denvd sets"),
        ("'A=B': '1'", "`A=B` is not a name of a variable"),
        ("HF_TOKEN: ''", "`HF_TOKEN` looks like a secret"),
    ] {
        let found = faults(&env(bad));
        assert!(found.contains(expected), "{found}");
    }
}
