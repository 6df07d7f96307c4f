//! However a pool is spread, its members are one group.

use std::collections::BTreeSet;

use super::*;

fn value<'a>(spec: &'a LaunchSpec, flag: &str) -> Option<&'a str> {
    let at = spec.argv.iter().position(|argument| argument == flag)?;
    Some(spec.argv.get(at + 1)?.as_str())
}

fn number(spec: &LaunchSpec, flag: &str) -> Option<u32> {
    value(spec, flag).map(|text| text.parse().unwrap())
}

/// The same for all, or none has it.
fn agreed<'a>(specs: &'a [LaunchSpec], flag: &str) -> Option<&'a str> {
    let values: BTreeSet<Option<&str>> = specs.iter().map(|spec| value(spec, flag)).collect();
    assert_eq!(values.len(), 1, "{flag}: {values:?}");
    values.into_iter().next().flatten()
}

fn engine() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop_oneof![
        Just(("vllm", "[vllm]")),
        Just(("sglang", "[sglang]")),
        Just((
            "command",
            "[serve, '${port}', '--pool', '${pool}', '--node-rank', '${rank}', '--nnodes', '${world_size}', \
                          '--dist-init-addr', '${leader_address}:${leader_port}']"
        )),
    ]
}

fn degree() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1u32), Just(2), Just(4), Just(8)]
}

fn of_degrees(
    (engine, command): (&str, &str),
    (tensor, pipeline, data): (u32, u32, u32),
    spreads_experts: bool,
) -> LaunchTemplate {
    let expert = if spreads_experts { tensor * data } else { 1 };
    let gpus = tensor * pipeline * data;
    let pool = format!(
        "{{gpus: {gpus}, parallelism: {{tensor: {tensor}, pipeline: {pipeline}, data: {data}, expert: {expert}}}}}"
    );
    let topology = format!("topology: {{mode: disaggregated, prefill: {pool}, decode: {pool}}}");
    of_release(engine, command, &format!("model: {{name: m}}, {topology}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn every_rank_is_there_once_and_all_agree(
        engine in engine(),
        degrees in (degree(), degree(), degree()),
        spreads_experts: bool,
        prefill: prop::sample::Index,
        decode: prop::sample::Index,
    ) {
        let template = of_degrees(engine, degrees, spreads_experts);
        let hosts: Vec<u32> = template.pools.iter().zip([prefill, decode])
            .map(|(pool, index)| *index.get(&template.spread(pool).hosts))
            .collect();
        let places = places(&template, &hosts);
        let unit = "chat.prod.0".into();
        let all = template.at(&unit, &places);
        prop_assert_eq!(&all, &template.at(&unit, &places));
        let (first, second) = all.split_at(hosts[0] as usize);
        for (specs, places) in [(first, &places[..]), (second, &places[hosts[0] as usize..])] {
            let leader = &places[0];
            check_pool(specs, leader, degrees.2);
            // The leader is reachable where the others look for it.
            for flag in ["--data-parallel-address", "--master-addr"] {
                prop_assert!(agreed(specs, flag).is_none_or(|address| address == leader.address));
            }
        }
        check_ports(&all, &places);
    }
}

fn check_pool(specs: &[LaunchSpec], leader: &MemberPlace, data: u32) {
    let count = u32::try_from(specs.len()).unwrap();
    for flag in [
        "--nnodes",
        "--master-port",
        "--data-parallel-size",
        "--data-parallel-size-local",
        "--data-parallel-rpc-port",
    ] {
        agreed(specs, flag);
    }
    for spec in &specs[1..] {
        assert!(spec.probe.is_none());
    }
    assert!(specs[0].probe.is_some());
    if let Some(nodes) = agreed(specs, "--nnodes") {
        assert_eq!(nodes, count.to_string());
        let ranks: Vec<u32> = specs.iter().map(|spec| number(spec, "--node-rank").unwrap()).collect();
        assert_eq!(ranks, (0..count).collect::<Vec<_>>());
    }
    if let Some(local) = agreed(specs, "--data-parallel-size-local") {
        let local: u32 = local.parse().unwrap();
        let starts = specs.iter().map(|spec| number(spec, "--data-parallel-start-rank").unwrap_or(0));
        let ranks: Vec<u32> = starts.flat_map(|start| start..start + local).collect();
        assert_eq!(ranks, (0..data).collect::<Vec<_>>());
    }
    if count > 1
        && let Some(address) = agreed(specs, "--dist-init-addr")
    {
        assert_eq!(address, format!("{}:{}", leader.address, leader.first_port));
    }
    let headless = specs.iter().filter(|spec| spec.argv.iter().any(|argument| argument == "--headless"));
    if specs[0].argv[0] == "vllm" {
        assert_eq!(headless.count(), specs.len() - 1);
        assert_eq!(specs.iter().filter(|spec| value(spec, "--port").is_some()).count(), 1);
    }
}

/// What a member listens on is within its own block.
fn check_ports(specs: &[LaunchSpec], places: &[MemberPlace]) {
    for (spec, place) in specs.iter().zip(places) {
        let block = u32::from(place.first_port)..u32::from(place.first_port + PORTS_OF_A_MEMBER);
        if let Some(base) = spec.env.get("VLLM_NIXL_SIDE_CHANNEL_PORT") {
            let local = number(spec, "--data-parallel-size-local")
                .or(number(spec, "--data-parallel-size"))
                .unwrap_or(1);
            let first =
                number(spec, "--data-parallel-start-rank").unwrap_or(0) + base.parse::<u32>().unwrap();
            assert!(block.contains(&first) && block.contains(&(first + local - 1)), "{first} + {local}");
        }
        for flag in ["--disaggregation-bootstrap-port", "--master-port", "--data-parallel-rpc-port"] {
            assert!(number(spec, flag).is_none_or(|port| block.contains(&port)));
        }
    }
}
