//! How long it takes to judge a configuration: `cargo bench -p denv-schema`. On one of two busy cores: 1,000 manifests
//! in 24 ms, 10,000 in 250 ms; 10,000 of which 1,000 refer to nothing, in 0.4 s; 12,500 with 10,000
//! findings in 0.7 s.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use denv_schema::tree::Files;
use denv_schema::{Catalog, Reading};

fn main() {
    divan::main();
}

/// About `manifests` manifests of all kinds, ten services to a file of each sort.
fn configuration(manifests: usize) -> Files {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |file: String, kind: &str, name: &str, spec: &str| {
        let text = texts.entry(file).or_default();
        write!(text, "---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}")
            .expect("writing to a String cannot fail");
    };
    add("base.yaml".to_owned(), "Provider", "own", "  kind: owned\n");
    let engine = "  kind: vllm\n  version: \"0.11\"\n  command: [vllm]\n";
    add("base.yaml".to_owned(), "Engine", "vllm", engine);
    for i in 0..manifests / 10 {
        let file = |sort: &str| format!("{sort}/{}.yaml", i / 10);
        let fleet = "  provider: own\n  region: fra\n  purchase: owned\n  accelerator: h200\n  hosts: {min: 2, max: 4}\n";
        add(file("capacity"), "Fleet", &format!("fleet-{i}"), fleet);
        for letter in ["a", "b"] {
            add(file("capacity"), "Host", &format!("host-{i}-{letter}"), &format!("  fleet: fleet-{i}\n"));
        }
        let recipe =
            "  model: m\n  engine: vllm\n  hardware: {accelerator: h200}\n  flags: [--a, b]\n  env: {A: b}\n";
        add(file("software"), "Recipe", &format!("recipe-{i}"), recipe);
        let release = format!(
            "  model: {{name: m}}\n  engine: vllm\n  recipe: recipe-{i}\n  topology:\n    mode: aggregated\n    \
             replica: {{gpus: 8, parallelism: {{tensor: 8}}}}\n  config: {{maxModelLen: 131072}}\n"
        );
        add(file("software"), "Release", &format!("release-{i}"), &release);
        add(file("service"), "Environment", &format!("env-{i}"), "  stages: [prod]\n");
        let stage = format!(
            "  environment: env-{i}\n  release: release-{i}\n  fleets:\n    - {{name: fleet-{i}, units: {{min: 2}}}}\n  \
             rollout:\n    batches: [1, 25%, 100%]\n    bake: 10m\n    drainTimeout: 5m\n"
        );
        add(file("service"), "Stage", "prod", &stage);
        let endpoint = format!("  models:\n    - {{name: m-{i}, stage: env-{i}/prod}}\n");
        add(file("service"), "Endpoint", &format!("endpoint-{i}"), &endpoint);
        let customer = format!("  displayName: Customer {i}\n  endpoints: [endpoint-{i}]\n");
        add(file("commerce"), "Customer", &format!("customer-{i}"), &customer);
        add(
            file("commerce"),
            "Key",
            &format!("key-{i}"),
            &format!("  customer: customer-{i}\n  hash: sha256:{i:064x}\n"),
        );
    }
    texts.into_iter().map(|(file, text)| (file, text.into_bytes())).collect()
}

#[divan::bench(args = [1_000, 10_000], sample_count = 20)]
fn valid(bencher: divan::Bencher<'_, '_>, manifests: usize) {
    let files = configuration(manifests);
    assert_eq!(Catalog::from_files(&files).map(|catalog| catalog.keys.len()), Ok(manifests / 10));
    bencher.bench(|| Catalog::from_files(&files));
}

/// Every Stage refers to a release that does not exist.
#[divan::bench(args = [1_000, 10_000], sample_count = 20)]
fn faulty(bencher: divan::Bencher<'_, '_>, manifests: usize) {
    let mut files = configuration(manifests);
    for (_, bytes) in files.iter_mut().filter(|(file, _)| file.starts_with("service")) {
        *bytes = String::from_utf8_lossy(bytes).replace("release: release", "release: relaese").into_bytes();
    }
    assert_eq!(Catalog::from_files(&files).map_err(|found| found.len()), Err(manifests / 10));
    bencher.bench(|| Catalog::from_files(&files));
}

/// A revision that changes one file of many.
#[divan::bench(sample_count = 20)]
fn one_file_of_10_000_manifests(bencher: divan::Bencher<'_, '_>) {
    let mut files = configuration(10_000);
    let before = Reading::of(&files);
    let (_, bytes) =
        files.iter_mut().find(|(file, _)| file.starts_with("service")).expect("there are services");
    *bytes = String::from_utf8_lossy(bytes).replace("bake: 10m", "bake: 11m").into_bytes();
    bencher.bench(|| before.again(&files).catalog(&BTreeMap::new()));
}

/// Nearly every manifest refers to something that does not exist: 10,000 findings, each with a hint.
#[divan::bench(sample_count = 5)]
fn ten_thousand_findings(bencher: divan::Bencher<'_, '_>) {
    let misspelt = [
        ("fleet: fleet-", "fleet: flete-"),
        ("recipe: recipe-", "recipe: recpie-"),
        ("release: release-", "release: relaese-"),
        ("stage: env-", "stage: evn-"),
        ("endpoints: [endpoint-", "endpoints: [endpiont-"),
        ("customer: customer-", "customer: cutsomer-"),
    ];
    let mut files = configuration(12_500);
    for bytes in files.values_mut() {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let text = misspelt.iter().fold(text, |text, (right, wrong)| text.replace(right, wrong));
        *bytes = text.into_bytes();
    }
    assert_eq!(Catalog::from_files(&files).map_err(|found| found.len()), Err(10_000));
    bencher.bench(|| Catalog::from_files(&files));
}
