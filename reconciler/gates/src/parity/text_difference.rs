use super::report::Difference;

/// A word, or a sign by itself, and where it begins in its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    at: usize,
}

impl PartialEq for Token<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Parts a text into words and signs. Engines' own tokens depend on the model; these do not, and are as fine.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut word: Option<usize> = None;
    for (at, sign) in text.char_indices() {
        if sign.is_alphanumeric() || sign == '_' {
            word.get_or_insert(at);
            continue;
        }
        if let Some(begin) = word.take() {
            found.push(Token { text: &text[begin..at], at: begin });
        }
        if !sign.is_whitespace() {
            found.push(Token { text: &text[at..at + sign.len_utf8()], at });
        }
    }
    if let Some(begin) = word {
        found.push(Token { text: &text[begin..], at: begin });
    }
    found
}

/// Above this product of lengths what lies between the first and the last difference is shown as one.
const MOST_CELLS: usize = 1 << 20;
/// More places than this tell nobody more.
pub(super) const MOST_DIFFERENCES: usize = 50;
const LONGEST_EXCERPT: usize = 400;

/// The places in which two texts differ, word by word. Texts that differ in white space alone differ in one place.
pub(super) fn differences(expected: &str, answered: &str) -> Vec<Difference> {
    let (left, right) = (tokens(expected), tokens(answered));
    let hunks = hunks(&left, &right);
    if hunks.is_empty() {
        let at = expected
            .char_indices()
            .zip(answered.chars())
            .find_map(|((at, one), other)| (one != other).then_some(at))
            .unwrap_or(expected.len().min(answered.len()));
        let excerpt = |text: &str| format!("{:?}", cut(&text[floor(text, at.saturating_sub(20))..], 60));
        return vec![Difference {
            at: format!("{}, in white space", place(expected, at)),
            expected: excerpt(expected),
            answered: excerpt(answered),
        }];
    }
    let excerpt = |text: &str, tokens: &[Token<'_>]| match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => cut(&text[first.at..last.at + last.text.len()], LONGEST_EXCERPT),
        _ => String::new(),
    };
    hunks
        .into_iter()
        .take(MOST_DIFFERENCES)
        .map(|hunk| {
            let at = left.get(hunk.left.start).map_or(expected.len(), |token| token.at);
            Difference {
                at: place(expected, at),
                expected: excerpt(expected, &left[hunk.left]),
                answered: excerpt(answered, &right[hunk.right]),
            }
        })
        .collect()
}

struct Hunk {
    left: std::ops::Range<usize>,
    right: std::ops::Range<usize>,
}

fn hunks(left: &[Token<'_>], right: &[Token<'_>]) -> Vec<Hunk> {
    let prefix = left.iter().zip(right).take_while(|(one, other)| one == other).count();
    let rest = left.len().min(right.len()) - prefix;
    let suffix =
        left.iter().rev().zip(right.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    let (left_end, right_end) = (left.len() - suffix, right.len() - suffix);
    if prefix == left_end && prefix == right_end {
        return Vec::new();
    }
    let (rows, columns) = (left_end - prefix, right_end - prefix);
    if rows.saturating_mul(columns) > MOST_CELLS {
        return vec![Hunk { left: prefix..left_end, right: prefix..right_end }];
    }
    let common = longest_common(&left[prefix..left_end], &right[prefix..right_end]);
    let mut found = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (row, column) in common.into_iter().chain([(rows, columns)]) {
        if i < row || j < column {
            found.push(Hunk { left: prefix + i..prefix + row, right: prefix + j..prefix + column });
        }
        (i, j) = (row + 1, column + 1);
    }
    found
}

/// The pairs of a longest common subsequence, ascending.
fn longest_common(left: &[Token<'_>], right: &[Token<'_>]) -> Vec<(usize, usize)> {
    let width = right.len() + 1;
    let mut lengths = vec![0u32; (left.len() + 1) * width];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            lengths[i * width + j] = if left[i] == right[j] {
                lengths[(i + 1) * width + j + 1] + 1
            } else {
                lengths[(i + 1) * width + j].max(lengths[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < left.len() && j < right.len() {
        if left[i] == right[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// A place in a text as people count: line and character from 1.
fn place(text: &str, at: usize) -> String {
    let before = &text[..floor(text, at)];
    let line = before.matches('\n').count() + 1;
    let character = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    if line == 1 { format!("character {character}") } else { format!("line {line}, character {character}") }
}

/// At most so many bytes of a text, with a mark where it is cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", &text[..floor(text, most)])
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(expected: &str, answered: &str) -> Vec<String> {
        let show = |it: Difference| format!("{}: {} → {}", it.at, it.expected, it.answered);
        differences(expected, answered).into_iter().map(show).collect()
    }

    #[test]
    fn every_place_is_shown() {
        assert_eq!(
            shown(
                "The capital of France is Paris, on the Seine.",
                "The capital of France is Lyon, on the Rhône."
            ),
            ["character 26: Paris → Lyon", "character 40: Seine → Rhône"]
        );
        assert_eq!(shown("one two", "one two three"), ["character 8:  → three"]);
        assert_eq!(shown("a\nb c", "a\nc"), ["line 2, character 1: b → "]);
        assert_eq!(shown("a  b", "a b"), [r#"character 3, in white space: "a  b" → "a b""#]);
    }

    proptest! {
        #[test]
        fn no_two_texts_break_it(one in "\\PC{0,40}", two in "\\PC{0,40}") {
            prop_assert!(one == two || !differences(&one, &two).is_empty());
            prop_assert!(hunks(&tokens(&one), &tokens(&one)).is_empty());
        }

        #[test]
        fn hunks_turn_one_into_the_other(one in "[abc ]{0,30}", two in "[abc ]{0,30}") {
            let (left, right) = (tokens(&one), tokens(&two));
            let (mut built, mut next) = (Vec::new(), 0);
            for hunk in hunks(&left, &right) {
                built.extend(left[next..hunk.left.start].iter().map(|token| token.text));
                built.extend(right[hunk.right].iter().map(|token| token.text));
                next = hunk.left.end;
            }
            built.extend(left[next..].iter().map(|token| token.text));
            prop_assert_eq!(built, right.iter().map(|token| token.text).collect::<Vec<_>>());
        }
    }
}
