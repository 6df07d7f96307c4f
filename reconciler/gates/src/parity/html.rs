use std::fmt::Write as _;

use super::report::{CaseReport, CaseVerdict, Report};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c2024;background:#fff}h1{font-size:1.4rem}table{border-collapse:collapse}th{text-align:left;\
padding:.15rem 1rem .15rem 0;color:#60646c;font-weight:500;vertical-align:top}details{border:1px solid #d9d9e0;\
border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}summary{cursor:pointer}pre{white-space:pre-wrap;\
overflow-wrap:anywhere;background:#f4f4f6;border-radius:4px;padding:.5rem;margin:.3rem 0}.pass,.passed{color:#18794e}\
.fail,.failed{color:#ce2c31}.inconclusive,.skipped{color:#ab6400}del{background:#ffdbdc;text-decoration:none}\
ins{background:#d6f1df;text-decoration:none}dt{color:#60646c;margin-top:.5rem}dd{margin:0}\
@media(prefers-color-scheme:dark){body{color:#eee;background:#18191b}pre{background:#272a2d}\
details{border-color:#43484e}del{background:#671e22}ins{background:#1b4a32}}";

/// One page that needs nothing beside itself: cases that passed are folded, the others are open.
pub fn html(report: &Report) -> String {
    let mut page = String::new();
    let title = format!("Parity of {} in {}", report.release, report.stage);
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style></head>\n\
         <body><h1>{0}: <span class=\"{1}\">{1}</span></h1>\n<table>",
        escape(&title),
        report.outcome,
    );
    for (label, value) in report.head() {
        let _ = writeln!(page, "<tr><th>{label}</th><td>{}</td></tr>", escape(&value));
    }
    let counts = [CaseVerdict::Failed, CaseVerdict::Inconclusive, CaseVerdict::Skipped, CaseVerdict::Passed]
        .map(|verdict| (report.count(verdict), verdict.as_str()))
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("<span class=\"{word}\">{count} {word}</span>"))
        .collect::<Vec<_>>()
        .join(", ");
    let _ = writeln!(page, "<tr><th>Cases</th><td>{counts}</td></tr></table>");
    for case in report.by_weight() {
        write_case(&mut page, case);
    }
    page.push_str("</body></html>\n");
    page
}

fn write_case(page: &mut String, case: &CaseReport) {
    let (open, word) =
        (if case.verdict == CaseVerdict::Passed { "" } else { " open" }, case.verdict.as_str());
    let took = case.took_ms.map_or_else(String::new, |took| format!(" · {took} ms"));
    let _ = write!(
        page,
        "<details{open}><summary><span class=\"{word}\">{word}</span> <b>{}</b> · {}{took}</summary><dl>",
        escape(case.name.as_str()),
        escape(&case.comparison)
    );
    if let Some(reason) = &case.reason {
        let _ = write!(page, "<dt>Why</dt><dd>{}</dd>", escape(reason));
    }
    for difference in &case.differences {
        let _ = write!(
            page,
            "<dt>At {}</dt><dd><pre><del>{}</del>\n<ins>{}</ins></pre></dd>",
            escape(&difference.at),
            escape(&difference.expected),
            escape(&difference.answered)
        );
    }
    let _ = write!(page, "<dt>Asked</dt><dd><pre>{}</pre></dd>", escape(&case.prompt));
    for (label, text) in [("Expected", &case.expected), ("Answered", &case.answered)] {
        if let Some(text) = text {
            let _ = write!(page, "<dt>{label}</dt><dd><pre>{}</pre></dd>", escape(text));
        }
    }
    page.push_str("</dl></details>\n");
}

/// What models and people write is shown, never obeyed.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
