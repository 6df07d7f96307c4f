use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use denv_schema::launch::{Claim, Probe};
use denv_schema::quantity::Period;
use proptest::prelude::*;

use super::store::{Disk, JournalFile, OpenError, Store};
use super::*;

fn spec(model: &str) -> LaunchSpec {
    LaunchSpec {
        model: model.to_owned(),
        argv: vec!["engine".to_owned()],
        env: BTreeMap::new(),
        weights: None,
        probe: Some(Probe {
            path: "/health".to_owned(),
            interval: Period::from_secs(1),
            timeout: Period::from_secs(1),
            failures: 3,
        }),
        metrics_path: None,
        start_timeout: Period::from_secs(10),
        stop_timeout: Period::from_secs(10),
        claim: Claim::default(),
        hand_over: None,
        container: None,
    }
}

fn start(term: Term, generation: Generation, model: &str) -> Command {
    Command::new(term, "chat.prod.1.0".into(), generation, Action::Start(spec(model)))
}

fn stop(term: Term, generation: Generation) -> Command {
    Command::new(term, "chat.prod.1.0".into(), generation, Action::Stop {})
}

/// The verdicts on `commands`, each taken up when it is new.
fn verdicts(commands: &[Command]) -> Vec<String> {
    let mut journal = Journal::default();
    let mut verdicts = Vec::new();
    for command in commands {
        let verdict = judge(&journal, command);
        if verdict == Verdict::New {
            journal = journal.take_up(command);
        }
        verdicts.push(match verdict {
            Verdict::New => "new".to_owned(),
            Verdict::Again => "again".to_owned(),
            Verdict::Refused(reason) => reason,
        });
    }
    verdicts
}

#[test]
fn commands_are_fenced() {
    let table: &[(&str, &[Command], &[&str])] = &[
        ("the same again does nothing", &[start(1, 1, "a"), start(1, 1, "a")], &["new", "again"]),
        ("another leader may repeat it", &[start(1, 1, "a"), start(2, 1, "a")], &["new", "again"]),
        ("another body is refused", &[start(1, 1, "a"), start(1, 1, "b")], &["new", "another launch spec"]),
        (
            "an older generation is refused",
            &[start(1, 2, "a"), start(1, 1, "a")],
            &["new", "generation 1 of"],
        ),
        ("its stop too", &[start(1, 2, "a"), stop(1, 1)], &["new", "generation 1 of"]),
        ("a newer one is taken", &[start(1, 1, "a"), start(1, 2, "b")], &["new", "new"]),
        ("an older term is refused", &[start(2, 1, "a"), stop(1, 1)], &["new", "term 1 is over"]),
        (
            "what was taken up is answered in any term",
            &[start(2, 1, "a"), start(1, 1, "a")],
            &["new", "again"],
        ),
        ("a stop is once", &[start(1, 1, "a"), stop(1, 1), stop(1, 1)], &["new", "new", "again"]),
        (
            "the start before a stop is answered",
            &[start(1, 1, "a"), stop(1, 1), start(1, 1, "a")],
            &["new", "new", "again"],
        ),
        ("a stop fences a start that comes late", &[stop(1, 1), start(1, 1, "a")], &["new", "was stopped"]),
        ("and the next generation starts", &[stop(1, 1), start(1, 2, "a")], &["new", "new"]),
    ];
    for (name, commands, expected) in table {
        let verdicts = verdicts(commands);
        for (verdict, expected) in verdicts.iter().zip(*expected) {
            assert!(verdict.contains(expected), "{name}: {verdicts:?}");
        }
    }
}

#[test]
fn ids_that_are_no_file_names_are_refused() {
    for id in ["", "../../etc/passwd", "a/b", ".hidden", "a b"] {
        let command = Command::new(1, id.into(), 1, Action::Start(spec("a")));
        assert!(matches!(judge(&Journal::default(), &command), Verdict::Refused(_)), "{id}");
    }
}

#[test]
fn a_newer_generation_keeps_sight_of_the_process_before() {
    let journal = Journal::default().take_up(&start(1, 1, "a"));
    let member = MemberId::from("chat.prod.1.0");
    let engine = EngineRecord {
        generation: 1,
        pid: 42,
        started_ticks: 7,
        boot: "b".to_owned(),
        port: 4000,
        log_offset: 0,
        container: None,
    };
    let mut journal = journal;
    journal.note(&member, 1, Facts { engine: Some(engine.clone()), was_healthy: true, ..Facts::default() });
    for next in [start(1, 2, "b"), stop(1, 2)] {
        let entry = journal.take_up(&next).members.remove(&member).unwrap();
        assert_eq!(entry.facts, Facts { engine: Some(engine.clone()), ..Facts::default() });
    }
    // A late word about the older generation changes only which process there is.
    let mut newer = journal.take_up(&start(1, 2, "b"));
    newer.note(&member, 1, Facts { failed: Some("old".to_owned()), ..Facts::default() });
    assert_eq!(newer.members[&member].facts, Facts::default());
}

