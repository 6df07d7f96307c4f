use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A prompt of as many blocks as there are letters.
fn prompt(letters: &str) -> Prefix {
    let text: String = letters.chars().map(|letter| letter.to_string().repeat(BLOCK_BYTES)).collect();
    Prefix::new([&b"m"[..]], text.as_bytes())
}

#[test]
fn a_prompt_is_held_as_far_as_it_is_the_same() {
    let mut index = KvIndex::new(ROOM);
    let (a, b) = (index.join(), index.join());
    index.hold(a, &prompt("xyz"));
    index.hold(b, &prompt("xq"));
    let held = |index: &KvIndex, letters: &str| [a, b].map(|holder| index.held(&prompt(letters)).by(holder));
    assert_eq!(held(&index, "xyzw"), [3, 1]);
    assert_eq!(held(&index, "xqz"), [1, 2]);
    // The same text at another place is other tokens' neighbour.
    assert_eq!(held(&index, "yz"), [0, 0]);
    assert_eq!(held(&index, ""), [0, 0]);
}

#[test]
fn a_cache_that_is_lost_is_forgotten_at_once_and_what_replaces_it_holds_nothing() {
    let mut index = KvIndex::new(ROOM);
    let (a, b) = (index.join(), index.join());
    index.hold(a, &prompt("xyz"));
    index.hold(b, &prompt("x"));
    index.forget(a);
    let again = index.join();
    let held = index.held(&prompt("xyz"));
    assert_eq!([a, b, again].map(|holder| held.by(holder)), [0, 1, 0]);
    // What was under way for the lost one comes too late.
    index.hold(a, &prompt("xyz"));
    assert_eq!(index.held(&prompt("xyz")).by(a), 0);
}

#[test]
fn what_a_prompts_tokens_depend_on_tells_prompts_apart() {
    let text = vec![b'x'; 3 * BLOCK_BYTES];
    let mut index = KvIndex::new(ROOM);
    let a = index.join();
    index.hold(a, &Prefix::new([&b"m"[..], b"salt"], &text));
    for frame in [[&b"m"[..], b""], [b"m", b"other"], [b"ms", b"alt"]] {
        assert_eq!(index.held(&Prefix::new(frame, &text)).by(a), 0, "{frame:?}");
    }
}

#[test]
fn memory_is_bounded_and_what_is_used_stays() {
    let mut index = KvIndex::new(64);
    let a = index.join();
    for number in 0..1000u32 {
        let other = Prefix::new([number.to_string().as_bytes()], &vec![b'x'; 4 * BLOCK_BYTES]);
        index.hold(a, &other);
        index.hold(a, &prompt("used"));
        assert!(index.len() <= 72, "{}", index.len());
    }
    assert_eq!(index.held(&prompt("used")).by(a), 4);
}

proptest! {
    /// Against what is plainly true while there is room: all prompts of each cache, compared one by one.
    #[test]
    fn it_says_what_a_list_of_all_prompts_says(
        acts in prop::collection::vec((0usize..4, "[ab]{0,5}", prop::bool::weighted(0.1)), 1..40), asked in "[ab]{0,6}",
    ) {
        let mut index = KvIndex::new(ROOM);
        let mut caches: Vec<Holder> = (0..4).map(|_| index.join()).collect();
        let mut lists: BTreeMap<Holder, Vec<String>> = BTreeMap::new();
        for (cache, letters, is_lost) in acts {
            if is_lost {
                index.forget(caches[cache]);
                caches[cache] = index.join();
            } else {
                index.hold(caches[cache], &prompt(&letters));
                lists.entry(caches[cache]).or_default().push(letters);
            }
        }
        let held = index.held(&prompt(&asked));
        for cache in caches {
            let same = |letters: &String| letters.chars().zip(asked.chars()).take_while(|(a, b)| a == b).count();
            let wanted = lists.get(&cache).into_iter().flatten().map(same).max().unwrap_or(0);
            prop_assert_eq!(held.by(cache) as usize, wanted);
        }
    }
}
