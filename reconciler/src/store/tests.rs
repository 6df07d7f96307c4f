use std::collections::BTreeMap;

use denv_planner::{Records, StageRecord};
use denv_schema::StageId;
use denv_schema::wire::{
    CommandOutcome, CommandResult, RequestOutcome, TokenCounts, UsageBatch, UsageRecord,
};
use jiff::Timestamp;

use super::*;

async fn open(dir: &Path) -> Store {
    Store::open(&dir.join("denv.db"), &"default".parse().unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_deposed_leader_cannot_write() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let (old, new) =
        (store.lead(Timestamp::UNIX_EPOCH).await.unwrap(), store.lead(Timestamp::UNIX_EPOCH).await.unwrap());
    assert_eq!((old, new), (1, 2));
    let stage: StageId = "chat/prod".parse().unwrap();
    let commit = || Commit { stages: [(stage.clone(), StageRecord::default())].into(), ..Commit::default() };
    assert!(matches!(store.commit(old, &commit()).await, Err(StoreError::Deposed { ours: 1, theirs: 2 })));
    assert_eq!(store.records().await.unwrap(), Records::default());
    store.commit(new, &commit()).await.unwrap();
    assert_eq!(open(dir.path()).await.records().await.unwrap().stages.len(), 1);
}

#[tokio::test]
async fn a_token_is_good_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let hash = denv_schema::Digest::of_bytes(b"secret");
    let grant = TokenGrant { role: denv_link::Role::Host, name: "h1".parse().unwrap() };
    let at = |second| Timestamp::from_second(second).unwrap();
    store.grant_token(hash, &grant, at(100)).await.unwrap();
    assert_eq!(store.use_token(denv_schema::Digest::of_bytes(b"other"), at(1)).await.unwrap(), None);
    assert_eq!(store.use_token(hash, at(101)).await.unwrap(), None, "its time is over");
    assert_eq!(store.use_token(hash, at(99)).await.unwrap(), Some(grant));
    assert_eq!(store.use_token(hash, at(99)).await.unwrap(), None, "it was used");
}

#[tokio::test]
async fn usage_counts_once_however_often_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let record = UsageRecord {
        at: Timestamp::from_second(50).unwrap(),
        request: "r".to_owned(),
        customer: "acme".parse().unwrap(),
        key: "k".parse().unwrap(),
        endpoint: "chat".parse().unwrap(),
        model: "m".to_owned(),
        unit: "chat.prod.0".into(),
        release: "r1".parse().unwrap(),
        tokens: TokenCounts { input: 10, cached_input: 5, output: 3, reasoning: 1 },
        outcome: RequestOutcome::Completed,
    };
    let batch =
        |first, count| UsageBatch { ledger: "l".to_owned(), first, records: vec![record.clone(); count] };
    store.collect_usage(&batch(0, 3)).await.unwrap();
    store.collect_usage(&batch(1, 3)).await.unwrap();
    let usage = store.usage(Timestamp::UNIX_EPOCH, None).await.unwrap();
    assert_eq!(usage.len(), 1);
    assert_eq!((usage[0].requests, usage[0].tokens.input, usage[0].tokens.reasoning), (4, 40, 4));
    assert!(store.usage(Timestamp::UNIX_EPOCH, Some("other")).await.unwrap().is_empty());
}

#[tokio::test]
async fn only_the_host_that_was_asked_can_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let term = store.lead(Timestamp::UNIX_EPOCH).await.unwrap();
    let (asked, other): (Name, Name) = ("h1".parse().unwrap(), "h2".parse().unwrap());
    let command = denv_schema::wire::Command::new(0, "u.0".into(), 1, denv_schema::wire::Action::Stop {});
    let commit = Commit { commands: vec![(asked.clone(), "u".into(), command.clone())], ..Commit::default() };
    store.commit(term, &commit).await.unwrap();
    assert!(store.queued(&other).await.unwrap().is_empty());
    assert_eq!(store.asked_hosts().await.unwrap(), [asked.clone()].into());
    assert_eq!(store.queued(&asked).await.unwrap(), vec![command.clone()]);
    let result = CommandResult { id: command.id, outcome: CommandOutcome::Accepted };
    store.answer(&other, &result).await.unwrap();
    assert_eq!(store.queued(&asked).await.unwrap().len(), 1);
    store.answer(&asked, &result).await.unwrap();
    assert!(store.queued(&asked).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_disk_is_said_so_and_nothing_is_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let term = store.lead(Timestamp::UNIX_EPOCH).await.unwrap();
    // As large as it is now, and no larger: to SQLite that is a full disk.
    sqlx::query("PRAGMA max_page_count = 1").execute(&store.write).await.unwrap();
    let stage: StageId = "chat/prod".parse().unwrap();
    let event = |message: String| Event {
        at: Timestamp::UNIX_EPOCH,
        subject: "stage chat/prod".to_owned(),
        level: denv_schema::api::Level::Normal,
        message,
    };
    let commit = Commit {
        stages: [(stage, StageRecord::default())].into(),
        events: vec![event("x".repeat(1 << 20))],
        ..Commit::default()
    };
    let error = store.commit(term, &commit).await.unwrap_err();
    assert!(crate::chain(&error).contains("database or disk is full"), "{}", crate::chain(&error));
    assert_eq!(store.records().await.unwrap(), Records::default());
    // There is room again, and the same decision goes through.
    sqlx::query("PRAGMA max_page_count = 1000000").execute(&store.write).await.unwrap();
    store.commit(term, &commit).await.unwrap();
    assert_eq!(store.records().await.unwrap().stages.len(), 1);
}

