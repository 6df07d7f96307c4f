//! The name that was probably meant. Thousands of references may lead to nothing at once, in a repository of thousands
//! of names, so comparing each with each must cost next to nothing.

use std::collections::BTreeMap;

use crate::manifest::Kind;

/// What a hint can be made of: the names of each kind, made ready once, and what was looked up before.
#[derive(Default)]
pub(super) struct Suggestions {
    names: BTreeMap<Kind, Vec<Candidate>>,
    known: BTreeMap<(Kind, String), String>,
    /// Comparisons made so far.
    made: usize,
}

struct Candidate {
    name: String,
    letters: u64,
}

/// After so many comparisons, hints no longer name the nearest: nobody reads that many, and all must be fast.
const MOST_COMPARISONS: usize = 4_000_000;

impl Suggestions {
    /// A hint for a reference to nothing: the nearest name, or what there is.
    pub(super) fn hint<'a, K: ToString + 'a>(
        &mut self,
        kind: Kind,
        wrong: &str,
        known: impl Iterator<Item = &'a K>,
    ) -> String {
        if let Some(hint) = self.known.get(&(kind, wrong.to_owned())) {
            return hint.clone();
        }
        let candidate = |name: &K| {
            let name = name.to_string();
            Candidate { letters: letters(&name), name }
        };
        let names = self.names.entry(kind).or_insert_with(|| known.map(candidate).collect());
        let nearest = if self.made < MOST_COMPARISONS { nearest(wrong, names, &mut self.made) } else { None };
        let hint = nearest.map_or_else(|| all(kind, names), |name| format!("did you mean `{name}`?"));
        self.known.insert((kind, wrong.to_owned()), hint.clone());
        hint
    }
}

fn all(kind: Kind, names: &[Candidate]) -> String {
    let list = names.iter().take(8).map(|name| format!("`{}`", name.name)).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => format!("there is no {kind} yet"),
        1 => format!("there is only {list}"),
        2..=8 => format!("there are {list}"),
        _ => format!("there are {list} …"),
    }
}

fn nearest<'a>(wrong: &str, names: &'a [Candidate], made: &mut usize) -> Option<&'a str> {
    let of_wrong = letters(wrong);
    let mut best: Option<(usize, &str)> = None;
    // Most slips keep all letters; what is found there leaves little to look for elsewhere.
    let same = names.iter().filter(|candidate| candidate.letters == of_wrong);
    let others = names.iter().filter(|candidate| candidate.letters != of_wrong);
    for candidate in same.chain(others) {
        let (name, length) = (candidate.name.as_str(), candidate.name.len());
        // Better than before, or alike enough at all. Nothing is nearer than one edit.
        let most = match best {
            Some((1, _)) => break,
            Some((distance, _)) => distance - 1,
            None => 1 + length.max(wrong.len()) / 3,
        };
        // Each edit changes the length by one at most, and brings or takes one letter at most.
        let (gone, come) = (of_wrong & !candidate.letters, candidate.letters & !of_wrong);
        if length.abs_diff(wrong.len()) > most || gone.count_ones().max(come.count_ones()) as usize > most {
            continue;
        }
        *made += 1;
        if let Some(distance) = distance(wrong.as_bytes(), name.as_bytes(), most) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// The longest name that is compared: a stage with its environment.
const LONGEST: usize = 127;

/// Which characters a name holds, folded into 64 bits.
fn letters(name: &str) -> u64 {
    name.bytes().fold(0, |letters, byte| letters | 1 << (byte & 63))
}

/// How many insertions, removals, changes and swaps of neighbours lead from one to the other, where not more than `most`.
fn distance(one: &[u8], other: &[u8], most: usize) -> Option<usize> {
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    let same = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[..one.len() - same], &other[..other.len() - same]);
    if one.len().max(other.len()) <= 1 {
        return Some(one.len().max(other.len())).filter(|distance| *distance <= most);
    }
    if other.len() > LONGEST {
        return None;
    }
    let (mut before_last, mut last, mut row) = ([0; LONGEST + 1], [0; LONGEST + 1], [0; LONGEST + 1]);
    (0..=other.len()).for_each(|j| last[j] = j);
    for i in 1..=one.len() {
        (row[0], before_last[0]) = (i, i.saturating_sub(2));
        let mut least = i;
        for j in 1..=other.len() {
            let cost = usize::from(one[i - 1] != other[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + cost);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
            least = least.min(row[j]);
        }
        // A swap reaches back two rows, and costs one.
        if least > most + 1 {
            return None;
        }
        (before_last, last, row) = (last, row, before_last);
    }
    Some(last[other.len()]).filter(|distance| *distance <= most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_is_named_or_all_are() {
        let names: Vec<String> = ["cloud-fra", "racks-fra", "racks-fra2"].map(str::to_owned).to_vec();
        let mut suggestions = Suggestions::default();
        let mut hint = |wrong: &str| suggestions.hint(Kind::Fleet, wrong, names.iter());
        assert_eq!(hint("rakcs-fra"), "did you mean `racks-fra`?");
        assert_eq!(hint("minimum"), "there are `cloud-fra`, `racks-fra`, `racks-fra2`");
        assert_eq!(hint("rakcs-fra"), "did you mean `racks-fra`?");
    }

    proptest! {
        #[test]
        fn distances_are_those_of_the_plain_algorithm(one in "[abc]{0,8}", other in "[abc]{0,8}", most in 0usize..9) {
            let plain = strsim::osa_distance(&one, &other);
            prop_assert_eq!(distance(one.as_bytes(), other.as_bytes(), most), (plain <= most).then_some(plain));
        }
    }
}
