//! Parity suites and alarms: that each case has one right answer, and each bound is of what it bounds.

use std::collections::BTreeSet;

use super::Report;
use crate::catalog::Catalog;
use crate::diagnostic::{Code, nearest};
use crate::manifest::{
    AlarmSpec, Comparison, ComparisonKind, Expectation, Measure, MessageRole, ParityCase, ParityReference,
    ParitySuiteSpec, ReferenceKind,
};
use crate::quantity::Share;

pub(super) fn suite(spec: &ParitySuiteSpec, catalog: &Catalog, report: &mut Report<'_>) {
    if spec.passing > Share::percent(100) {
        report.contradict("/spec/passing", "more than all cases can't pass".to_owned(), None);
    }
    if let Some(of) = &spec.reference {
        reference(of, catalog, report);
    }
    comparison("/spec/comparison", &spec.comparison, report);
    let mut seen = BTreeSet::new();
    for (i, case) in spec.cases.iter().enumerate() {
        let pointer = format!("/spec/cases/{i}");
        if !seen.insert(&case.name) {
            report.contradict(
                &format!("{pointer}/name"),
                format!("case `{}` is written twice", case.name),
                None,
            );
        }
        if case.expect.is_none() && spec.reference.is_none() {
            let message = "nobody says what the right answer is".to_owned();
            report.contradict(
                &pointer,
                message,
                Some("write the case's `expect`, or the suite's `reference`"),
            );
        }
        one_case(&pointer, case, report);
    }
}

fn one_case(pointer: &str, case: &ParityCase, report: &mut Report<'_>) {
    let last = case.messages.len().saturating_sub(1);
    if case.messages.get(last).is_some_and(|message| message.role != MessageRole::User) {
        let message = "the last message is the user's: the model answers it".to_owned();
        report.contradict(&format!("{pointer}/messages/{last}/role"), message, None);
    }
    if let Some(how) = &case.comparison {
        comparison(&format!("{pointer}/comparison"), how, report);
    }
    let mut tools = BTreeSet::new();
    for (i, tool) in case.tools.iter().enumerate() {
        if !tools.insert(tool.name.as_str()) {
            let message = format!("tool `{}` is written twice", tool.name);
            report.contradict(&format!("{pointer}/tools/{i}/name"), message, None);
        }
    }
    let Some(expect) = &case.expect else { return };
    let Expectation { text, json, tool_calls } = expect;
    if [text.is_some(), json.is_some(), tool_calls.is_some()]
        .into_iter()
        .filter(|is_written| *is_written)
        .count()
        != 1
    {
        let message = "the right answer is one of `text`, `json` and `toolCalls`".to_owned();
        report.contradict(&format!("{pointer}/expect"), message, Some("write one of them"));
    }
    for (i, call) in tool_calls.iter().flatten().enumerate() {
        if !tools.contains(call.name.as_str()) {
            let hint = nearest(&call.name, tools.iter().copied());
            let message = format!("the case has no tool `{}`", call.name);
            let pointer = format!("{pointer}/expect/toolCalls/{i}/name");
            report.say(Code::UnknownReference, &pointer, message, hint.as_deref());
        }
    }
}

fn comparison(pointer: &str, comparison: &Comparison, report: &mut Report<'_>) {
    match (comparison.kind, comparison.at_least) {
        (ComparisonKind::TokenAgreement, None) => {
            let message = "token agreement does not say of how many tokens".to_owned();
            report.contradict(pointer, message, Some("write `atLeast`, for example `98%`"));
        }
        (ComparisonKind::TokenAgreement, Some(share)) if share > Share::percent(100) => {
            let message = "more than all tokens can't agree".to_owned();
            report.contradict(&format!("{pointer}/atLeast"), message, None);
        }
        (ComparisonKind::Exact | ComparisonKind::Normalized | ComparisonKind::JsonEqual, Some(_)) => {
            let message = "only token agreement is a matter of more or less".to_owned();
            report.contradict(
                &format!("{pointer}/atLeast"),
                message,
                Some("leave it out, or use `kind: token-agreement`"),
            );
        }
        _ => {}
    }
}

fn reference(reference: &ParityReference, catalog: &Catalog, report: &mut Report<'_>) {
    let (word, wanted): (&str, &[&str]) = match reference.kind {
        ReferenceKind::PreviousRelease => ("previous-release", &[]),
        ReferenceKind::Endpoint => ("endpoint", &["endpoint", "model"]),
        ReferenceKind::Api => ("api", &["url", "model", "key"]),
    };
    for (field, is_written) in [
        ("endpoint", reference.endpoint.is_some()),
        ("model", reference.model.is_some()),
        ("url", reference.url.is_some()),
        ("key", reference.key.is_some()),
    ] {
        // An API may be open to all.
        if wanted.contains(&field) && !is_written && field != "key" {
            let message = format!("a reference of the kind `{word}` needs `{field}`");
            report.contradict("/spec/reference", message, None);
        } else if is_written && !wanted.contains(&field) {
            let message = format!("a reference of the kind `{word}` has no `{field}`");
            report.contradict(&format!("/spec/reference/{field}"), message, Some("leave it out"));
        }
    }
    let endpoint = reference.endpoint.as_ref().and_then(|name| Some((name, catalog.endpoints.get(name)?)));
    if let (Some((name, endpoint)), Some(model)) = (endpoint, &reference.model)
        && !endpoint.models.iter().any(|offered| offered.name == *model)
    {
        let hint = nearest(model, endpoint.models.iter().map(|offered| offered.name.as_str()));
        let message = format!("Endpoint `{name}` does not offer `{model}`");
        report.say(Code::UnknownReference, "/spec/reference/model", message, hint.as_deref());
    }
}

pub(super) fn alarm(spec: &AlarmSpec, report: &mut Report<'_>) {
    let bounds = [
        ("above", spec.above.is_some()),
        ("below", spec.below.is_some()),
        ("risesBy", spec.rises_by.is_some()),
        ("fallsBy", spec.falls_by.is_some()),
    ];
    if bounds.iter().filter(|(_, is_written)| *is_written).count() != 1 {
        let message = "an alarm has one bound: `above`, `below`, `risesBy` or `fallsBy`".to_owned();
        report.contradict("/spec", message, Some("write one of them; make an Alarm for each"));
    }
    let measure = spec.metric.measure();
    for (field, bound) in [("above", spec.above), ("below", spec.below)] {
        let Some(bound) = bound.filter(|bound| bound.measure() != measure) else { continue };
        let wanted = match measure {
            Measure::Time => "a length of time, like `2s`",
            Measure::Share => "a share, like `1%`",
            Measure::Number => "a number",
        };
        let given = match bound.measure() {
            Measure::Time => "a length of time",
            Measure::Share => "a share",
            Measure::Number => "a number",
        };
        let message = format!("the metric is {wanted}, and the bound is {given}");
        report.contradict(&format!("/spec/{field}"), message, None);
    }
    if measure != Measure::Time && spec.percentile.is_some() {
        let message = "only metrics that are lengths of time have percentiles".to_owned();
        report.contradict("/spec/percentile", message, Some("leave it out"));
    }
}
