//! The whole commands of the configurations that people start from.

use super::*;

fn example(folder: &str, release: &str) -> LaunchTemplate {
    let folder = format!("{}/../examples/manifests/{folder}", env!("CARGO_MANIFEST_DIR"));
    let files = crate::tree::read(std::path::Path::new(&folder)).unwrap();
    let mut catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    catalog.rendered.remove(&release.parse::<crate::Name>().unwrap()).unwrap().template
}

/// The commands of the members that are asked for, one a line.
fn commands(template: &LaunchTemplate, hosts: &[u32], which: &[usize]) -> String {
    let specs = members(template, hosts);
    which.iter().map(|at| shown(&specs[*at]) + "\n").collect()
}

#[test]
fn deepseek_in_a_rack() {
    let template = example("deepseek-disaggregated", "v41-flash-r1");
    let spread: Vec<Vec<u32>> = template.pools.iter().map(|pool| template.spread(pool).hosts).collect();
    assert_eq!(spread, [vec![1, 2, 4], vec![1, 2, 4, 8, 16, 32, 64]]);
    let specs = members(&template, &[1, 16]);
    assert_eq!(specs.len(), 17);
    assert_snapshot!(specs[0].argv.join("\n"), @"
    deepinfer-serve
    --host=127.0.0.1
    --port=${port}
    --model=deepseek-v4.1-flash
    --weights=${weights}
    --pool=prefill
    --rank=0
    --world-size=1
    --leader=10.0.0.1:30000
    --members=prefill/0=10.0.0.1:30000,decode/0=10.0.0.2:30000,decode/1=10.0.0.3:30000,decode/2=10.0.0.4:30000,decode/3=10.0.0.5:30000,decode/4=10.0.0.6:30000,decode/5=10.0.0.7:30000,decode/6=10.0.0.8:30000,decode/7=10.0.0.9:30000,decode/8=10.0.0.10:30000,decode/9=10.0.0.11:30000,decode/10=10.0.0.12:30000,decode/11=10.0.0.13:30000,decode/12=10.0.0.14:30000,decode/13=10.0.0.15:30000,decode/14=10.0.0.16:30000,decode/15=10.0.0.17:30000
    --kv-host-memory=549755813888
    --kv-disk=/var/lib/denv/kv:4398046511104
    --kv-share=stage
    ");
    assert_snapshot!(specs[16].argv.iter().filter(|it| !it.starts_with("--members")).cloned().collect::<Vec<_>>().join("\n"), @"
    deepinfer-serve
    --host=127.0.0.1
    --port=${port}
    --model=deepseek-v4.1-flash
    --weights=${weights}
    --pool=decode
    --rank=15
    --world-size=16
    --leader=10.0.0.2:30000
    --kv-host-memory=549755813888
    --kv-disk=/var/lib/denv/kv:4398046511104
    --kv-share=stage
    ");
}

#[test]
fn vllm_on_servers() {
    assert_snapshot!(commands(&example("vllm-8gpu", "llama-70b-r1"), &[1], &[0]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve meta-llama/Llama-3.3-70B-Instruct --served-model-name meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 4 --max-model-len 131072 --max-num-seqs 128 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --kv-cache-dtype fp8");
}

#[test]
fn sglang_on_servers() {
    assert_snapshot!(commands(&example("sglang", "qwen3-235b-r1"), &[1], &[0]), @"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python -m sglang.launch_server --model-path Qwen/Qwen3-235B-A22B --served-model-name Qwen/Qwen3-235B-A22B --tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8 --context-length 131072 --enable-metrics --enable-cache-report --host 127.0.0.1 --port ${port} --dist-init-addr 127.0.0.1:30000 --reasoning-parser qwen3 --tool-call-parser qwen25");
}

#[test]
fn tensorrt_llm_on_servers() {
    assert_snapshot!(commands(&example("tensorrt-llm", "llama-70b-fp8-r1"), &[1], &[0]), @"CUDA_VISIBLE_DEVICES=0,1 trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 --tp_size 2 --max_seq_len 65536 --max_batch_size 256 --host 127.0.0.1 --port ${port}");
}

#[test]
fn the_seller_and_the_cluster() {
    assert_snapshot!(commands(&example("token-seller", "llama-70b-r1"), &[1], &[0]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve meta-llama/Llama-3.3-70B-Instruct --served-model-name meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 4 --max-model-len 65536 --max-num-seqs 256 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port}");
    assert_snapshot!(commands(&example("token-seller", "qwen3-30b-r1"), &[1], &[0]), @"CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-30B-A3B --served-model-name Qwen/Qwen3-30B-A3B --tensor-parallel-size 1 --max-model-len 65536 --max-num-seqs 256 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port}");
    assert_snapshot!(commands(&example("kubernetes", "llama-8b-r1"), &[1], &[0]), @"CUDA_VISIBLE_DEVICES=0 vllm serve meta-llama/Llama-3.1-8B-Instruct --served-model-name meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 1 --max-model-len 32768 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port}");
}

#[test]
fn the_quickstart() {
    assert_snapshot!(commands(&example("quickstart", "smollm2-r1"), &[1], &[0]), @"llama-server --model ${weights} --alias smollm2-135m-instruct --ctx-size 4096 --parallel 2 --metrics --host 127.0.0.1 --port ${port} --threads 1");
}
