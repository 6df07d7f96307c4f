//! The types that only some kinds have: each says its rule where a value breaks it.

use super::*;

/// What is wrong with one manifest by itself.
fn of(kind: &str, spec: &str) -> String {
    let text = format!("apiVersion: denv.dev/v1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n");
    let files = Files::from([("a.yaml".to_owned(), text.into_bytes())]);
    Catalog::from_files(&files).err().map(|found| found.to_string()).unwrap_or_default()
}

#[test]
fn money_is_a_decimal_in_quotes() {
    let list = |price: &str| {
        of("PriceList", &format!("{{currency: USD, models: [{{model: m, input: {price}, output: '1'}}]}}"))
    };
    assert_eq!(list("'0.30'"), "");
    assert_snapshot!(list("0.30"), @"
    a.yaml:4:50: `spec.models[0].input` must be text, and is a number
      hint: put it in quotes: without them, a fraction is rounded as it is read
    ");
    assert_snapshot!(list("2"), @"
    a.yaml:4:50: `spec.models[0].input` must be text, and is a number
      hint: put it in quotes: without them, a fraction is rounded as it is read
    ");
    assert_snapshot!(list("$2"), @r#"a.yaml:4:50: `spec.models[0].input` is not valid: an amount of money is a decimal in quotes, for example "0.30", with at most twelve digits before and after the point"#);
    assert_snapshot!(list("'-2'"), @r#"a.yaml:4:50: `spec.models[0].input` is not valid: an amount of money is a decimal in quotes, for example "0.30", with at most twelve digits before and after the point"#);
    assert!(
        list("'0.30'").is_empty()
            && of("PriceList", "{currency: usd, models: []}").contains("did you mean `USD`")
    );
}

#[test]
fn bounds_of_alarms_carry_their_units() {
    let alarm = |bound: &str| of("Alarm", &format!("{{metric: time-to-first-token, above: {bound}}}"));
    assert_eq!(alarm("2s"), "");
    assert_snapshot!(alarm("2x"), @"a.yaml:4:44: `spec.above` is not valid: a bound is a length of time like `2s`, a share like `1%`, or a number");
    assert_snapshot!(alarm("1.5"), @"a.yaml:4:44: `spec.above` must be a whole number or text, and is a number");
    assert_snapshot!(of("Alarm", "{metric: ttft, above: 2s}"), @"a.yaml:4:16: `spec.metric` must be one of time-to-first-token, inter-token-latency, request-latency, error-rate, queued-requests, cache-hit-rate, cache-usage, output-tokens-per-second");
}

#[test]
fn sizes_times_and_addresses_are_read_strictly() {
    let cache =
        |url: &str, size: &str| of("WeightCache", &format!("{{region: r, url: '{url}', size: {size}}}"));
    assert_eq!(cache("https://cache:8443/w", "4Ti"), "");
    assert_snapshot!(cache("https://user:password@cache", "4TB"), @"
    a.yaml:4:24: `spec.url` is not valid: an address is `https://` (or `http://`) and a host, without spaces and without a user or password
    a.yaml:4:61: `spec.size` is not valid: a size is written with its unit: `512Mi`, `64Gi` or `4Ti`
    ");
    let key = |expires: &str| of("Key", &format!("{{customer: c, hash: x, expires: {expires}}}"));
    assert_snapshot!(key("2026-13-01"), @"
    a.yaml:4:27: `spec.hash` is not valid: a digest is written `sha256:` and 64 lower-case hexadecimal digits
    a.yaml:4:39: `spec.expires` is not valid: a time is written `2027-01-01T00:00:00Z`
    ");
    let access = |grant: &str| of("Access", &format!("{{email: a@b, grants: [{grant}]}}"));
    assert_eq!(access("{role: admin, stages: ['*']}"), "");
    assert_snapshot!(access("{role: owner, stages: [chat]}"), @r#"
    a.yaml:4:36: `spec.grants[0].role` must be one of viewer, operator, publisher, admin
    a.yaml:4:52: `spec.grants[0].stages[0]` is not valid: stages are written `environment/stage`, `environment/*` or `"*"`
    "#);
    // Unquoted, it is an alias.
    assert_snapshot!(access("{role: admin, stages: [*]}"), @r#"
    a.yaml:4:52: `*` or `&` begins an alias or an anchor here, and no name follows
      hint: put text that begins so in quotes: `"*"`
    "#);
}

#[test]
fn a_secret_in_the_place_of_its_reference_is_named_so_and_not_shown() {
    for (kind, spec) in [
        ("Provider", "{kind: aws, credentials: PLANTED}"),
        (
            "WeightCache",
            "{region: r, url: 'https://c', size: 1Ti, sources: [{prefix: 's3://m', credentials: PLANTED}]}",
        ),
        ("Webhook", "{url: 'https://h', events: [alarm-fired], signingSecret: PLANTED}"),
        (
            "ParitySuite",
            "{reference: {kind: api, url: 'https://a', model: m, key: PLANTED}, cases: [{name: c, messages: [{role: user, content: x}]}]}",
        ),
    ] {
        let found = of(kind, spec);
        assert!(found.contains("a secret is written as where it is"), "{found}");
        assert!(!found.contains("PLANTED"), "{found}");
    }
}

#[test]
fn what_is_of_a_free_form_may_be_anything() {
    let suite = |expect: &str| {
        of(
            "ParitySuite",
            &format!(
                "{{cases: [{{name: c, messages: [{{role: user, content: x}}], tools: [{{name: f}}], expect: {expect}}}]}}"
            ),
        )
    };
    assert_eq!(suite("{json: {a: 1.5, b: [null, true], 'c/d': {}}}"), "");
    assert_eq!(suite("{toolCalls: [{name: f, arguments: {x: 0.5}}]}"), "");
    assert_snapshot!(suite("{json: 1.5}"), @"a.yaml:4:99: `spec.cases[0].expect.json` must be a mapping of fields, and is a number");
}
