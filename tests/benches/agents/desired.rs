//! What should run on the simulated hosts.

use std::fmt::Write as _;
use std::path::Path;

pub(crate) const HOSTS: usize = 10_000;
pub(crate) const STAGES: usize = 10;
/// Of each stage.
pub(crate) const UNITS: usize = 100;

pub(crate) fn host(number: usize) -> String {
    format!("host-{number:05}")
}

pub(crate) fn stage(number: usize) -> String {
    format!("env-{number}/prod")
}

/// The text of a manifest.
fn manifest(kind: &str, name: &str, spec: &str) -> String {
    format!("---\napiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

/// All stages at one release, to be reached in these batches.
pub(crate) fn stages(release: &str, batches: &str) -> String {
    let stage = |number| {
        let spec = format!(
            "environment: env-{number}, release: {release}, fleets: [{{name: racks, units: {{min: {UNITS}}}}}], \
             rollout: {{strategy: surge, batches: {batches}, bake: 0s}}"
        );
        manifest("Stage", "prod", &spec)
    };
    (0..STAGES).map(stage).collect()
}

/// Everything else: owned hosts of eight accelerators, and two releases.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    let mut base = manifest("Provider", "own", "kind: owned");
    base += &manifest(
        "Fleet",
        "racks",
        "provider: own, region: fra, purchase: owned, accelerator: h200, hosts: {min: 0, max: 99999}",
    );
    base += &manifest("Engine", "vllm", "kind: vllm, version: '0.32', command: [vllm, serve]");
    base += &manifest("Recipe", "tp8", "model: m, engine: vllm, hardware: {accelerator: h200}");
    for release in ["one", "two"] {
        let spec = format!(
            "model: {{name: m}}, engine: vllm, recipe: tp8, config: {{flags: [--served-as, {release}]}}, \
             topology: {{mode: aggregated, replica: {{gpus: 8, parallelism: {{tensor: 8}}}}}}"
        );
        base += &manifest("Release", release, &spec);
    }
    for number in 0..STAGES {
        base += &manifest("Environment", &format!("env-{number}"), "stages: [prod]");
    }
    std::fs::write(folder.join("base.yaml"), base)?;
    let mut hosts = String::new();
    for number in 0..HOSTS {
        write!(hosts, "{}", manifest("Host", &host(number), "fleet: racks"))?;
        if number % 100 == 99 {
            std::fs::write(folder.join(format!("hosts-{:03}.yaml", number / 100)), &hosts)?;
            hosts.clear();
        }
    }
    std::fs::write(folder.join("stages.yaml"), stages("one", "[100%]"))?;
    let key = format!("customer: demo, hash: sha256:{}", "0".repeat(64));
    let commerce = manifest("Customer", "demo", "") + &manifest("Key", "demo", &key);
    Ok(std::fs::write(folder.join("commerce.yaml"), commerce)?)
}
