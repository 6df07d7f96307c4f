//! Each engine's own flags.

use super::*;

#[test]
fn llama_cpp_gets_its_flags() {
    let plain = "topology: {mode: aggregated, replica: {gpus: 2, parallelism: {pipeline: 2}}}";
    let release = |more: &str| {
        let template =
            of_release("llama-cpp", "[llama-server]", &format!("{WEIGHED}, {plain}, {CONFIG}{more}"));
        alone(&template)
    };
    assert_snapshot!(release(""), @"llama-server --model ${weights} --alias m --ctx-size 16384 --parallel 4 --metrics --host 127.0.0.1 --port ${port} --recipe --release");
    assert_snapshot!(release(", kvCache: {tiers: [{kind: gpu}, {kind: host-memory, size: 64Gi}]}"), @"llama-server --model ${weights} --alias m --ctx-size 16384 --parallel 4 --cache-ram 65536 --metrics --host 127.0.0.1 --port ${port} --recipe --release");
    assert_snapshot!(release(", kvCache: {tiers: [{kind: gpu}], share: none}"), @"llama-server --model ${weights} --alias m --ctx-size 16384 --parallel 4 --no-cache-prompt --cache-ram 0 --metrics --host 127.0.0.1 --port ${port} --recipe --release");
    assert_snapshot!(alone(&of_pool("llama-cpp", "[llama-server]", "{gpus: 2, parallelism: {tensor: 2}}")), @"llama-server --alias m --ctx-size 16384 --parallel 4 --split-mode row --metrics --host 127.0.0.1 --port ${port} --recipe --release");
}

#[test]
fn vllm_gets_its_flags() {
    let template = of_pool("vllm", "[vllm]", "{gpus: 4, parallelism: {tensor: 2, data: 2}}");
    assert_snapshot!(alone(&template), @"vllm serve m --served-model-name m --tensor-parallel-size 2 --data-parallel-size 2 --max-model-len 4096 --max-num-seqs 2 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --recipe --release");
    let wide = "{gpus: 8, parallelism: {data: 8, expert: 8}}";
    assert_snapshot!(alone(&of_pool("vllm", "[vllm]", wide)), @"vllm serve m --served-model-name m --tensor-parallel-size 1 --data-parallel-size 8 --enable-expert-parallel --max-model-len 4096 --max-num-seqs 1 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --recipe --release");
}

