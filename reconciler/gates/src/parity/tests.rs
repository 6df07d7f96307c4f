use std::collections::BTreeMap;

use denv_schema::Name;
use denv_schema::manifest::ParitySuiteSpec;
use denv_schema::wire::{Answer, CaseAnswer, Said};
use proptest::prelude::*;

use super::*;
use crate::Outcome;

fn suite(passing: &str) -> ParitySuiteSpec {
    serde_json::from_value(serde_json::json!({
        "reference": {"kind": "previous-release"},
        "passing": passing,
        "timeout": "5s",
        "cases": [
            {"name": "capital", "messages": [{"role": "user", "content": "The capital of <France>?"}],
             "expect": {"text": "Paris"}},
            {"name": "weather", "messages": [{"role": "user", "content": "Weather in Paris?"}],
             "tools": [{"name": "weather"}],
             "expect": {"toolCalls": [{"name": "weather", "arguments": {"city": "Paris"}}]}},
            {"name": "poem", "messages": [{"role": "user", "content": "A poem."}],
             "comparison": {"kind": "token-agreement", "atLeast": "75%"}}
        ]
    }))
    .unwrap()
}

fn said(said: Said) -> CaseAnswer {
    CaseAnswer { took_ms: 12, said }
}

fn text(text: &str) -> CaseAnswer {
    said(Said::Answer(Answer { text: text.to_owned(), ..Answer::default() }))
}

fn call(name: &str, arguments: &str) -> CaseAnswer {
    let call = denv_schema::wire::ToolCall { name: name.to_owned(), arguments: arguments.to_owned() };
    said(Said::Answer(Answer { tool_calls: vec![call], ..Answer::default() }))
}

fn answers(all: [CaseAnswer; 3]) -> BTreeMap<Name, CaseAnswer> {
    ["capital", "weather", "poem"].into_iter().map(|name| name.parse().unwrap()).zip(all).collect()
}

