use super::*;

#[test]
fn lengths_are_said_as_people_say_them() {
    let said = [45, 90, 719, 5_400, 8_400, 200_000].map(length);
    assert_eq!(said, ["45 s", "2 min", "12 min", "1 h 30 min", "2 h 20 min", "2 d 8 h"]);
}

#[test]
fn nothing_that_is_written_in_a_manifest_steers_a_page() {
    let wild = "<!-- x --> @team #12 | `a` [b](c)\n";
    let text = page::escaped(wild);
    assert!(!text.contains('<') && !text.contains('@') && !text.contains('\n'), "{text}");
    assert!(!page::code(wild)[1..page::code(wild).len() - 1].contains('`'));
}

#[test]
fn a_page_stays_below_the_limit_and_says_what_is_missing() {
    let lines: Vec<String> = (0..5_000).map(|line| format!("| line {line} | {} |", "x".repeat(20))).collect();
    let mut page = page::Page::default();
    page.section("### head");
    page.folded("all", "| a | b |\n| --- | --- |\n", &lines);
    let text = page.finish();
    assert!(text.len() < 61_000 && text.contains("| line 1000 |"), "{}", text.len());
    assert!(text.contains("more; `denv` prints all of them"), "{}", &text[text.len() - 200..]);
}
