//! What only several manifests together get wrong.

use super::*;

/// A small seller: racks of 72 GPUs and servers of 8, a service on each, two customers.
const SELLER: &str = include_str!("seller.yaml");

/// What is wrong with it once texts are replaced.
fn with_all(changes: &[(&str, &str)]) -> String {
    let text = changes.iter().fold(SELLER.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "`{from}` is not there");
        text.replacen(from, to, 1)
    });
    let files = Files::from([("a.yaml".to_owned(), text.into_bytes())]);
    Catalog::from_files(&files).err().map(|found| found.to_string()).unwrap_or_default()
}

fn with(from: &str, to: &str) -> String {
    with_all(&[(from, to)])
}

#[test]
fn the_seller_is_valid() {
    assert_eq!(with_all(&[]), "");
}

#[test]
fn units_that_fit_no_fleet_are_told_where_they_would() {
    assert_snapshot!(with("{name: racks, units: {min: 1, max: 2}}", "{name: servers, units: {min: 1}}"), @"
    a.yaml:105:19: a unit of release `large-r1` takes 68 GPUs, and fleet `servers` has 8 in one domain
      hint: it fits in one domain of `racks`
    ");
    assert_snapshot!(with("domain: {hosts: 18}\n", "domain: {hosts: 16}\n"), @"
    a.yaml:105:19: a unit of release `large-r1` takes 68 GPUs, and fleet `racks` has 64 in one domain
      hint: the largest domain of that accelerator has 64 GPUs, in fleet `racks`; make the unit smaller, or, where the engine can cross the network, write `placement: any`
    ");
    assert_snapshot!(with("units: {min: 1, max: 2}", "units: {min: 1, max: 3}"), @"
    a.yaml:105:47: 3 units of 68 GPUs each do not fit: the 36 hosts that fleet `racks` may have hold 2
      hint: give the fleet more or larger hosts, and raise its `hosts.max`, or lower this
    ");
    assert_snapshot!(with("mode: disaggregated\n", "mode: disaggregated\n    placement: any\n"), @"");
    // Ranks of eight accelerators, on hosts of four.
    assert_snapshot!(with("{data: 64, expert: 64}", "{tensor: 8, data: 8, expert: 64}"), @"
    a.yaml:105:19: the decode of release `large-r1` takes at least 8 GPUs on each host, and a host of fleet `racks` has 4
      hint: vLLM puts whole ranks of data parallelism on a host, as many on each
    ");
}

#[test]
fn parallelism_multiplies_to_the_accelerators() {
    assert_snapshot!(with("{gpus: 4, parallelism: {tensor: 4}}", "{gpus: 4, parallelism: {tensor: 2}}"), @"
    a.yaml:69:14: tensor × pipeline × data parallelism is 2, and the prefill has 4 GPUs
      hint: make the degrees multiply to the GPUs
    ");
    assert_snapshot!(with("{data: 64, expert: 64}", "{data: 64, expert: 48}"), @"
    a.yaml:70:56: experts over 48 accelerators do not divide tensor × data parallelism, which is 64
      hint: use a divisor, most often all of them
    a.yaml:70:56: vLLM spreads experts over all of tensor × data parallelism, which is 64, or does not
      hint: write that, or leave `expert` out
    ");
    assert_snapshot!(with("replica: {gpus: 8, parallelism: {tensor: 8}}", "decode: {gpus: 8, parallelism: {tensor: 8}}"), @"
    a.yaml:82:20: the mode `aggregated` needs `replica`
      hint: say what it takes, for example `{gpus: 8, …}`
    a.yaml:82:40: the mode `aggregated` has no `decode`
      hint: leave it out, or change `mode`
    ");
    assert_snapshot!(with("replica: {gpus: 8, parallelism: {tensor: 8}}", "replica: {gpus: 8, parallelism: {tensor: 4, data: 2, expert: 2}}"), @"
    a.yaml:82:93: vLLM spreads experts over all of tensor × data parallelism, which is 8, or does not
      hint: write that, or leave `expert` out
    ");
    assert_snapshot!(with("{kind: host-memory, size: 512Gi}", "{kind: nvme, size: 1Ti}"), @"
    a.yaml:72:26: the tier `nvme` does not say its folder
      hint: write `path`, for example `/var/lib/denv/kv`
    a.yaml:72:26: vLLM keeps a tier on disk only behind one in the host's memory
      hint: put `{kind: host-memory, size: …}` before it
    a.yaml:72:45: vLLM fills the folder without a limit
      hint: leave `size` out, and give `path` a file system of that size
    ");
}

#[test]
fn stages_of_an_environment_are_in_order_and_once() {
    assert_snapshot!(with("from: test, to: prod", "from: prod, to: test"), @"
    a.yaml:89:32: `test` does not come straight after `prod` in `stages`
      hint: `prod` is the last stage: nothing comes after it
    ");
    assert_snapshot!(with("from: test, to: prod", "from: tset, to: prod"), @"
    a.yaml:89:22: `stages` does not list `tset`
      hint: did you mean `test`?
    ");
    assert_snapshot!(with("stages: [test, prod]", "stages: [test, prod, test]"), @"a.yaml:88:24: stage `test` is listed twice");
    assert_snapshot!(with("mode: automatic, bake: 1h", "mode: automatic"), @"
    a.yaml:89:15: the step is automatic and does not say when
      hint: write `bake`, for example `1h`
    ");
    assert_snapshot!(with_all(&[("stages: [test, prod]", "stages: [prod]"), ("promotion: [{from: test, to: prod, mode: automatic, bake: 1h}]", "promotion: []")]), @"
    a.yaml:93:18: Environment `chat` does not list stage `test`
      hint: add it to the environment's `stages`, in its place in the order
    ");
}

#[test]
fn residency_is_a_place_that_there_is() {
    assert_snapshot!(with("residency: [eu]  # of the stage", "residency: [us]"), @"
    a.yaml:105:19: fleet `racks` has residency `eu`, and the stage allows `us`
      hint: fleets there: `burst`
    ");
    assert_snapshot!(with("residency: [eu]  # of the customer", "residency: [jp]"), @"
    a.yaml:155:15: no fleet that serves endpoint `chat` is in `jp`
      hint: give a stage a fleet there, or leave the endpoint out
    ");
}

#[test]
fn what_is_sold_has_a_price() {
    assert_snapshot!(with("- {model: small, input: \"0.10\", output: \"0.40\"}", "- {model: smal, input: \"0.10\", output: \"0.40\"}"), @"
    a.yaml:158:14: PriceList `standard` has no price of `small`, which the customer may use
      hint: add the price
    ");
    assert_snapshot!(with("endpoints: [chat]", "endpoints: []"), @"
    a.yaml:158:14: PriceList `standard` has no price of `inside`, which the customer may use
      hint: add the price, or name the endpoints that the customer may use
    ");
    assert_snapshot!(with("  priceList: standard\n", ""), @"
    a.yaml:158:18: nothing is ever spent of a budget without prices
      hint: write `priceList`
    ");
    // A document that is faulty may be the one that has it.
    assert_snapshot!(with("- {model: small, input: \"0.10\", output: \"0.40\"}", "- {model: small, input: 0.10, output: \"0.40\"}"), @"
    a.yaml:149:29: `spec.models[1].input` must be text, and is a number
      hint: put it in quotes: without them, a fraction is rounded as it is read
    ");
}

#[test]
fn keys_stay_within_their_customer() {
    assert_snapshot!(with("customer: acme", "customer: amce"), @"
    a.yaml:164:18: there is no Customer `amce`
      hint: did you mean `acme`?
    ");
    assert_snapshot!(with("{requestsPerMinute: 60}", "{requestsPerMinute: 6000}"), @"
    a.yaml:164:133: the key may use 6000, and all keys of customer `acme` together 600
      hint: lower it, or raise the customer's
    ");
    assert_snapshot!(with("{hash: \"sha256:1", "{hash: \"sha256:0"), @"
    a.yaml:171:19: Key `acme-1` has the same hash
      hint: make one for each
    ");
}

#[test]
fn a_stage_is_not_compared_with_itself() {
    assert_snapshot!(with("{kind: previous-release}", "{kind: endpoint, endpoint: chat, model: large}"), @"
    a.yaml:114:19: stage `chat/prod` is compared with itself
      hint: compare with `previous-release`, or with something that does not depend on it
    ");
    assert_snapshot!(with_all(&[
        ("{kind: previous-release}", "{kind: endpoint, endpoint: chat, model: small}"),
        ("  release: small-r1\n", "  release: small-r1\n  parity: {suite: of-large}\n"),
        ("kind: Alarm", "kind: ParitySuite\nmetadata: {name: of-large}\nspec: {reference: {kind: endpoint, endpoint: chat, model: large}, cases: [{name: c, messages: [{role: user, content: x}]}]}\n---\napiVersion: denv.dev/v1\nkind: Alarm"),
    ]), @"
    a.yaml:97:19: stage `chat/test` is compared with `chat/prod`, and that with `chat/test`
      hint: compare with `previous-release`, or with something that does not depend on it
    a.yaml:115:19: stage `chat/prod` is compared with `chat/test`, and that with `chat/prod`
      hint: compare with `previous-release`, or with something that does not depend on it
    ");
    assert_snapshot!(with("{kind: previous-release}", "{kind: endpoint, endpoint: chat, model: lrge}"), @"
    a.yaml:126:54: Endpoint `chat` does not offer `lrge`
      hint: did you mean `large`?
    ");
    assert_snapshot!(with("{suite: golden, before: true}", "{suite: golden, before: false}"), @"
    a.yaml:114:11: the suite is run neither before nor after
      hint: write `before: true`, or leave `parity` out
    ");
}

#[test]
fn rollouts_have_times_that_come() {
    assert_snapshot!(with("from: \"08:00\", to: \"16:00\"", "from: \"08:00\", to: \"08:00\""), @r#"
    a.yaml:112:51: the window opens and closes at 08:00
      hint: for whole days, leave the window out or write `from: "00:00"` and `to: "23:59"`
    "#);
    assert_snapshot!(with("timeZone: Europe/Berlin", "timeZone: Europe/Berln"), @"
    a.yaml:112:70: there is no time zone `Europe/Berln`
      hint: did you mean `Europe/Berlin`?
    ");
    assert_snapshot!(with("until: 2027-01-03T00:00:00Z", "until: 2026-01-03T00:00:00Z"), @"a.yaml:113:51: the freeze ends before it begins");
    assert_snapshot!(with("deadlines: {batch: 1h}", "deadlines: {batch: 5m}"), @"
    a.yaml:111:24: a batch may take 5m, and the start of one unit alone 20m
      hint: raise it, or lower the recipe's `startTimeout`
    ");
    assert_snapshot!(with("strategy: auto", "strategy: replace"), @"
    a.yaml:109:5: `replace` stops a unit first, and `maxUnavailable: 0` allows none
      hint: allow at least 1, or use `strategy: surge`
    ");
    assert_snapshot!(with("batches: [1, 100%]", "batches: [50%, 1]"), @"
    a.yaml:110:20: batch 2 is smaller than the one before it
      hint: batches are totals: write them ascending
    ");
    assert_snapshot!(with("batches: [1, 100%]", "batches: [5, 100%]"), @"
    a.yaml:110:15: batch 1 is 5 units, and the stage has 2 at most
      hint: write fewer, a share such as `25%`, or `100%` for all
    ");
}

#[test]
fn routing_and_watching_mean_what_is_written() {
    assert_snapshot!(with("units: {min: 1, max: 2}", "units: {min: 1, max: 2}, weight: 2"), @"
    a.yaml:105:59: weights have no meaning under this routing policy
      hint: write `routing: {policy: weighted}`, or leave the weights out
    ");
    assert_snapshot!(with("routing: {policy: priority}", "routing: {policy: least-cost}"), @"
    a.yaml:105:19: requests go where they cost least, and this fleet does not say what it costs
      hint: write the fleet's `price`
    ");
    assert_snapshot!(with("above: 2s", "above: 2%"), @"a.yaml:120:44: the metric is a length of time, like `2s`, and the bound is a share");
    assert_snapshot!(with("above: 2s", "above: 2s, risesBy: 20%"), @"
    a.yaml:120:7: an alarm has one bound: `above`, `below`, `risesBy` or `fallsBy`
      hint: write one of them; make an Alarm for each
    ");
    assert_snapshot!(with("alarms: [ttft]", "alarms: [ttft, ttft, tftt]"), @"
    a.yaml:115:18: alarm `ttft` is listed twice
    a.yaml:115:24: there is no Alarm `tftt`
      hint: did you mean `ttft`?
    ");
    assert_snapshot!(with("suite: golden", "suite: goldn"), @"
    a.yaml:114:19: there is no ParitySuite `goldn`
      hint: did you mean `golden`?
    ");
    assert_snapshot!(with("stages: [\"chat/*\"]", "stages: [\"chta/*\", chat/prd]"), @"
    a.yaml:172:39: there is no Environment `chta`
      hint: did you mean `chat`?
    a.yaml:172:49: there is no Stage `chat/prd`
      hint: did you mean `chat/prod`?
    ");
}

#[test]
fn hosts_are_written_where_nobody_launches_them() {
    assert_snapshot!(with("{name: ours}\nspec: {kind: owned}", "{name: ours}\nspec: {kind: gcp}"), @"
    a.yaml:20:3: hosts of `gcp` are launched, and the fleet does not say as what
      hint: write `instanceType`, in the provider's words
    a.yaml:23:13: hosts of `gcp` are not owned
      hint: write `reserved`, `on-demand` or `spot`
    a.yaml:33:7: hosts of `gcp` are launched, and the fleet does not say as what
      hint: write `instanceType`, in the provider's words
    a.yaml:33:63: hosts of `gcp` are not owned
      hint: write `reserved`, `on-demand` or `spot`
    a.yaml:43:15: hosts of `gcp` are launched and observed, not written
      hint: remove the Host, or look after it yourself: in a fleet whose provider is `kind: owned`
    ");
    assert_snapshot!(with("purchase: spot, instanceType: p5.48xlarge", "purchase: owned"), @"
    a.yaml:38:7: hosts of `aws` are launched, and the fleet does not say as what
      hint: write `instanceType`, in the provider's words
    a.yaml:38:69: hosts of `aws` are not owned
      hint: write `reserved`, `on-demand` or `spot`
    ");
    assert_snapshot!(with("weightCache: fra", "weightCache: fraa"), @"
    a.yaml:28:16: there is no WeightCache `fraa`
      hint: did you mean `fra`?
    ");
    assert_snapshot!(with("region: fra1, url", "region: fra2, url"), @"
    a.yaml:28:16: the cache stands in region `fra2`, and the fleet in `fra1`
      hint: use a cache of the fleet's region
    ");
}