fn good() -> BTreeMap<Name, CaseAnswer> {
    answers([text("paris."), call("weather", r#"{"city": "Paris"}"#), text("roses are red today")])
}

#[track_caller]
fn says(verdict: &Verdict, outcome: Outcome, reason: &str) {
    assert_eq!((verdict.outcome, verdict.reason.as_str()), (outcome, reason));
}

#[test]
fn answers_as_they_should_be_pass() {
    let verdict = judge(&suite("100%"), &good(), Reference::Answers(&good()));
    says(&verdict, Outcome::Pass, "3 of 3 cases passed, 3 must");
}

#[test]
fn a_wrong_answer_fails_and_is_shown() {
    let wrong = answers([text("Lyon"), call("weather", r#"{"city": "Rome"}"#), text("roses are red today")]);
    let verdict = judge(&suite("100%"), &wrong, Reference::Answers(&good()));
    says(
        &verdict,
        Outcome::Fail,
        "1 of 3 cases passed, 3 must; `capital`: at character 1, `Lyon` instead of `Paris`",
    );
    assert_eq!(verdict.cases[1].differences[0].at, "call 1, weather: /city");
    assert_eq!(judge(&suite("33%"), &wrong, Reference::Answers(&good())).outcome, Outcome::Pass);
}

#[test]
fn what_a_host_did_is_not_the_releases_failure() {
    let away = said(Said::Away { reason: "connection refused".to_owned() });
    let verdict =
        judge(&suite("100%"), &answers([text("Paris"), away.clone(), text("roses")]), Reference::Nothing);
    says(
        &verdict,
        Outcome::Inconclusive,
        "1 of 2 cases passed, 2 must; 1 had nothing to compare with; of 1 nothing can be said; `weather`: the engine \
         was away: connection refused",
    );
    // A wrong answer is one, whatever else was away.
    let verdict = judge(&suite("100%"), &answers([text("Lyon"), away, text("roses")]), Reference::Nothing);
    assert_eq!(verdict.outcome, Outcome::Fail);
    for its_own in [
        Said::TimedOut,
        Said::Error { status: 500, message: "out of memory".to_owned() },
        Said::Unreadable { reason: "no choices".to_owned() },
    ] {
        let mut answers = good();
        answers.insert("capital".parse().unwrap(), said(its_own));
        assert_eq!(judge(&suite("100%"), &answers, Reference::Answers(&good())).outcome, Outcome::Fail);
    }
}

#[test]
fn a_reference_that_is_away_says_nothing_of_the_release() {
    let mut reference = good();
    reference.insert("poem".parse().unwrap(), said(Said::TimedOut));
    let verdict = judge(&suite("100%"), &good(), Reference::Answers(&reference));
    assert_eq!(verdict.outcome, Outcome::Inconclusive);
    assert_eq!(judge(&suite("60%"), &good(), Reference::Answers(&reference)).outcome, Outcome::Pass);
}

#[test]
fn the_first_release_has_nothing_to_be_compared_with() {
    let mut suite = suite("100%");
    suite.cases.retain(|case| case.expect.is_none());
    let verdict = judge(&suite, &good(), Reference::Nothing);
    says(&verdict, Outcome::Pass, "there is no release before to compare with");
}

fn report(verdict: Verdict) -> Report {
    let Verdict { outcome, reason, cases } = verdict;
    Report {
        stage: "chat/prod".parse().unwrap(),
        deployment: 7,
        when: When::Before,
        attempt: 1,
        release: "r2".parse().unwrap(),
        suite: "golden".parse().unwrap(),
        unit: "chat.prod.3".into(),
        host: "h1".parse().unwrap(),
        reference: Some("release `r1` on unit `chat.prod.1`".to_owned()),
        begun: "2026-11-29T12:00:00Z".parse().unwrap(),
        ended: "2026-11-29T12:00:05Z".parse().unwrap(),
        outcome,
        reason,
        cases,
    }
}

#[test]
fn a_report_reads_well_in_a_terminal() {
    let wrong = answers([text("Lyon"), call("weather", r#"{"city": "Rome"}"#), text("roses are red today")]);
    let report = report(judge(&suite("100%"), &wrong, Reference::Answers(&good())));
    insta::assert_snapshot!(report.text(), @r#"
    Stage:       chat/prod
    Deployment:  7, before it takes traffic
    Release:     r2
    Suite:       golden
    Unit:        chat.prod.3 on h1
    Reference:   release `r1` on unit `chat.prod.1`
    Run:         1 at 2026-11-29T12:00:05Z
    Outcome:     failed: 1 of 3 cases passed, 3 must; `capital`: at character 1, `Lyon` instead of `Paris`

    failed       capital
      compared: the words
      at character 1
        - Paris
        + Lyon

    failed       weather
      compared: the calls of tools
      at call 1, weather: /city
        - "Paris"
        + "Rome"

    passed       poem (at least 75% of the tokens)
    "#);
}

#[test]
fn a_page_shows_everything_and_obeys_nothing() {
    let script = "<script>alert('1')</script>";
    let wrong = answers([text(script), call("weather", r#"{"city": "Paris"}"#), text("roses are red today")]);
    let page = html(&report(judge(&suite("100%"), &wrong, Reference::Answers(&good()))));
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;1&#39;)"));
    assert!(page.contains("The capital of &lt;France&gt;?"));
    assert!(page.contains("<details open><summary><span class=\"failed\">failed</span> <b>capital</b>"));
    assert!(page.contains("<details><summary><span class=\"passed\">passed</span> <b>poem</b>"));
    assert!(!page.contains("http"), "a page needs nothing beside itself");
}

proptest! {
    #[test]
    fn a_better_answer_never_makes_it_worse(right in prop::collection::vec(0u8..4, 3), better in 0usize..3, passing in 0u32..=100) {
        let make = |right: &[u8]| {
            let one = |i: usize| match right[i] {
                0 => good()[["capital", "weather", "poem"][i]].clone(),
                1 => said(Said::Away { reason: String::new() }),
                2 => text("something else"),
                _ => said(Said::TimedOut),
            };
            answers([one(0), one(1), one(2)])
        };
        let weight = |outcome| match outcome { Outcome::Fail => 0, Outcome::Inconclusive => 1, Outcome::Pass => 2 };
        let judged = |right: &[u8]| {
            judge(&suite(&format!("{passing}%")), &make(right), Reference::Answers(&good())).outcome
        };
        let before = judged(&right);
        let mut after = right.clone();
        after[better] = 0;
        prop_assert!(weight(judged(&after)) >= weight(before));
        prop_assert_eq!(before, judged(&right));
    }
}
