use std::fmt::Write as _;

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;
use crate::tree::Files;
use crate::{Catalog, Diagnostics};

fn catalog(engine: &str, command: &str, release: &str) -> Result<Catalog, Diagnostics> {
    let text = format!(
        "
apiVersion: denv.dev/v1
kind: Engine
metadata: {{name: e}}
spec: {{kind: {engine}, version: '1', command: {command}}}
---
apiVersion: denv.dev/v1
kind: Recipe
metadata: {{name: r}}
spec: {{model: m, engine: e, hardware: {{accelerator: h200}}, flags: [--recipe], env: {{A: b}}}}
---
apiVersion: denv.dev/v1
kind: Release
metadata: {{name: x}}
spec: {{engine: e, recipe: r, {release}}}
"
    );
    Catalog::from_files(&Files::from([("all.yaml".to_owned(), text.into_bytes())]))
}

fn of_release(engine: &str, command: &str, release: &str) -> LaunchTemplate {
    let catalog = catalog(engine, command, release).unwrap_or_else(|found| panic!("{found}"));
    catalog.rendered.into_values().next().unwrap().template
}

const CONFIG: &str = "config: {maxModelLen: 4096, maxConcurrentRequests: 4, flags: [--release]}";
const WEIGHED: &str = "model: {name: m, weights: {source: 'file:m.gguf', digest: \
                       'sha256:0000000000000000000000000000000000000000000000000000000000000000'}}";

fn of_pool(engine: &str, command: &str, replica: &str) -> LaunchTemplate {
    let topology = format!("topology: {{mode: aggregated, replica: {replica}}}");
    of_release(engine, command, &format!("model: {{name: m}}, {topology}, {CONFIG}"))
}

const PAIR: &str = "topology: {mode: disaggregated, prefill: {gpus: 4, parallelism: {tensor: 4}}, decode: {gpus: 64, \
                    parallelism: {data: 64, expert: 64}}}";

fn pair(engine: &str, command: &str, more: &str) -> LaunchTemplate {
    of_release(engine, command, &format!("model: {{name: m}}, {PAIR}{more}"))
}

/// Members on hosts of their own, each pool over as many hosts as is said.
fn places(template: &LaunchTemplate, hosts: &[u32]) -> Vec<MemberPlace> {
    let mut places = Vec::new();
    for (pool, hosts) in template.pools.iter().zip(hosts) {
        for _ in 0..*hosts {
            let number = places.len() + 1;
            places.push(MemberPlace {
                pool: pool.name,
                host: format!("h{number}").parse().unwrap(),
                address: format!("10.0.0.{number}"),
                gpus: (0..pool.needs.gpus.unwrap_or(0) / hosts).collect(),
                cpu_slots: 0,
                first_port: 30_000,
            });
        }
    }
    places
}

fn members(template: &LaunchTemplate, hosts: &[u32]) -> Vec<LaunchSpec> {
    template.at(&"chat.prod.0".into(), &places(template, hosts))
}

/// What a member runs, with the variables that are its own.
fn shown(spec: &LaunchSpec) -> String {
    let mut text = String::new();
    for (name, value) in spec.env.iter().filter(|(name, _)| !["A", "HF_TOKEN"].contains(&name.as_str())) {
        write!(text, "{name}={value} ").unwrap();
    }
    text + &spec.argv.join(" ")
}

fn alone(template: &LaunchTemplate) -> String {
    members(template, &[1])[0].argv.join(" ")
}

mod engines;
mod examples;
mod limits;
mod ranks;

#[test]
fn the_same_release_elsewhere_has_one_template_and_other_specs() {
    let template = of_pool("vllm", "[vllm]", "{gpus: 4, parallelism: {tensor: 4}}");
    let at = |gpus: &[u32]| {
        let mut places = places(&template, &[1]);
        places[0].gpus = gpus.to_vec();
        template.at(&"chat.prod.0".into(), &places).remove(0)
    };
    let (here, there) = (at(&[0, 1, 2, 3]), at(&[4, 5, 6, 7]));
    assert_eq!(here.env["CUDA_VISIBLE_DEVICES"], "0,1,2,3");
    assert_ne!(here.digest(), there.digest());
    assert_eq!(here.digest(), at(&[0, 1, 2, 3]).digest());
}

/// Digests of what runs are in the records of those who run it: a field that a release does not use may not show.
#[test]
fn a_plain_release_reads_as_it_always_did() {
    let topology = "topology: {mode: aggregated, replica: {gpus: 4, parallelism: {pipeline: 4}}}";
    let template = of_release("llama-cpp", "[llama-server]", &format!("{WEIGHED}, {topology}, {CONFIG}"));
    assert_snapshot!(serde_json::to_string(&template).unwrap(), @r#"{"engine":"llama-cpp","model":"m","env":{"A":"b"},"weights":{"source":"file:m.gguf","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000"},"probe":{"path":"/health","interval":"1s","timeout":"5s","failures":3},"metricsPath":"/metrics","startTimeout":"10m","stopTimeout":"30s","pools":[{"name":"replica","needs":{"gpus":4,"parallelism":{"tensor":1,"pipeline":4,"data":1}},"argv":["llama-server","--model","${weights}","--alias","m","--ctx-size","16384","--parallel","4","--metrics"],"flags":["--recipe","--release"]}]}"#);
    assert_eq!(template.limits(), []);
}
