//! Markdown that forges show as meant, and that fits into a comment.

/// GitHub takes 65,536 characters; what a bot adds needs room too.
const MOST: usize = 60_000;

/// A Markdown text that grows until it is full.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    /// Sections that had no room.
    left_out: usize,
}

impl Page {
    /// A paragraph, or whatever else stands by itself.
    pub(super) fn section(&mut self, text: &str) {
        if self.text.chars().count() + text.chars().count() > MOST {
            self.left_out += 1;
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// A section that is folded. What is too long for the page is cut by lines, with a count of those that are missing.
    pub(super) fn folded(&mut self, summary: &str, head: &str, lines: &[String]) {
        let room = MOST.saturating_sub(self.text.chars().count() + 400);
        let (mut kept, mut length) = (Vec::new(), head.chars().count());
        for line in lines {
            length += line.chars().count() + 1;
            if length > room {
                break;
            }
            kept.push(line.as_str());
        }
        let missing = lines.len() - kept.len();
        let note = match missing {
            0 => String::new(),
            missing => format!("\n\n*… and {missing} more; `denv` prints all of them.*"),
        };
        let text = format!(
            "<details><summary>{}</summary>\n\n{head}{}{note}\n\n</details>",
            escaped(summary),
            kept.join("\n")
        );
        self.section(&text);
    }

    pub(super) fn finish(mut self) -> String {
        if self.left_out > 0 {
            let note = format!("\n*{} more sections did not fit.*\n", self.left_out);
            self.text.push_str(&note);
        }
        self.text
    }
}

/// Text that means nothing to Markdown and HTML, on one line.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(c);
            }
            // A mention or a reference would reach people.
            '@' => escaped.push_str("&#64;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A row of a table; its cells are Markdown already.
pub(super) fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Text in a code span.
pub(super) fn code(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| {
            if c == '`' {
                '\''
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect();
    format!("`{}`", text.replace('|', "\\|"))
}
