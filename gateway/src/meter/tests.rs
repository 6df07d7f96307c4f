use std::fs;
use std::path::PathBuf;

use denv_schema::wire::{RequestOutcome, TokenCounts};
use jiff::Timestamp;

use super::*;

fn record(request: usize) -> UsageRecord {
    UsageRecord {
        at: Timestamp::from_second(1_800_000_000).unwrap(),
        request: format!("r{request}"),
        customer: "acme".parse().unwrap(),
        key: "acme-1".parse().unwrap(),
        endpoint: "public".parse().unwrap(),
        model: "small".repeat(200),
        unit: "chat.prod.0".into(),
        release: "r1".parse().unwrap(),
        tokens: TokenCounts { input: 1, cached_input: 2, output: 3, reasoning: 0 },
        outcome: RequestOutcome::Completed,
    }
}

fn open(dir: &Path) -> Arc<Meter> {
    Arc::new(Meter::open(dir, Arc::new(Files)).unwrap())
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let ledger = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let files = fs::read_dir(ledger).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    files
}

/// Everything that was not taken, in order.
fn pending(meter: &Arc<Meter>) -> (Vec<u64>, Vec<String>) {
    let (mut reader, mut numbers, mut requests) = (meter.reader(), Vec::new(), Vec::new());
    while let Some(batch) = reader.read().unwrap() {
        assert!(batch.records.len() <= MAX_BATCH);
        numbers.extend(batch.first..batch.first + batch.records.len() as u64);
        requests.extend(batch.records.into_iter().map(|record| record.request));
    }
    (numbers, requests)
}

fn ledger(meter: &Meter) -> String {
    meter.lock().ledger.id.clone()
}

#[test]
fn records_are_read_back_across_segments_and_files_go_once_taken() {
    let dir = tempfile::tempdir().unwrap();
    let meter = open(dir.path());
    const COUNT: usize = 12_000;
    for request in 0..COUNT {
        meter.record(&record(request)).unwrap();
    }
    let files = segments(dir.path());
    assert!(files.len() > 1, "they roll over");
    let (numbers, requests) = pending(&meter);
    assert_eq!(numbers, (0..COUNT as u64).collect::<Vec<_>>());
    assert_eq!(requests, (0..COUNT).map(|request| format!("r{request}")).collect::<Vec<_>>());

    meter.taken("another ledger", 9);
    meter.taken(&ledger(&meter), COUNT as u64 - 1);
    assert_eq!(segments(dir.path()).len(), 1);
    assert_eq!(meter.pending(), 1);
    meter.synchronise();
    let id = ledger(&meter);
    drop(meter);

    let meter = open(dir.path());
    assert_eq!(ledger(&meter), id);
    assert_eq!(pending(&meter), (vec![COUNT as u64 - 1], vec![format!("r{}", COUNT - 1)]));
    meter.record(&record(COUNT)).unwrap();
    assert_eq!(pending(&meter).0, [COUNT as u64 - 1, COUNT as u64]);
}

#[test]
fn a_torn_end_is_cut_off_and_damage_elsewhere_begins_a_new_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let meter = open(dir.path());
    for request in 0..3 {
        meter.record(&record(request)).unwrap();
    }
    let id = ledger(&meter);
    drop(meter);
    let file = segments(dir.path()).remove(0);
    let whole = fs::read(&file).unwrap();
    for torn in [&whole[..whole.len() - 1], &[&whole[..], b"\0\0\0"].concat(), &whole[..whole.len() - 40]] {
        fs::write(&file, torn).unwrap();
        let meter = open(dir.path());
        assert_eq!(ledger(&meter), id);
        let kept = if torn.len() > whole.len() { 3 } else { 2 };
        assert_eq!(pending(&meter).0.len(), kept);
        meter.record(&record(9)).unwrap();
        assert_eq!(pending(&meter).1.last().unwrap(), "r9");
    }

    let mut damaged = whole.clone();
    damaged[20] = b'#';
    fs::write(&file, damaged).unwrap();
    let meter = open(dir.path());
    assert_ne!(ledger(&meter), id);
    assert!(dir.path().join(id).with_extension("damaged").exists(), "it is kept for a person");
    meter.record(&record(0)).unwrap();
    assert_eq!(pending(&meter).0, [0]);
}

#[test]
fn numbers_that_the_control_plane_has_are_never_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let meter = open(dir.path());
    meter.record(&record(0)).unwrap();
    // A power cut took 1 to 4 after they had been sent.
    meter.taken(&ledger(&meter), 5);
    meter.record(&record(5)).unwrap();
    assert_eq!(pending(&meter), (vec![5], vec!["r5".to_owned()]));
    meter.synchronise();
    drop(meter);
    assert_eq!(pending(&open(dir.path())), (vec![5], vec!["r5".to_owned()]));
}
