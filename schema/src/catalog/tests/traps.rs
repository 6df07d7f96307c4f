//! YAML that means something else than it seems to, or is made to hurt.

use super::*;

/// What a text has wrong, as it is shown.
fn of(text: impl Into<Vec<u8>>) -> String {
    let files = Files::from([("a.yaml".to_owned(), text.into())]);
    Catalog::from_files(&files).err().map(|found| found.to_string()).unwrap_or_default()
}

/// A customer with something in its `spec`.
fn customer(spec: &str) -> String {
    format!("apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {{name: a}}\nspec:\n{spec}")
}

#[test]
fn traps_are_errors_at_their_place() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    let merges = "x: &x {displayName: b}\nspec: {<<: *x, coulour: red}\n";
    let head = "apiVersion: denv.dev/v1\nkind: Customer\nmetadata: {name: a}\n";
    let cases: Vec<(String, &str)> = vec![
        (
            customer("  displayName: b\n  displayName: c\n"),
            "a.yaml:6:3: the key `displayName` is written twice",
        ),
        (
            customer("  displayName: no\n  displayName : c\n"),
            "a.yaml:6:3: the key `displayName` is written twice",
        ),
        (
            customer("  displayName: 1.10\n"),
            "a.yaml:5:16: `spec.displayName` must be text, and is a number\n  hint: put it in quotes",
        ),
        (
            customer("  displayName: true\n"),
            "a.yaml:5:16: `spec.displayName` must be text, and is true or false\n  hint: put it in quotes",
        ),
        (customer("  displayName: 2026-01-01\n  x: 1\n"), "a.yaml:6:3: unknown field `x` in `spec`"),
        (customer("  displayName: ~\n"), "a.yaml:5:16: `spec.displayName` must be text, and is empty"),
        (customer("\tdisplayName: b\n"), "a.yaml:5:2: a tab stands where only spaces may"),
        (customer("  displayName: a: b\n"), "a.yaml:5:17: `: ` begins a value here"),
        (
            bomb.to_owned(),
            "a.yaml:5:23: the document is too large, where an alias counts as what it stands for",
        ),
        (format!("{head}spec: &a {{endpoints: [*a]}}\n"), "a.yaml:4:23: the anchor contains itself"),
        (format!("{head}{merges}"), "a.yaml:4:1: unknown field `x` in the manifest"),
        (format!("{head}{merges}"), "a.yaml:5:16: unknown field `coulour` in `spec`"),
        (format!("{head}spec: {{<<: {{coulour: red}}}}\n"), "a.yaml:4:12: unknown field `coulour` in `spec`"),
        (
            customer("  <<: {displayName: a}\n  <<: {displayName: b}\n"),
            "a.yaml:6:3: the key `<<` is written twice",
        ),
        (customer("  displayName: !shout b\n"), "unsupported tag `!shout`"),
        (customer("  displayName: !include /etc/passwd\n"), "unsupported tag `!include`"),
        (customer("  ~: b\n"), "a.yaml:5:3: a key must be text"),
        (customer("  displayName: .nan\n"), "a.yaml:5:16: "),
        (format!("a: {}", "[".repeat(5000)), "the document is nested too deeply"),
        (format!("a: {}{}", "[".repeat(5000), "]".repeat(5000)), "the document is nested too deeply"),
        (format!("a: {}", "{a: ".repeat(5000)), "the document is nested too deeply"),
        (format!("a:\n{}x", "- ".repeat(5000)), "the document is nested too deeply"),
        ("- a\n- b\n".to_owned(), "a.yaml:1:1: a manifest is a mapping of fields, and this is a list"),
        ("hello\n".to_owned(), "a.yaml:1:1: a manifest is a mapping of fields, and this is text"),
        ("a\0: b\n".to_owned(), "a.yaml:1:2: "),
        ("a: 1\r\nb: 2\rc: 3\n".to_owned(), "a.yaml:2:5: a carriage return stands by itself"),
        ("\u{feff}a: [\n".to_owned(), "a.yaml:1:4: unclosed bracket"),
        ("a: 1\n\u{feff}b: 2\n".to_owned(), "a.yaml:2:1: a BOM must not appear inside a document"),
        (customer("  x: 1\n").replace('\n', "\r\n"), "a.yaml:5:3: unknown field `x` in `spec`"),
        (format!("{}---\r\na: [\r\n", customer("  {}\n")), "a.yaml:7:4: unclosed bracket"),
        (
            customer(&format!("  displayName: {}\n  x: 1\n", "y".repeat(1_000_000))),
            "a.yaml:6:3: unknown field `x`",
        ),
        (customer(&format!("  endpoints: [{}]\n", "e,".repeat(60_000))), "the document is too large"),
    ];
    for (text, expected) in cases {
        let shown: String = text.chars().take(200).collect();
        let found = of(text);
        assert!(found.contains(expected), "missing `{expected}` in\n{found}\nof\n{shown}");
    }
}

#[test]
fn what_seems_a_trap_and_is_not_is_text() {
    for spec in
        ["  displayName: no\n", "  displayName: 0755\n", "  displayName: on\n", "  displayName: 1_000\n"]
    {
        assert_eq!(of(customer(spec)), "");
    }
    let host = |field: &str| {
        format!("apiVersion: denv.dev/v1\nkind: Host\nmetadata: {{name: h}}\nspec: {{fleet: f, {field}}}\n")
    };
    let found = of(host("cordoned: no"));
    assert!(found.contains("must be true or false, and is text\n  hint: write `true` or `false`"), "{found}");
    let found = of(host("cpuSlots: 0755"));
    assert!(found.contains("hint: write it without quotes and without zeros in front"), "{found}");
}

