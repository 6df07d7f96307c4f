//! Every kind of fault has a page whose examples are what it says they are.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use denv_schema::Catalog;
use denv_schema::diagnostic::Code;
use denv_schema::tree::Files;

/// The YAML below a heading.
fn example(page: &str, heading: &str) -> Option<String> {
    let (_, section) = page.split_once(&format!("## {heading}\n"))?;
    let (_, rest) = section.split_once("```yaml\n")?;
    Some(rest.split("```").next().unwrap().to_owned())
}

fn codes(text: &str) -> BTreeSet<Code> {
    let files = Files::from([("example.yaml".to_owned(), text.as_bytes().to_vec())]);
    Catalog::from_files(&files)
        .err()
        .into_iter()
        .flat_map(|found| found.iter().map(|it| it.code).collect::<Vec<_>>())
        .collect()
}

#[test]
fn the_wrong_example_has_the_fault_and_the_right_one_has_none() {
    let mut with_examples = 0;
    for code in Code::ALL {
        let page = code.page();
        assert!(page.starts_with(&format!("# `{code}`: ")), "{code}");
        let Some(wrong) = example(page, "Wrong") else { continue };
        let right = example(page, "Right").unwrap();
        assert_eq!(codes(&wrong), BTreeSet::from([*code]), "the wrong example of {code}");
        assert_eq!(codes(&right), BTreeSet::new(), "the right example of {code}");
        with_examples += 1;
    }
    // What can't be read, and what only the control plane knows, have none.
    assert_eq!(with_examples, Code::ALL.len() - 2);
}

#[test]
fn there_is_no_page_of_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/errors");
    let pages: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(".md").to_owned())
        .collect();
    assert_eq!(pages, Code::ALL.iter().map(ToString::to_string).collect());
}
