//! What a remote that did not take a push means by what it said of it.

/// So many of the remote's last words are kept; what comes before is progress, mostly.
pub(super) const MOST_WORDS: usize = 8 << 10;
/// So many lines of them are passed on: what a hook has to say, and not all that a build printed.
const MOST_LINES: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The branch stands elsewhere than it was expected.
    Moved,
    /// The branch is checked out there, in a worktree that a push would leave behind.
    CheckedOut,
    /// A protected branch, a hook: in the remote's words.
    Rules(String),
}

/// `status` is what the remote says of the branch, in few words; `words` is what it and its hooks printed.
pub(super) fn rejection(status: &str, words: &[u8]) -> Rejection {
    let words = lines(words);
    // Git says so of a branch that moved between listing and pushing, and beside it why it could not lock it. Forges say
    // it in one. A lock that is merely held or may not be made says something else.
    let moves = ["fetch first", "non-fast-forward", "but expected", "reference already exists"];
    let moved = |text: &str| moves.iter().any(|sign| text.contains(sign));
    let of_branch = ["failed to update ref", "lock"].iter().any(|sign| status.contains(sign));
    // JGit, which Gerrit is built on, has no more words for it.
    let failed_to_lock = status.trim() == "failed to lock";
    if moved(status) || failed_to_lock || (of_branch && words.iter().any(|line| moved(line))) {
        return Rejection::Moved;
    }
    if status.contains("branch is currently checked out") {
        return Rejection::CheckedOut;
    }
    let status = printable(status);
    if words.is_empty() {
        return Rejection::Rules(status);
    }
    Rejection::Rules(format!("{status}: {}", words[words.len().saturating_sub(MOST_LINES)..].join("; ")))
}

/// Each line as a terminal would show it in the end, without those that count something.
fn lines(words: &[u8]) -> Vec<String> {
    let words = String::from_utf8_lossy(words);
    let shown = words.split('\n').filter_map(|line| line.split('\r').rfind(|part| !part.trim().is_empty()));
    let shown = shown.filter(|line| !line.contains("% (")).map(printable);
    shown.map(|line| line.strip_prefix("error: ").unwrap_or(&line).to_owned()).collect()
}

/// It is shown in terminals and kept in records.
fn printable(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_that_moved_is_told_from_rules() {
        let expected = "error: cannot lock ref 'refs/heads/main': is at 1f0 but expected 7ac\n";
        for (status, words) in [
            ("failed to update ref", expected),
            ("cannot lock ref 'refs/heads/main': is at 1f0 but expected 7ac", ""),
            ("failed to update ref", "error: cannot lock ref 'refs/heads/topic': reference already exists\n"),
            ("failed to lock", ""),
            ("fetch first", ""),
            ("non-fast-forward", ""),
        ] {
            assert_eq!(rejection(status, words.as_bytes()), Rejection::Moved, "{status}");
        }
        for status in ["blocked by policy", "pre-receive hook declined", "file locked by bob"] {
            assert_eq!(rejection(status, b""), Rejection::Rules(status.to_owned()));
        }
        // A hook may well print such words of something else.
        assert!(matches!(
            rejection("pre-receive hook declined", b"is at 1, but expected 2\n"),
            Rejection::Rules(_)
        ));
        assert_eq!(rejection("branch is currently checked out", b""), Rejection::CheckedOut);
    }

    #[test]
    fn the_remote_is_quoted_without_what_it_counts() {
        let words = "Resolving deltas: 100% (1/1)\rResolving deltas: 100% (1/1), done.\n\
            error: GH006: Protected branch update failed for refs/heads/main.        \n\n\
            \u{1b}[31merror: Changes must be made through a pull request.\r\n";
        assert_eq!(
            rejection("protected branch hook declined", words.as_bytes()),
            Rejection::Rules(
                "protected branch hook declined: GH006: Protected branch update failed for refs/heads/main.; \
                 [31merror: Changes must be made through a pull request."
                    .to_owned()
            )
        );
        let many = (0..100).map(|number| format!("line {number}\n")).collect::<String>();
        let Rejection::Rules(why) = rejection("hook declined", many.as_bytes()) else { panic!("no rules") };
        assert!(why.starts_with("hook declined: line 92; ") && why.ends_with("; line 99"), "{why}");
    }
}
