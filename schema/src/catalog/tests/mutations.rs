//! Manifests as hands and tools damage them.

use proptest::prelude::*;

use super::*;

/// A change to a text, at places given as shares of its length.
#[derive(Clone, Debug)]
enum Mutation {
    RemoveLine(f64),
    RepeatLine(f64),
    SwapLines(f64, f64),
    RemoveCharacter(f64),
    Insert(f64, String),
    ReplaceToken(f64, String),
    Truncate(f64),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0.0..1.0f64;
    let piece = prop_oneof![
        "[ -~äé\t\n\r]{1,3}",
        prop::sample::select(vec![
            "[",
            "{",
            "}",
            ": ",
            "- ",
            "&a ",
            "*a",
            "<<: *a",
            "!x ",
            "---\n",
            "...\n",
            "|\n",
            "\"",
            "'",
            "\u{feff}",
            "~",
            "99999999999999999999",
            "-1",
            "1.5",
            "sha256:",
            "kind: Stage",
            "\u{2028}",
            "%YAML 1.1\n",
            "\0",
            "? ",
        ])
        .prop_map(str::to_owned),
    ];
    prop_oneof![
        at.clone().prop_map(Mutation::RemoveLine),
        at.clone().prop_map(Mutation::RepeatLine),
        (at.clone(), at.clone()).prop_map(|(one, other)| Mutation::SwapLines(one, other)),
        at.clone().prop_map(Mutation::RemoveCharacter),
        (at.clone(), piece.clone()).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        (at.clone(), piece).prop_map(|(at, piece)| Mutation::ReplaceToken(at, piece)),
        at.prop_map(Mutation::Truncate),
    ]
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "shares"
)]
pub(super) fn index(share: f64, length: usize) -> usize {
    ((share * length as f64) as usize).min(length.saturating_sub(1))
}

fn mutate(text: &str, mutation: &Mutation) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let count = lines.len();
    if count == 0 {
        return text.to_owned();
    }
    let position = |share: f64| {
        let at = index(share, text.chars().count());
        text.char_indices().nth(at).map_or(text.len(), |(at, _)| at)
    };
    match mutation {
        Mutation::RemoveLine(at) => drop(lines.remove(index(*at, count))),
        Mutation::RepeatLine(at) => lines.insert(index(*at, count), lines[index(*at, count)]),
        Mutation::SwapLines(one, other) => lines.swap(index(*one, count), index(*other, count)),
        Mutation::RemoveCharacter(at) => {
            let at = position(*at);
            let length = text[at..].chars().next().map_or(0, char::len_utf8);
            return format!("{}{}", &text[..at], &text[at + length..]);
        }
        Mutation::Insert(at, piece) => {
            let at = position(*at);
            return format!("{}{piece}{}", &text[..at], &text[at..]);
        }
        Mutation::ReplaceToken(at, piece) => {
            let tokens: Vec<&str> = text.split_inclusive([' ', '\n', ',', '{', '[']).collect();
            let at = index(*at, tokens.len());
            return format!("{}{piece} {}", tokens[..at].concat(), tokens[at + 1..].concat());
        }
        Mutation::Truncate(at) => return text[..position(*at)].to_owned(),
    }
    lines.concat()
}

/// Every finding is at a place that a person can go to.
pub(super) fn check_places(files: &Files, found: &Diagnostics) -> Result<(), TestCaseError> {
    for finding in found.iter() {
        let text = String::from_utf8_lossy(&files[&finding.file]).into_owned();
        if finding.line == 0 {
            prop_assert_eq!(finding.code, crate::diagnostic::Code::Unreadable);
            continue;
        }
        let line = text.strip_prefix('\u{feff}').unwrap_or(&text).split('\n').nth(finding.line - 1);
        let is_within = line.is_some_and(|line| (1..=line.chars().count() + 1).contains(&finding.column));
        prop_assert!(is_within, "{finding} is not within\n{text}");
        prop_assert!(!finding.message.is_empty() && !finding.message.contains('\n'));
    }
    Ok(())
}

/// Puts a field into one of a document's mappings; true where that makes it a field that no kind has.
fn insert_unknown(value: &mut serde_json::Value, left: &mut usize, free: bool) -> Option<bool> {
    match value {
        serde_json::Value::Object(fields) => {
            if *left == 0 {
                fields.insert("unknownField".to_owned(), "x".into());
                return Some(!free);
            }
            *left -= 1;
            fields.iter_mut().find_map(|(name, field)| {
                // What these hold is the writer's own.
                insert_unknown(field, left, matches!(name.as_str(), "labels" | "annotations" | "env"))
            })
        }
        serde_json::Value::Array(items) => {
            items.iter_mut().find_map(|item| insert_unknown(item, left, false))
        }
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_manifests_are_refused_with_places_or_accepted_whole(
        file in 0usize..QUICKSTART.len(),
        mutations in prop::collection::vec(mutation(), 1..5),
    ) {
        let mut files = quickstart();
        let (name, text) = QUICKSTART[file];
        let text = mutations.iter().fold(text.to_owned(), |text, mutation| mutate(&text, mutation));
        files.insert(name.to_owned(), text.into_bytes());
        match Catalog::from_files(&files) {
            Ok(catalog) => prop_assert_eq!(catalog.rendered.len(), catalog.releases.len()),
            Err(found) => {
                prop_assert!(!found.is_empty());
                check_places(&files, &found)?;
            }
        }
    }

    #[test]
    fn damaged_bytes_never_panic(file in 0usize..QUICKSTART.len(), at in 0.0..1.0f64, byte: u8) {
        let mut files = quickstart();
        let bytes = files.get_mut(QUICKSTART[file].0).unwrap();
        let at = index(at, bytes.len());
        bytes[at] = byte;
        if let Err(found) = Catalog::from_files(&files) {
            check_places(&files, &found)?;
        }
    }

    #[test]
    fn an_unknown_field_is_never_accepted(file in 0usize..QUICKSTART.len(), document in 0usize..8, mapping in 0usize..12) {
        let (name, text) = QUICKSTART[file];
        let mut values: Vec<serde_json::Value> = serde_yaml::from_multiple(text).unwrap();
        let count = values.len();
        let mut left = mapping;
        let Some(is_unknown) = insert_unknown(&mut values[document % count], &mut left, false) else { return Ok(()) };
        let text = values.iter().map(|value| format!("---\n{value:#}\n")).collect::<String>();
        let mut files = quickstart();
        files.insert(name.to_owned(), text.into_bytes());
        let found = Catalog::from_files(&files);
        prop_assert_eq!(found.is_err(), is_unknown);
        if let Err(found) = found {
            prop_assert!(found.to_string().contains("unknown field `unknownField`"), "{found}");
            check_places(&files, &found)?;
        }
    }
}
