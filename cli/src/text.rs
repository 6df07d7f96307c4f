//! Texts that others wrote, made fit for a terminal.

pub(crate) use denv_schema::diagnostic::counted;

/// Without control sequences: an engine's log line must not steer the terminal of who reads about it.
pub(crate) fn printable(text: &str) -> String {
    let visible =
        |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    anstream::adapter::strip_str(text).to_string().chars().map(visible).collect()
}

/// The first line, cut to `most` characters.
pub(crate) fn brief(text: &str, most: usize) -> String {
    let text = printable(text);
    let mut lines = text.trim().lines();
    let line = lines.next().unwrap_or_default().replace('\t', " ");
    let cut = line.chars().count() > most;
    match cut || lines.next().is_some() {
        true => line.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => line,
    }
}

/// All lines, those after the first indented.
pub(crate) fn indented(text: &str, by: usize) -> String {
    printable(text.trim_end()).replace('\n', &format!("\n{}", " ".repeat(by)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("\u{1b}[31mred\u{1b}[0m\u{7} \r\nnext"), "red \u{fffd}\nnext");
    }

    #[test]
    fn a_brief_text_is_one_line() {
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("a longer one", 8), "a longe…");
        assert_eq!(brief("exit status 1\nlog", 40), "exit status 1…");
        assert_eq!(indented("a\nb\n", 2), "a\n  b");
    }
}
