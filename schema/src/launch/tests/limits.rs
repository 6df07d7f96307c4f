//! What an engine can't do is told with its field, and a way out.

use super::*;

fn found(engine: &str, command: &str, release: &str) -> String {
    let found = catalog(engine, command, &format!("model: {{name: m}}, {release}")).err().unwrap_or_default();
    found.iter().fold(String::new(), |text, finding| {
        let hint = finding.hint.as_deref().unwrap_or_default();
        text + &format!("{}: {}\n  hint: {hint}\n", finding.code, finding.message)
    })
}

const TIERS: &str =
    "kvCache: {tiers: [{kind: gpu}, {kind: host-memory, size: 64Gi}, {kind: nvme, size: 1Ti, path: /kv}]}";
const SHARED: &str = "kvCache: {tiers: [{kind: gpu}], share: stage}";
const ONE: &str = "topology: {mode: aggregated, replica: {gpus: 8, parallelism: {tensor: 8}}}";

#[test]
fn of_vllm() {
    assert_snapshot!(found("vllm", "[vllm]", &format!("{ONE}, {TIERS}")), @"
    engine-limit: vLLM fills the folder without a limit
      hint: leave `size` out, and give `path` a file system of that size
    ");
    assert_snapshot!(found("vllm", "[vllm]", &format!("{ONE}, {SHARED}")), @"
    engine-limit: sharing a KV cache among all units of a stage needs a store that all of them reach, such as LMCache or Mooncake, and denv runs none
      hint: write `share: unit`
    ");
    let disk = "kvCache: {tiers: [{kind: gpu}, {kind: nvme, path: /kv}]}";
    assert_snapshot!(found("vllm", "[vllm]", &format!("{ONE}, {disk}")), @"
    engine-limit: vLLM keeps a tier on disk only behind one in the host's memory
      hint: put `{kind: host-memory, size: …}` before it
    ");
    let slots = "topology: {mode: aggregated, replica: {cpuSlots: 1}}";
    assert_snapshot!(found("vllm", "[vllm]", &format!("{slots}, kvCache: {{tiers: [{{kind: gpu}}, {{kind: host-memory, size: 1Gi}}]}}")), @"
    engine-limit: vLLM keeps KV tiers only beside accelerators
      hint: leave it out
    ");
    let none = "kvCache: {tiers: [{kind: gpu}, {kind: host-memory, size: 64Gi}], share: none}";
    assert_snapshot!(found("vllm", "[vllm]", &format!("{ONE}, {none}")), @"
    contradiction: with `share: none` no prefix is used again, and these tiers would keep them
      hint: leave all tiers but `gpu` out
    ");
}

#[test]
fn of_llama_cpp() {
    assert_snapshot!(found("llama-cpp", "[llama-server]", &format!("{PAIR}, {SHARED}")), @"
    engine-limit: llama.cpp does not hand a KV cache from one server to another
      hint: write `mode: aggregated`, or use another engine
    engine-limit: llama.cpp has neither data nor expert parallelism
      hint: use more units
    engine-limit: sharing a KV cache among all units of a stage needs a store that all of them reach, such as LMCache or Mooncake, and denv runs none
      hint: write `share: unit`
    ");
    assert_snapshot!(found("llama-cpp", "[llama-server]", &format!("{ONE}, {TIERS}")), @"
    engine-limit: llama.cpp keeps no prompts on disk by itself
      hint: leave it out
    ");
}

#[test]
fn of_sglang() {
    assert_snapshot!(found("sglang", "[sglang]", &format!("{PAIR}, {SHARED}")), @"
    engine-limit: sharing a KV cache among all units of a stage needs a store that all of them reach, such as LMCache or Mooncake, and denv runs none
      hint: write `share: unit`
    ");
}

#[test]
fn of_tensorrt_llm() {
    let pair = "topology: {mode: disaggregated, prefill: {gpus: 2, parallelism: {tensor: 2}}, decode: {gpus: 2, parallelism: {data: 2}}}";
    assert_snapshot!(found("tensorrt-llm", "[trtllm-serve]", &format!("{pair}, {TIERS}")), @"
    engine-limit: TensorRT-LLM is told how to hand over a KV cache by a file of options only, another one for each pool
      hint: put files with `cache_transceiver_config` on the hosts and name them in the recipe's flags, as `--extra_llm_api_options /etc/denv/trtllm-${pool}.yaml`
    engine-limit: TensorRT-LLM has no data parallelism in one server
      hint: use tensor parallelism, or more units
    engine-limit: TensorRT-LLM is told of KV tiers by a file of options only
      hint: leave it out; what the file that `--extra_llm_api_options` names says of `kv_cache_config` holds
    engine-limit: TensorRT-LLM is told of KV tiers by a file of options only
      hint: leave it out; what the file that `--extra_llm_api_options` names says of `kv_cache_config` holds
    ");
    assert_snapshot!(found("tensorrt-llm", "[trtllm-serve]", &format!("{ONE}, kvCache: {{tiers: [{{kind: gpu}}], share: none}}")), @"
    engine-limit: TensorRT-LLM is told not to use a KV cache again by a file of options only
      hint: write `unit`, with `enable_block_reuse: false` in the file that `--extra_llm_api_options` names
    ");
}

#[test]
fn of_a_command_that_asks_for_nothing() {
    assert_snapshot!(found("command", "[serve, '${port}']", &format!("{PAIR}, {}", TIERS.replace("]}", "], share: stage}"))), @"
    engine-limit: the command does not ask for `${pool}`, so it is not told whether it is of `prefill` or `decode`
      hint: pass it as a flag, or as a variable in the recipe's `env`
    engine-limit: the command does not ask for `${kv_host_memory}`, so it is not told of this tier
      hint: pass it as a flag, or as a variable in the recipe's `env`
    engine-limit: the command does not ask for `${kv_nvme_path}`, so it is not told of this tier
      hint: pass it as a flag, or as a variable in the recipe's `env`
    engine-limit: the command does not ask for `${kv_share}`, so it is not told who shares the cache
      hint: pass it as a flag, or as a variable in the recipe's `env`
    ");
}

#[test]
fn how_pools_are_spread() {
    let spread = |engine: &str, command: &str, replica: &str| {
        let template = of_pool(engine, command, replica);
        let spread = template.spread(&template.pools[0]);
        format!("{:?} {}", spread.hosts, spread.limit.unwrap_or_default())
    };
    let sixteen = "{gpus: 16, parallelism: {tensor: 16}}";
    assert_snapshot!(spread("vllm", "[vllm]", sixteen), @"[1, 2, 4, 8, 16]");
    assert_snapshot!(spread("vllm", "[vllm]", "{gpus: 16, parallelism: {tensor: 4, data: 4}}"), @"[1, 2, 4] vLLM puts whole ranks of data parallelism on a host, as many on each");
    assert_snapshot!(spread("sglang", "[sglang]", sixteen), @"[1, 2, 4, 8, 16]");
    assert_snapshot!(spread("sglang", "[sglang]", "{gpus: 16, parallelism: {tensor: 4, pipeline: 4}}"), @"[1, 2, 4, 8, 16] SGLang puts whole stages of a pipeline on a host, or as many hosts on each stage");
    assert_snapshot!(spread("sglang", "[sglang]", "{gpus: 16, parallelism: {tensor: 4, data: 4}}"), @"[1] SGLang spreads data parallelism over hosts only where experts are spread too (`expert`)");
    assert_snapshot!(spread("tensorrt-llm", "[trtllm-serve]", sixteen), @"[1] TensorRT-LLM over several hosts needs an MPI launcher, which denv is not");
    assert_snapshot!(spread("llama-cpp", "[llama-server]", sixteen), @"[1] llama.cpp runs on one host");
    assert_snapshot!(spread("command", "[serve, '${port}']", sixteen), @"[1] the command does not ask for `${rank}`, so it runs on one host");
    assert_snapshot!(spread("command", "[serve, '${port}', '${rank}']", sixteen), @"[1, 2, 4, 8, 16]");
    assert_snapshot!(spread("vllm", "[vllm]", "{cpuSlots: 2}"), @"[1] CPU slots are of one host");
    // A host has ports for so many ranks that hand over their caches.
    let template = pair("vllm", "[vllm]", "");
    assert_eq!(template.spread(&template.pools[1]).hosts, [8, 16, 32, 64]);
}