#[test]
fn vllm_spreads_whole_ranks_and_parts_of_one() {
    let ranks = of_pool("vllm", "[vllm]", "{gpus: 8, parallelism: {tensor: 2, data: 4}}");
    let specs = members(&ranks, &[2]);
    assert_snapshot!(shown(&specs[0]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_HOST_IP=10.0.0.1 vllm serve m --served-model-name m --tensor-parallel-size 2 --data-parallel-size 4 --max-model-len 4096 --max-num-seqs 1 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --data-parallel-size-local 2 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 30000 --recipe --release");
    assert_snapshot!(shown(&specs[1]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_HOST_IP=10.0.0.2 vllm serve m --served-model-name m --tensor-parallel-size 2 --data-parallel-size 4 --max-model-len 4096 --max-num-seqs 1 --enable-prompt-tokens-details --shutdown-timeout 30 --headless --data-parallel-size-local 2 --data-parallel-start-rank 2 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 30000 --recipe --release");
    let parts = of_pool("vllm", "[vllm]", "{gpus: 16, parallelism: {tensor: 8, pipeline: 2}}");
    let specs = members(&parts, &[2]);
    assert_snapshot!(shown(&specs[0]), @"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 VLLM_HOST_IP=10.0.0.1 vllm serve m --served-model-name m --tensor-parallel-size 8 --pipeline-parallel-size 2 --max-model-len 4096 --max-num-seqs 4 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 30001 --recipe --release");
    assert_snapshot!(shown(&specs[1]), @"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 VLLM_HOST_IP=10.0.0.2 vllm serve m --served-model-name m --tensor-parallel-size 8 --pipeline-parallel-size 2 --max-model-len 4096 --max-num-seqs 4 --enable-prompt-tokens-details --shutdown-timeout 30 --headless --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 30001 --recipe --release");
}

#[test]
fn vllm_hands_over_its_cache() {
    let specs = members(&pair("vllm", "[vllm]", ""), &[1, 16]);
    assert_snapshot!(shown(&specs[0]), @r#"CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_HOST_IP=10.0.0.1 VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=30002 vllm serve m --served-model-name m --tensor-parallel-size 4 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_producer"} --recipe"#);
    assert_snapshot!(shown(&specs[1]), @r#"CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_HOST_IP=10.0.0.2 VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.2 VLLM_NIXL_SIDE_CHANNEL_PORT=30002 vllm serve m --served-model-name m --tensor-parallel-size 1 --data-parallel-size 64 --enable-expert-parallel --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --data-parallel-size-local 4 --data-parallel-address 10.0.0.2 --data-parallel-rpc-port 30000 --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_consumer"} --recipe"#);
    assert_snapshot!(shown(&specs[16]), @r#"CUDA_VISIBLE_DEVICES=0,1,2,3 VLLM_HOST_IP=10.0.0.17 VLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.17 VLLM_NIXL_SIDE_CHANNEL_PORT=29942 vllm serve m --served-model-name m --tensor-parallel-size 1 --data-parallel-size 64 --enable-expert-parallel --enable-prompt-tokens-details --shutdown-timeout 30 --headless --data-parallel-size-local 4 --data-parallel-start-rank 60 --data-parallel-address 10.0.0.2 --data-parallel-rpc-port 30000 --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_consumer"} --recipe"#);
    assert_eq!(specs[0].hand_over, Some(HandOver::Vllm {}));
    assert!(specs[1..].iter().all(|spec| spec.hand_over.is_none()), "one member is asked first");
}

#[test]
fn vllm_keeps_tiers() {
    let tiers = |tiers: &str| {
        format!(", kvCache: {{tiers: [{{kind: gpu}}, {{kind: host-memory, size: 512Gi}}{tiers}]}}")
    };
    let disk = ", {kind: nvme, path: /var/lib/denv/kv/}";
    let one = |more: &str| {
        let topology =
            "model: {name: m}, topology: {mode: aggregated, replica: {gpus: 8, parallelism: {data: 8}}}";
        alone(&of_release("vllm", "[vllm]", &format!("{topology}{more}")))
    };
    assert_snapshot!(one(&tiers("")), @"vllm serve m --served-model-name m --tensor-parallel-size 1 --data-parallel-size 8 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --kv-offloading-size 64 --kv-offloading-backend native --recipe");
    assert_snapshot!(one(&tiers(disk)), @r#"vllm serve m --served-model-name m --tensor-parallel-size 1 --data-parallel-size 8 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --kv-transfer-config {"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":68719476736,"secondary_tiers":[{"type":"fs","root_dir":"/var/lib/denv/kv/chat.prod.0"}]}} --recipe"#);
    assert_snapshot!(one(", kvCache: {tiers: [{kind: gpu}], share: none}"), @"vllm serve m --served-model-name m --tensor-parallel-size 1 --data-parallel-size 8 --no-enable-prefix-caching --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --api-server-count 1 --recipe");
    let specs = members(&pair("vllm", "[vllm]", &tiers(disk)), &[1, 16]);
    let config = |spec: &LaunchSpec| spec.argv.iter().find(|it| it.starts_with('{')).cloned().unwrap();
    assert_snapshot!(config(&specs[0]), @r#"{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector","kv_role":"kv_producer"},{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":549755813888,"secondary_tiers":[{"type":"fs","root_dir":"/var/lib/denv/kv/chat.prod.0"}]}}]}}"#);
    // 512 GiB on each of 16 hosts with 4 ranks.
    assert_snapshot!(config(&specs[16]), @r#"{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector","kv_role":"kv_consumer"},{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":137438953472,"secondary_tiers":[{"type":"fs","root_dir":"/var/lib/denv/kv/chat.prod.0"}]}}]}}"#);
}

#[test]
fn an_image_is_a_container_with_the_folders_that_the_engine_writes_to() {
    let image = format!("r.example/vllm@sha256:{}", "0".repeat(64));
    let release = "model: {name: m}, topology: {mode: aggregated, replica: {gpus: 8, parallelism: {tensor: 8}}}, \
                   kvCache: {tiers: [{kind: gpu}, {kind: host-memory, size: 64Gi}, {kind: nvme, path: /kv}]}";
    let specs = |command: &str| members(&of_release("vllm", command, release), &[1]);
    let contained = &specs(&format!("[vllm], image: '{image}'"))[0];
    let container = Container { image, folders: vec!["/kv".to_owned()] };
    assert_eq!(contained.container.as_ref(), Some(&container));
    assert_eq!(contained.fetch_timeout().as_secs(), 3 * 3600);
    let plain = &specs("[vllm]")[0];
    assert_eq!((&plain.argv, &plain.container), (&contained.argv, &None));
    assert!(plain.fetch_timeout().is_zero());
}

/// Two pools of one host talk over its loopback, and each has ports of its own.
#[test]
fn a_unit_on_one_host_stays_there() {
    let template = of_release(
        "vllm",
        "[vllm]",
        "model: {name: m}, topology: {mode: disaggregated, prefill: {cpuSlots: 1}, decode: {cpuSlots: 1}}",
    );
    let mut places = places(&template, &[1, 1]);
    places[1].host = places[0].host.clone();
    places[1].first_port = 30_016;
    let specs = template.at(&"chat.prod.0".into(), &places);
    assert_snapshot!(shown(&specs[0]), @r#"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=30002 vllm serve m --served-model-name m --tensor-parallel-size 1 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_buffer_device":"cpu"} --recipe"#);
    assert_snapshot!(shown(&specs[1]), @r#"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_PORT=30018 vllm serve m --served-model-name m --tensor-parallel-size 1 --enable-prompt-tokens-details --shutdown-timeout 30 --host 127.0.0.1 --port ${port} --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_buffer_device":"cpu"} --recipe"#);
}

#[test]
fn sglang_gets_its_flags() {
    let command = "[python, -m, sglang.launch_server]";
    let template = of_pool("sglang", command, "{gpus: 4, parallelism: {tensor: 2, data: 2}}");
    assert_snapshot!(alone(&template), @"python -m sglang.launch_server --model-path m --served-model-name m --tp-size 2 --dp-size 2 --context-length 4096 --max-running-requests 4 --enable-metrics --enable-cache-report --host 127.0.0.1 --port ${port} --recipe --release");
    let wide = of_pool("sglang", command, "{gpus: 8, parallelism: {data: 8, expert: 8}}");
    assert_snapshot!(alone(&wide), @"python -m sglang.launch_server --model-path m --served-model-name m --tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8 --context-length 4096 --max-running-requests 4 --enable-metrics --enable-cache-report --host 127.0.0.1 --port ${port} --dist-init-addr 127.0.0.1:30000 --recipe --release");
    assert_snapshot!(shown(&members(&wide, &[2])[1]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 SGLANG_HOST_IP=10.0.0.2 python -m sglang.launch_server --model-path m --served-model-name m --tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8 --context-length 4096 --max-running-requests 4 --enable-metrics --enable-cache-report --host 127.0.0.1 --port ${port} --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:30000 --recipe --release");
}

#[test]
fn sglang_hands_over_its_cache() {
    let tiers = ", kvCache: {tiers: [{kind: gpu}, {kind: host-memory, size: 512Gi}, {kind: nvme, size: 4Ti, path: /kv}]}";
    let specs = members(&pair("sglang", "[sglang]", tiers), &[1, 16]);
    assert_snapshot!(shown(&specs[0]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE=1099511627776 SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=/kv/chat.prod.0 SGLANG_HOST_IP=10.0.0.1 sglang --model-path m --served-model-name m --tp-size 4 --enable-metrics --enable-cache-report --host 0.0.0.0 --port ${port} --dist-init-addr 127.0.0.1:30000 --disaggregation-mode prefill --disaggregation-transfer-backend nixl --disaggregation-bootstrap-port 30015 --enable-hierarchical-cache --hicache-size 137 --hicache-storage-backend file --recipe");
    assert_snapshot!(shown(&specs[1]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 SGLANG_HOST_IP=10.0.0.2 sglang --model-path m --served-model-name m --tp-size 64 --dp-size 64 --enable-dp-attention --ep-size 64 --enable-metrics --enable-cache-report --host 127.0.0.1 --port ${port} --nnodes 16 --node-rank 0 --dist-init-addr 10.0.0.2:30000 --disaggregation-mode decode --disaggregation-transfer-backend nixl --recipe");
    assert_snapshot!(shown(&specs[16]), @"CUDA_VISIBLE_DEVICES=0,1,2,3 SGLANG_HOST_IP=10.0.0.17 sglang --model-path m --served-model-name m --tp-size 64 --dp-size 64 --enable-dp-attention --ep-size 64 --enable-metrics --enable-cache-report --host 127.0.0.1 --port ${port} --nnodes 16 --node-rank 15 --dist-init-addr 10.0.0.2:30000 --disaggregation-mode decode --disaggregation-transfer-backend nixl --recipe");
    let bootstrap = HandOver::Sglang { bootstrap_host: "10.0.0.1".to_owned(), bootstrap_port: 30015 };
    assert_eq!(specs[0].hand_over, Some(bootstrap));
    assert!(specs[1..].iter().all(|spec| spec.hand_over.is_none()), "one member is asked first");
}

#[test]
fn tensorrt_llm_gets_its_flags() {
    let text = "{gpus: 8, parallelism: {tensor: 8, expert: 8}}";
    let template = of_pool("tensorrt-llm", "[trtllm-serve]", text);
    assert_snapshot!(alone(&template), @"trtllm-serve m --tp_size 8 --ep_size 8 --max_seq_len 4096 --max_batch_size 4 --host 127.0.0.1 --port ${port} --recipe --release");
    assert_eq!(template.metrics_path.as_deref(), Some("/prometheus/metrics"));
    let pair = of_release(
        "tensorrt-llm",
        "[trtllm-serve]",
        "model: {name: m}, topology: {mode: disaggregated, prefill: {gpus: 2, parallelism: {tensor: 2}}, decode: {gpus: 4, \
         parallelism: {tensor: 4}}}, config: {flags: [--extra_llm_api_options, '/etc/denv/trtllm-${pool}.yaml']}",
    );
    assert_eq!(members(&pair, &[1, 1])[0].hand_over, Some(HandOver::TensorrtLlm {}));
    let argv: Vec<String> = members(&pair, &[1, 1]).iter().map(|spec| spec.argv.join(" ")).collect();
    assert_snapshot!(argv.join("\n"), @"
    trtllm-serve m --tp_size 2 --host 127.0.0.1 --port ${port} --recipe --extra_llm_api_options /etc/denv/trtllm-prefill.yaml
    trtllm-serve m --tp_size 4 --host 127.0.0.1 --port ${port} --recipe --extra_llm_api_options /etc/denv/trtllm-decode.yaml
    ");
}

#[test]
fn a_command_is_left_alone_but_for_what_it_asks() {
    let release = format!("{WEIGHED}, topology: {{mode: aggregated, replica: {{gpus: 8}}}}, {CONFIG}");
    let command =
        "[serve, '--port=${port}', '${model}', '${weights}', '${address}:${first_port}', '$${rank}{']";
    let template = of_release("command", command, &release.replace("gpus: 8", "gpus: 1"));
    assert_snapshot!(alone(&template), @"serve --port=${port} m ${weights} 127.0.0.1:30000 $0{ --recipe --release");
}

/// Only the first member of a pool has a server that is asked for its health and its metrics.
#[test]
fn members_without_a_server_are_not_asked() {
    for (engine, command) in [("vllm", "[vllm]"), ("sglang", "[sglang]")] {
        let specs = members(&pair(engine, command, ""), &[1, 16]);
        let asked: Vec<usize> = (0..specs.len()).filter(|at| specs[*at].probe.is_some()).collect();
        assert_eq!(asked, [0, 1]);
        assert!(specs[2..].iter().all(|spec| spec.metrics_path.is_none()));
    }
}