#[tokio::test]
async fn events_are_read_on_from_a_place_or_back_from_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for number in 0..5 {
        let (subject, message) = (format!("unit chat.prod.{}", number % 2), format!("{number}"));
        let level = denv_schema::api::Level::Normal;
        store.note(&Event { at: Timestamp::UNIX_EPOCH, subject, level, message }).await.unwrap();
    }
    let said = |after, first, subject: Option<&str>| {
        let query = EventQuery { after, subject: subject.map(str::to_owned), limit: 2, first };
        let store = store.clone();
        async move {
            let events = store.events(&query).await.unwrap();
            events.into_iter().map(|event| event.message).collect::<String>()
        }
    };
    assert_eq!(said(0, false, None).await, "34");
    assert_eq!(said(1, true, None).await, "12");
    assert_eq!(said(0, false, Some("chat.prod.1")).await, "13");
    assert_eq!(said(0, false, Some("chat/prod")).await, "34", "a stage's events are also those of its units");
}

#[tokio::test]
async fn the_last_run_of_a_suite_is_found_and_old_ones_are_dropped() {
    use denv_gates::Outcome;
    use denv_gates::parity::{Report, When};

    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let stage: StageId = "chat/prod".parse().unwrap();
    let run = |deployment, when, attempt| Report {
        stage: "chat/prod".parse().unwrap(),
        deployment,
        when,
        attempt,
        release: "r1".parse().unwrap(),
        suite: "golden".parse().unwrap(),
        unit: "chat.prod.1".into(),
        host: "h1".parse().unwrap(),
        reference: None,
        begun: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        outcome: Outcome::Pass,
        reason: String::new(),
        cases: Vec::new(),
    };
    assert_eq!(store.report(&stage, None, None).await.unwrap(), None);
    for report in
        [run(1, When::Before, 1), run(1, When::After, 1), run(2, When::Before, 1), run(2, When::Before, 2)]
    {
        store.keep_report(&report).await.unwrap();
    }
    let found = async |deployment, when| {
        let report = store.report(&stage, deployment, when).await.unwrap();
        report.map(|report| (report.deployment, report.when, report.attempt))
    };
    assert_eq!(found(None, None).await, Some((2, When::Before, 2)));
    assert_eq!(found(None, Some(When::After)).await, Some((1, When::After, 1)));
    assert_eq!(found(Some(1), None).await, Some((1, When::After, 1)), "the later of a deployment's two");
    assert_eq!(found(Some(3), None).await, None);
    assert_eq!(store.of_tenant(&"other".parse().unwrap()).report(&stage, None, None).await.unwrap(), None);

    let said = denv_schema::wire::Said::TimedOut;
    let answers =
        BTreeMap::from([("a".parse().unwrap(), denv_schema::wire::CaseAnswer { took_ms: 1, said })]);
    store.keep_answers(&stage, 2, &answers).await.unwrap();
    assert_eq!(store.answers(&stage, 2).await.unwrap(), Some(answers));
    assert_eq!(store.answers(&stage, 1).await.unwrap(), None);
    store.keep_report(&run(60, When::Before, 1)).await.unwrap();
    assert_eq!(found(Some(2), None).await, None);
    assert_eq!(store.answers(&stage, 2).await.unwrap(), None);
}

#[tokio::test]
async fn what_waits_is_written_together_in_its_order_also_for_those_who_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    let event = |number: usize| Event {
        at: Timestamp::UNIX_EPOCH,
        subject: "host a".to_owned(),
        level: denv_schema::api::Level::Normal,
        message: number.to_string(),
    };
    let events: Vec<Event> = (0..100).map(event).collect();
    let mut notes: Vec<_> = events.iter().map(|event| Box::pin(store.note(event))).collect();
    // All wait; the first of them does not wait for its end.
    for note in &mut notes {
        assert!(futures::poll!(note).is_pending());
    }
    drop(notes.remove(0));
    for written in futures::future::join_all(notes).await {
        written.unwrap();
    }
    let query = EventQuery { limit: 1000, ..EventQuery::default() };
    let read = store.events(&query).await.unwrap();
    let read: Vec<&str> = read.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(read, (0..100).map(|number| number.to_string()).collect::<Vec<_>>());
}
