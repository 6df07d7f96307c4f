//! Workflow commands of GitHub Actions: it shows them beside the lines they are about.

use std::fmt::Write as _;

use denv_schema::Diagnostics;

pub(super) fn annotations(found: &Diagnostics) -> String {
    let mut text = String::new();
    for finding in found.iter() {
        let mut properties = format!("file={},title={}", property(&finding.file), finding.code);
        if finding.line > 0 {
            let _ = write!(properties, ",line={},col={}", finding.line, finding.column);
        }
        let hint = finding.hint.as_ref().map_or(String::new(), |hint| format!("\nhint: {hint}"));
        let _ = writeln!(text, "::error {properties}::{}", data(&format!("{}{hint}", finding.message)));
    }
    text
}

/// A message: one line, whatever is in it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
