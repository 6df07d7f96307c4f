//! Operators' stories, told by scripts in `tests/scenarios/scripts`: each has its transcript beside it, which
//! `UPDATE_SCRIPTS=1` writes anew.

use std::path::{Path, PathBuf};

use crate::operator::Operator;
use crate::script::parse;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/scripts")
}

fn follow(path: &Path) -> Result<String, String> {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Operator::new(path.parent().unwrap()).follow(&file, &parse(&file, &text)?)
}

#[test]
fn every_story_goes_as_it_is_told() {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == "script")).collect();
    scripts.sort();
    assert!(scripts.len() >= 10, "{scripts:?}");
    let mut wrong = Vec::new();
    for script in scripts {
        let golden = script.with_extension("transcript");
        let told = match follow(&script) {
            Ok(told) => told,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        if std::env::var_os("UPDATE_SCRIPTS").is_some() {
            std::fs::write(&golden, &told).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if told != expected {
            let line =
                told.lines().zip(expected.lines()).take_while(|(told, expected)| told == expected).count();
            let at = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
            wrong.push(format!(
                "{}:{}:\n  expected {}\n  but      {}\nwhere that is as it should be: UPDATE_SCRIPTS=1 cargo nextest run -p denv-tests --test simulation scripts",
                golden.display(), line + 1, at(&expected), at(&told)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// One story, at once: `SCRIPT=path cargo test -p denv-tests --test simulation -- --ignored --nocapture scripts::tell`.
#[test]
#[ignore = "for a script that is being written"]
fn tell() {
    let path = PathBuf::from(std::env::var_os("SCRIPT").expect("SCRIPT is the path of a script"));
    match follow(&path) {
        Ok(told) => println!("{told}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_story_that_goes_otherwise_is_told_with_its_line() {
    let told = |text: &str| {
        let lines = parse("a.script", text).unwrap();
        let error = Operator::new(&folder()).follow("a.script", &lines).unwrap_err();
        error.lines().next().unwrap().to_owned()
    };
    let told = [
        told("wait 5s"),
        told("world nowhere.yaml"),
        told("world cluster.yaml\ncut host-z"),
        told("world cluster.yaml\nwait 1m\nat 10s show"),
        told("world cluster.yaml\nwait 1m\nexpect chat/prod runs r2"),
        told("world cluster.yaml\nwait stage chat/prod runs r2"),
    ];
    insta::assert_snapshot!(told.join("\n"), @"
    a.script:1: `wait 5s`: a script begins with `world FILE`
    a.script:1: `world nowhere.yaml`: cannot read it: No such file or directory (os error 2)
    a.script:2: `cut host-z`: there is no host or gateway `host-z`
    a.script:3: `at 10s show`: it is later than that already
    a.script:3: `expect chat/prod runs r2`: it is not so
    a.script:2: `wait stage chat/prod runs r2`: waited 4 h in vain
    ");
}
