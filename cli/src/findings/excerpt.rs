//! A finding with the line it is about.

use denv_schema::Diagnostic;
use denv_schema::diagnostic::Code;
use owo_colors::OwoColorize as _;

/// More of a line than this is not shown at once.
const WIDTH: usize = 100;

/// The place, what is wrong, the line with a mark under it where `source` has it, and the way out.
pub(crate) fn render(finding: &Diagnostic, source: Option<&str>) -> String {
    let place = match finding.line {
        0 => finding.file.clone(),
        line => format!("{}:{line}:{}", finding.file, finding.column),
    };
    let error = format!("error[{}]:", finding.code);
    let mut text = format!("{}: {} {}\n", place.bold(), error.red().bold(), finding.message);
    let line = finding.line.checked_sub(1).and_then(|index| source?.lines().nth(index));
    if let Some(line) = line.filter(|line| finding.code != Code::InlineSecret && !may_hold_secret(line)) {
        let (shown, before) = window(line, finding.column);
        let number = finding.line.to_string();
        let margin = " ".repeat(number.len());
        let bar = "|".blue();
        let mark = format!("{}^", " ".repeat(before));
        text.push_str(&format!(
            "{margin} {bar}\n{} {bar} {shown}\n{margin} {bar} {}\n",
            number.blue(),
            mark.red()
        ));
    }
    if let Some(hint) = &finding.hint {
        text.push_str(&format!("  {} {hint}\n", "hint:".cyan()));
    }
    text
}

/// Findings are read in logs that more people see than may see the manifests.
fn may_hold_secret(line: &str) -> bool {
    const WORDS: [&str; 8] =
        ["secret", "password", "passwd", "token", "apikey", "api_key", "access_key", "sk-"];
    let line = line.to_lowercase();
    // A whole key is easily pasted where its hash belongs.
    line.contains("hash:") || WORDS.iter().any(|word| line.contains(word))
}

/// The part of a line around a column, and how many characters stand before that column.
fn window(line: &str, column: usize) -> (String, usize) {
    let before = column.saturating_sub(1).min(line.chars().count());
    let start = if before < WIDTH { 0 } else { before - WIDTH / 2 };
    let visible = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    let shown: String = line.chars().skip(start).take(WIDTH).map(visible).collect();
    (shown.trim_end().to_owned(), before - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(line: usize, column: usize, code: Code) -> Diagnostic {
        let (message, hint) = ("it is wrong".to_owned(), Some("put it right".to_owned()));
        Diagnostic { file: "a.yaml".to_owned(), line, column, code, message, hint }
    }

    fn rendered(finding: &Diagnostic, source: Option<&str>) -> String {
        anstream::adapter::strip_str(&render(finding, source)).to_string()
    }

    #[test]
    fn the_mark_is_under_the_place() {
        insta::assert_snapshot!(rendered(&finding(2, 4, Code::BadValue), Some("a: 1\nä:\tx\n")), @"
        a.yaml:2:4: error[bad-value]: it is wrong
          |
        2 | ä: x
          |    ^
          hint: put it right
        ");
        insta::assert_snapshot!(rendered(&finding(0, 0, Code::Unreadable), None), @"
        a.yaml: error[unreadable]: it is wrong
          hint: put it right
        ");
        let long = format!("{}here{}", "x".repeat(200), "y".repeat(200));
        let text = rendered(&finding(1, 201, Code::Yaml), Some(&long));
        let (line, mark) = (text.lines().nth(2).unwrap(), text.lines().nth(3).unwrap());
        assert_eq!(line.find("here"), mark.find('^'));
        assert!(line.len() < 120);
    }

    #[test]
    fn a_place_beyond_the_text_is_no_reason_to_fail() {
        assert!(rendered(&finding(9, 9, Code::Yaml), Some("a")).starts_with("a.yaml:9:9: error[yaml]:"));
        assert!(rendered(&finding(1, 900, Code::Yaml), Some("a")).contains("| a\n"));
        assert!(rendered(&finding(1, 1, Code::Yaml), Some("")).starts_with("a.yaml:1:1"));
    }

    #[test]
    fn a_secret_is_not_repeated() {
        for line in ["  hash: sk-denv-planted", "  env: {HF_TOKEN: planted}", "password: planted"] {
            assert!(!rendered(&finding(1, 3, Code::BadValue), Some(line)).contains("planted"), "{line}");
        }
        assert!(!rendered(&finding(1, 1, Code::InlineSecret), Some("x: planted")).contains("planted"));
    }
}
