use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Vec<Document>, YamlError> {
    let parts: Result<Vec<_>, _> = parts(text).into_iter().map(Part::read).collect();
    Ok(parts?.into_iter().flatten().collect())
}

#[test]
fn every_value_has_its_place() {
    let text = "# head\na: 1\nb:\n  - x\n  - {c: d}\n---\nz: 2\n";
    let documents = read(text).unwrap();
    assert_eq!(documents.len(), 2);
    assert_eq!(documents[0].source.value_place("/a"), Place { line: 2, column: 4 });
    assert_eq!(documents[0].source.key_place("/b/1/c"), Place { line: 5, column: 6 });
    assert_eq!(documents[0].source.value_place("/b/0/deeper"), Place { line: 4, column: 5 });
    assert_eq!(documents[1].source.key_place("/z"), Place { line: 7, column: 1 });
}

#[test]
fn a_document_is_a_part_wherever_its_marker_may_stand() {
    for (text, count) in [
        ("---\n---\na: 1\n---\n# only a comment\n", 1),
        ("", 0),
        ("%YAML 1.2\n---\na: 1\n--- # b\nb: 1\n---\r\nc: 1", 3),
        ("a: |\n  ---\n  x\n---x: 1\n", 1),
        ("# a\n---\n--- {b: 1}\n---\tc\n", 2),
    ] {
        let documents = read(text).unwrap();
        let values = documents.iter().filter(|document| !document.value.is_null()).count();
        assert_eq!(values, count, "{text}");
    }
    let text = "a: [1\n---\nb: 1\n---\nc:\n  d: 1\n";
    let read: Vec<_> = parts(text).into_iter().map(Part::read).collect();
    assert_eq!(read[0].as_ref().err().unwrap().place, Place { line: 1, column: 4 });
    assert!(read[1].is_ok());
    assert_eq!(read[2].as_ref().unwrap()[0].source.key_place("/c/d"), Place { line: 6, column: 3 });
}

proptest! {
    #[test]
    fn no_text_panics(text in "[ a-c:\\-\\[\\]{}#&*!|>'\"\n\t,?~0-9.%]{0,60}") {
        for part in parts(&text) {
            if let Err(error) = part.read() {
                let line = text.split('\n').nth(error.place.line - 1);
                prop_assert!(line.is_some_and(|line| error.place.column <= line.chars().count() + 1), "{error:?}");
            }
        }
    }
}
