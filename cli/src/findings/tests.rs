use insta::assert_snapshot;

use super::*;

fn finding(file: &str, line: usize, code: Code, message: &str) -> Diagnostic {
    let (message, hint) = (message.to_owned(), Some("put it right".to_owned()));
    Diagnostic { file: file.to_owned(), line, column: 3, code, message, hint }
}

fn found(findings: impl IntoIterator<Item = Diagnostic>) -> Diagnostics {
    let mut found = Diagnostics::default();
    findings.into_iter().for_each(|finding| found.push(finding));
    found
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn what_is_alike_is_shown_once_with_a_count() {
    let references = (1..=1_000).map(|line| {
        finding("a.yaml", line, Code::UnknownReference, &format!("there is no Release `r{line}`"))
    });
    let all =
        found(references.chain([finding("b.yaml", 2, Code::Yaml, "a tab stands where only spaces may")]));
    assert_snapshot!(plain(&text(&all, &Files::new())), @"
    a.yaml:1:3: error[unknown-reference]: there is no Release `r1`
      hint: put it right

    a.yaml:2:3: error[unknown-reference]: there is no Release `r2`
      hint: put it right

    a.yaml:3:3: error[unknown-reference]: there is no Release `r3`
      hint: put it right

      … and 997 more like it: a.yaml:4, a.yaml:5, a.yaml:6, a.yaml:7, a.yaml:8, …

    b.yaml:2:3: error[yaml]: a tab stands where only spaces may
      hint: put it right

    1001 problems in 2 files: 1 yaml, 1000 unknown-reference
    what they mean: denv explain yaml
    ");
}

#[test]
fn many_kinds_of_faults_are_cut_with_a_count() {
    let words = |number: usize| ["alpha", "beta", "gamma", "delta"].map(|word| word.repeat(number)).join(" ");
    let all = found((1..=60).map(|line| finding("a.yaml", line, Code::BadValue, &words(line))));
    let text = plain(&text(&all, &Files::new()));
    assert!(
        text.contains("… and 20 problems of 20 other kinds that are not shown; `-o json` has all"),
        "{text}"
    );
}

#[test]
fn annotations_are_one_line_each_whatever_is_in_them() {
    let all = found([
        finding("a,b:c.yaml", 7, Code::BadValue, "100% wrong"),
        finding("x.yaml", 0, Code::Unreadable, "the file is not UTF-8"),
    ]);
    assert_snapshot!(github::annotations(&all), @"
    ::error file=a%2Cb%3Ac.yaml,title=bad-value,line=7,col=3::100%25 wrong%0Ahint: put it right
    ::error file=x.yaml,title=unreadable::the file is not UTF-8%0Ahint: put it right
    ");
}

#[test]
fn sarif_names_rules_places_and_words() {
    let all = found([
        finding("a b.yaml", 7, Code::BadValue, "wrong"),
        finding("x.yaml", 0, Code::Unreadable, "unreadable"),
    ]);
    let log = sarif::log(&all);
    let run = &log["runs"][0];
    assert_eq!((log["version"].as_str(), run["results"].as_array().unwrap().len()), (Some("2.1.0"), 2));
    assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "unreadable");
    assert_eq!(
        run["results"][0],
        serde_json::json!({
            "ruleId": "bad-value",
            "level": "error",
            "message": {"text": "wrong\nhint: put it right"},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": "a%20b.yaml"},
                "region": {"startLine": 7, "startColumn": 3},
            }}],
        })
    );
    assert_eq!(run["results"][1]["locations"][0]["physicalLocation"].get("region"), None);
}