#[test]
fn fences_are_kept_for_the_newest_and_no_more() {
    let mut journal = Journal::default();
    for ordinal in 0..FENCES + 50 {
        let member = MemberId::from(format!("m.{ordinal}").as_str());
        journal = journal.take_up(&Command::new(1, member.clone(), 1, Action::Stop {}));
        let stopped_at = Timestamp::from_second(i64::try_from(ordinal).unwrap()).ok();
        journal.note(&member, 1, Facts { stopped_at, ..Facts::default() });
    }
    assert!(journal.members.len() <= FENCES + 1);
    assert!(!journal.members.contains_key(&MemberId::from("m.0")));
    assert!(journal.members.contains_key(&MemberId::from("m.249")));
}

proptest! {
    /// Whatever arrives in whatever order: per generation at most one body starts, never after a stop, generations
    /// and terms never go back, and every command that was taken up is answered the same when it is repeated.
    #[test]
    fn fencing_holds_for_any_delivery(
        deliveries in prop::collection::vec((1u64..4, 1u64..4, 0u8..3), 0..40)
    ) {
        let mut journal = Journal::default();
        let (mut started, mut stopped) = (BTreeMap::new(), Vec::new());
        let (mut newest, mut term) = (0, 0);
        let mut taken: Vec<Command> = Vec::new();
        for (at, generation, kind) in deliveries {
            let command = match kind { 0 => stop(at, generation), 1 => start(at, generation, "a"), _ => start(at, generation, "b") };
            match judge(&journal, &command) {
                Verdict::New => {
                    prop_assert!(command.term >= term && command.generation >= newest);
                    match &command.action {
                        Action::Start(spec) => {
                            prop_assert!(started.insert(generation, spec.digest()).is_none());
                            prop_assert!(!stopped.contains(&generation));
                        }
                        Action::Stop {} => {
                            prop_assert!(!stopped.contains(&generation));
                            stopped.push(generation);
                        }
                    }
                    (newest, term) = (generation, command.term);
                    journal = journal.take_up(&command);
                    prop_assert_eq!(judge(&journal, &command), Verdict::Again);
                    taken.push(command);
                }
                Verdict::Again => {
                    let known = taken.iter().any(|other| other.id == command.id && other.action == command.action);
                    prop_assert!(known);
                }
                Verdict::Refused(reason) => prop_assert!(!reason.is_empty()),
            }
        }
        let bytes = serde_json::to_vec(&journal).unwrap();
        prop_assert_eq!(serde_json::from_slice::<Journal>(&bytes).unwrap(), journal);
    }
}

/// A disk in memory that can be full.
#[derive(Default)]
struct TestDisk {
    bytes: Mutex<Option<Vec<u8>>>,
    full: AtomicBool,
}

impl Disk for TestDisk {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.bytes.lock().unwrap().clone())
    }
    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.bytes.lock().unwrap() = Some(bytes.to_vec());
        Ok(())
    }
    fn path(&self) -> &Path {
        Path::new("journal.json")
    }
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_taken_up_and_facts_wait() {
    let disk = Arc::new(TestDisk::default());
    let mut store = Store::open(disk.clone()).unwrap();
    store.take_up(&start(1, 1, "a")).await.unwrap();

    disk.full.store(true, Ordering::Relaxed);
    store.take_up(&stop(1, 1)).await.unwrap_err();
    assert_eq!(store.journal().members.values().next().unwrap().desired, Desired::Running);
    assert!(store.problem().unwrap().contains("cannot write `journal.json`: no space left"));
    let facts = Facts { was_healthy: true, ..Facts::default() };
    store.note(&"chat.prod.1.0".into(), 1, facts.clone()).await;
    assert!(!Store::open(disk.clone()).unwrap().journal().members.values().any(|entry| entry.facts == facts));

    disk.full.store(false, Ordering::Relaxed);
    store.flush().await;
    assert_eq!(store.problem(), None);
    assert_eq!(Store::open(disk.clone()).unwrap().journal(), store.journal());
    assert_eq!(store.take_up(&stop(1, 1)).await.unwrap(), Verdict::New);
}

#[tokio::test]
async fn terms_are_remembered_even_of_refused_commands() {
    let disk = Arc::new(TestDisk::default());
    let mut store = Store::open(disk.clone()).unwrap();
    store.take_up(&start(1, 2, "a")).await.unwrap();
    assert!(matches!(store.take_up(&start(5, 1, "a")).await.unwrap(), Verdict::Refused(_)));
    let mut again = Store::open(disk).unwrap();
    assert!(matches!(again.take_up(&stop(4, 2)).await.unwrap(), Verdict::Refused(_)));
}

#[tokio::test]
async fn a_damaged_journal_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.json");
    let mut store = Store::open(Arc::new(JournalFile::new(path.clone()))).unwrap();
    store.take_up(&start(1, 1, "a")).await.unwrap();
    let open = || Store::open(Arc::new(JournalFile::new(path.clone())));
    assert_eq!(open().unwrap().journal(), store.journal());

    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let Err(error) = open() else { panic!("half a journal was read") };
    assert!(matches!(error, OpenError::Damaged { .. }));
    assert!(error.to_string().contains("journal.json` is damaged"), "{error}");
}