#[test]
fn anchors_and_merges_that_say_what_they_seem_to_are_followed() {
    let text = customer("  displayName: &name b\n")
        .replace("{name: a}", "{name: a, labels: &l {x: y}, annotations: {<<: *l, z: *name}}");
    let text = text.replace("&name b", "b").replace("*name", "w");
    assert_eq!(of(text), "");
}

#[test]
fn texts_without_documents_are_nothing() {
    for text in [
        "",
        "\n\n",
        "# only comments\n  # more\n",
        "---\n",
        "---\n---\n# x\n...\n",
        "\u{feff}",
        "\u{feff}# x\n",
    ] {
        assert_eq!(of(text), "", "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_and_other_line_ends_change_nothing() {
    for name in ["service.yaml", "software.yaml"] {
        let mut files = quickstart();
        let text = String::from_utf8(files[name].clone()).unwrap();
        files.insert(name.to_owned(), format!("\u{feff}{}", text.replace('\n', "\r\n")).into_bytes());
        assert_eq!(Catalog::from_files(&files), Catalog::from_files(&quickstart()));
    }
}

#[test]
fn other_products_yaml_is_kept_out_by_its_folder() {
    let found = of("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 1}\n");
    assert_snapshot!(found, @"
    a.yaml:1:13: `apps/v1` is not a version of denv's manifests
      hint: write `apiVersion: denv.dev/v1`; other YAML is left alone in a folder whose name begins with a dot
    ");
    let found = of("services:\n  web: {}\n");
    assert_snapshot!(found, @"
    a.yaml:1:1: the document has no `apiVersion`
      hint: write `apiVersion: denv.dev/v1`; other YAML is left alone in a folder whose name begins with a dot
    a.yaml:1:1: the document has no `kind`
      hint: the kinds are Provider, Fleet, Host, WeightCache, Engine, Recipe, Release, Environment, Stage, ParitySuite, Alarm, Endpoint, Customer, Key, PriceList, Access, Webhook
    ");
}

const PLANTED: &str = "sk-denv-PLANTED0secret0value";

#[test]
fn a_planted_secret_is_in_no_finding() {
    let secret = PLANTED;
    let env = |name: &str| format!("env: {{{name}: {secret}}}\n  startTimeout:");
    let zeros = format!("sha256:{}", "0".repeat(64));
    let token = env("HF_TOKEN");
    let reference = format!("env: {{HF_TOKEN: 'env:{secret}'}}\n  startTimeout:");
    let file = format!("env: {{HF_TOKEN: 'file:{secret}'}}\n  startTimeout:");
    let source = "file:smollm2-135m-instruct.gguf";
    let flags = "flags: [--threads, \"1\"]";
    let cases = [
        ("commerce.yaml", zeros.as_str(), secret.to_owned()),
        ("commerce.yaml", zeros.as_str(), format!("sha256:{secret}")),
        ("commerce.yaml", zeros.as_str(), format!("[{secret}]")),
        ("commerce.yaml", zeros.as_str(), format!("*{secret}")),
        ("commerce.yaml", zeros.as_str(), format!("!{secret} x")),
        ("commerce.yaml", "hash:", format!("{secret}:")),
        ("commerce.yaml", "customer: demo", format!("customer: {secret}")),
        ("commerce.yaml", "customer: demo", format!("customer: demo\n  {secret}: 1\n  {secret}: 2")),
        ("commerce.yaml", "kind: Key", format!("kind: {secret}")),
        ("commerce.yaml", "apiVersion: denv.dev/v1", format!("apiVersion: {secret}")),
        ("software.yaml", "startTimeout:", token),
        ("software.yaml", "startTimeout:", reference),
        ("software.yaml", "startTimeout:", file),
        ("software.yaml", source, format!("s3://user:{secret}@models/x")),
        ("software.yaml", source, format!("file://user:{secret}@host/x")),
        ("software.yaml", flags, format!("flags: [--api-key, {secret}]")),
        ("software.yaml", flags, format!("flags: [--api-key={secret}]")),
        ("software.yaml", flags, format!("flags: ['${{{secret}}}']")),
        ("software.yaml", "startTimeout: 60s", format!("startTimeout: {secret}")),
        ("service.yaml", "strategy: surge", format!("strategy: {secret}")),
        ("service.yaml", "stage: chat/prod", format!("stage: {secret}")),
        ("service.yaml", "stages: [prod]", format!("stages: [{secret}")),
        ("service.yaml", "maxUnavailable: 0", format!("maxUnavailable: {secret}")),
    ];
    for (name, from, to) in cases {
        let found = Catalog::from_files(&with(name, from, &to)).expect_err(&to);
        let shown = format!("{found} {found:?} {}", serde_json::to_string(&found).unwrap());
        assert!(!shown.contains("PLANTED"), "{to}: {found}");
    }
}

#[test]
fn a_variable_is_in_no_debug() {
    let files = with("software.yaml", "startTimeout:", "env: {INNOCENT: PLANTED}\n  startTimeout:");
    let catalog = Catalog::from_files(&files).unwrap_or_else(|found| panic!("{found}"));
    let place = crate::launch::MemberPlace {
        pool: crate::manifest::PoolName::Replica,
        host: "h".parse().unwrap(),
        address: String::new(),
        gpus: Vec::new(),
        cpu_slots: 1,
        first_port: 0,
    };
    let template = &catalog.rendered.values().next().unwrap().template;
    let spec = template.at(&"chat.prod.0".into(), &[place]).remove(0);
    assert_eq!(spec.env["INNOCENT"], "PLANTED");
    let shown = format!("{catalog:?} {spec:?}");
    assert!(!shown.contains("PLANTED") && shown.contains("INNOCENT"), "{shown}");
}
