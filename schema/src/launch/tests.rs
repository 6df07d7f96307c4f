use super::*;
use crate::Catalog;
use crate::manifest::PoolName;
use crate::tree::Files;

fn template(engine: &str, command: &str, weights: bool) -> LaunchTemplate {
    of_pool(engine, command, weights, "{gpus: 4, parallelism: {tensor: 2, data: 2}}")
}

fn of_pool(engine: &str, command: &str, weights: bool, replica: &str) -> LaunchTemplate {
    let weights = if weights {
        "weights: {source: 'file:m.gguf', digest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'}"
    } else {
        ""
    };
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
spec:
  model:
    name: m
    {weights}
  engine: e
  recipe: r
  topology: {{mode: aggregated, replica: {replica}}}
  config: {{maxModelLen: 4096, maxConcurrentRequests: 4, flags: [--release]}}
"
    );
    let files = Files::from([("all.yaml".to_owned(), text.into_bytes())]);
    let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    catalog.rendered.into_values().next().unwrap().template
}

#[test]
fn llama_cpp_gets_its_flags() {
    let argv = template("llama-cpp", "[llama-server]", true).pools[0].argv.join(" ");
    insta::assert_snapshot!(argv, @"llama-server --host 127.0.0.1 --port ${port} --model ${weights} --alias m --ctx-size 16384 --parallel 4 --metrics --recipe --release");
}

#[test]
fn vllm_gets_its_flags() {
    let argv = template("vllm", "[vllm]", false).pools[0].argv.join(" ");
    insta::assert_snapshot!(argv, @"vllm serve m --host 127.0.0.1 --port ${port} --served-model-name m --tensor-parallel-size 2 --data-parallel-size 2 --api-server-count 1 --max-model-len 4096 --max-num-seqs 4 --enable-prompt-tokens-details --shutdown-timeout 30 --recipe --release");
}

#[test]
fn a_command_is_left_alone_but_for_what_it_asks() {
    let argv = template("command", "[serve, '--port=${port}', '${model}', '${weights}']", true).pools[0]
        .argv
        .join(" ");
    insta::assert_snapshot!(argv, @"serve --port=${port} m ${weights} --recipe --release");
}

#[test]
fn the_same_release_elsewhere_has_one_template_and_other_specs() {
    let template = template("vllm", "[vllm]", false);
    let at = |gpus: &[u32]| {
        let place = MemberPlace {
            pool: PoolName::Replica,
            host: "h".parse().unwrap(),
            address: "10.0.0.1".to_owned(),
            gpus: gpus.to_vec(),
            first_port: 30_000,
        };
        template.at(&"chat.prod.0".into(), &[place]).remove(0)
    };
    let (here, there) = (at(&[0, 1, 2, 3]), at(&[4, 5, 6, 7]));
    assert_eq!(here.env["CUDA_VISIBLE_DEVICES"], "0,1,2,3");
    assert_ne!(here.digest(), there.digest());
    assert_eq!(here.digest(), at(&[0, 1, 2, 3]).digest());
}

#[test]
fn sglang_gets_its_flags() {
    let argv = template("sglang", "[python, -m, sglang.launch_server]", false).pools[0].argv.join(" ");
    insta::assert_snapshot!(argv, @"python -m sglang.launch_server --model-path m --host 127.0.0.1 --port ${port} --served-model-name m --tp-size 2 --dp-size 2 --context-length 4096 --max-running-requests 4 --enable-metrics --enable-cache-report --recipe --release");
}

#[test]
fn tensorrt_llm_gets_its_flags() {
    let text = "{gpus: 8, parallelism: {tensor: 8, expert: 8}}";
    let template = of_pool("tensorrt-llm", "[trtllm-serve]", false, text);
    insta::assert_snapshot!(template.pools[0].argv.join(" "), @"trtllm-serve m --host 127.0.0.1 --port ${port} --tp_size 8 --ep_size 8 --max_seq_len 4096 --max_batch_size 4 --recipe --release");
    assert_eq!(template.metrics_path.as_deref(), Some("/prometheus/metrics"));
}

#[test]
fn experts_are_spread_in_each_engines_own_way() {
    let wide = "{gpus: 8, parallelism: {data: 8, expert: 8}}";
    insta::assert_snapshot!(of_pool("vllm", "[vllm]", false, wide).pools[0].argv.join(" "), @"vllm serve m --host 127.0.0.1 --port ${port} --served-model-name m --tensor-parallel-size 1 --data-parallel-size 8 --api-server-count 1 --enable-expert-parallel --max-model-len 4096 --max-num-seqs 4 --enable-prompt-tokens-details --shutdown-timeout 30 --recipe --release");
    insta::assert_snapshot!(of_pool("sglang", "[sglang]", false, wide).pools[0].argv.join(" "), @"sglang --model-path m --host 127.0.0.1 --port ${port} --served-model-name m --tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8 --context-length 4096 --max-running-requests 4 --enable-metrics --enable-cache-report --recipe --release");
}

/// Digests of what runs are in the records of those who run it: a field that a release does not use may not show.
#[test]
fn a_plain_release_reads_as_it_always_did() {
    let template = template("llama-cpp", "[llama-server]", true);
    insta::assert_snapshot!(serde_json::to_string(&template).unwrap(), @r#"{"engine":"llama-cpp","model":"m","env":{"A":"b"},"weights":{"source":"file:m.gguf","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000"},"probe":{"path":"/health","interval":"1s","timeout":"5s","failures":3},"metricsPath":"/metrics","startTimeout":"10m","stopTimeout":"30s","pools":[{"name":"replica","needs":{"gpus":4,"parallelism":{"tensor":2,"pipeline":1,"data":2}},"argv":["llama-server","--host","127.0.0.1","--port","${port}","--model","${weights}","--alias","m","--ctx-size","16384","--parallel","4","--metrics","--recipe","--release"]}]}"#);
    assert_eq!(template.unsupported(), None);
}
