//! Every answer is metered once, whatever happens to the gateway, its disk and the control plane.

mod support;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use denv_gateway::{Disk, Files, Segment};
use denv_schema::wire::{RequestOutcome, Rotation};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use support::ingress::{STREAM_HEAD, Step, chunk, framed, usage_chunk};
use support::{ASK, ASK_STREAM, World, read, segments, until};

/// A disk that can be full. What is written then ends half-way, as it does.
struct FillableDisk(Arc<AtomicBool>);
struct FillableSegment(Arc<dyn Segment>, Arc<AtomicBool>);

impl Disk for FillableDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Segment>> {
        Ok(Arc::new(FillableSegment(Files.open(path)?, self.0.clone())))
    }
}

impl Segment for FillableSegment {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if self.1.load(Ordering::SeqCst) {
            self.0.append(&bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.append(bytes)
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.truncate(length)
    }
    fn synchronise(&self) -> io::Result<()> {
        self.0.synchronise()
    }
}

#[tokio::test]
async fn nothing_is_served_while_it_cannot_be_metered() {
    let mut world = World::new(1).await;
    let full = Arc::new(AtomicBool::new(false));
    world.start(Arc::new(FillableDisk(full.clone()))).await;
    world.set_units(&[Rotation::In]);
    world.until_in_rotation(1).await;
    assert_eq!(world.chat(ASK).await.status, 200);

    let go_on = Arc::new(Semaphore::new(0));
    world.hosts[0].engine.then([
        Step::Write(STREAM_HEAD.to_owned()),
        framed(&chunk(r#""content":"a""#, "null")),
        Step::Await(go_on.clone()),
        framed(&chunk(r#""content":"b""#, "\"stop\"")),
        framed(&usage_chunk()),
        framed("data: [DONE]\n\n"),
        framed(""),
    ]);
    let open = world.begin(ASK_STREAM).await;
    full.store(true, Ordering::SeqCst);
    // The first notices, after the engine worked for it; the next do not come that far.
    for _ in 0..3 {
        let answered = world.chat(ASK).await;
        assert_eq!(answered.status, 503);
        assert!(answered.text.contains("ledger_unwritable"), "{}", answered.text);
    }
    assert_eq!(world.hosts[0].engine.asked().len(), 3);
    assert_eq!(world.metric("denv_gateway_ledger_writable").await, 0.0);
    // What was being served is finished, and remembered until it can be written.
    go_on.add_permits(1);
    assert!(read(open).await.text.ends_with("data: [DONE]\n\n"));

    full.store(false, Ordering::SeqCst);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while world.chat(ASK).await.status != 200 {
        assert!(std::time::Instant::now() < deadline, "it recovers by itself");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let records = world.records(3).await;
    assert!(records.iter().any(|record| record.tokens.output == 4), "{records:#?}");
    assert_eq!(*world.control_plane.heard.again.lock().unwrap(), 0);
}

#[tokio::test]
async fn records_are_sent_again_until_they_are_taken_and_count_once() {
    let mut world = World::with_units(1).await;
    world.takes_records(false);
    for _ in 0..3 {
        assert_eq!(world.chat(ASK).await.status, 200);
    }
    world.records(3).await;
    world.kill_gateway().await;
    assert_eq!(segments(world.state.path()).len(), 1);
    // Torn by a power cut.
    let segment = segments(world.state.path()).remove(0);
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes.extend_from_slice(b"{\"seq\":3,\"rec");
    std::fs::write(&segment, bytes).unwrap();

    world.start(Arc::new(Files)).await;
    world.until_in_rotation(1).await;
    until("they come again", || *world.control_plane.heard.again.lock().unwrap() == 3).await;
    world.takes_records(true);
    assert_eq!(world.chat(ASK).await.status, 200);
    let records = world.records(4).await;
    assert!(records.iter().all(|record| record.outcome == RequestOutcome::Completed));
    let ledgers: std::collections::BTreeSet<_> =
        world.control_plane.heard.records.lock().unwrap().keys().map(|(ledger, _)| ledger.clone()).collect();
    assert_eq!(ledgers.len(), 1, "it is the same ledger, and its numbers go on");
    let pending = async || world.metric("denv_gateway_ledger_records_pending").await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while pending().await != 0.0 {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_lost_ledger_is_followed_by_one_of_another_name() {
    let mut world = World::with_units(1).await;
    assert_eq!(world.chat(ASK).await.status, 200);
    world.records(1).await;
    world.stop_gateway().await;
    std::fs::remove_dir_all(world.state.path().join("ledger")).unwrap();
    world.start(Arc::new(Files)).await;
    world.until_in_rotation(1).await;
    assert_eq!(world.chat(ASK).await.status, 200);
    world.records(2).await;
    let ledgers = world.control_plane.heard.records.lock().unwrap();
    assert!(ledgers.keys().all(|(_, seq)| *seq == 0) && ledgers.len() == 2);
}

#[tokio::test]
async fn reservations_settle_however_requests_end() {
    let world = World::with_units(1).await;
    for round in 0..9 {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_owned()), framed(&chunk(r#""content":"a""#, "null"))];
        steps.push(if round % 3 == 0 { Step::Close } else { Step::UntilLeft });
        world.hosts[0].engine.then(steps);
        // A unit that broke off is out of rotation for a moment.
        let mut answer = world.begin(ASK_STREAM).await;
        while answer.status() == 503 {
            answer = world.begin(ASK_STREAM).await;
        }
        let mut answer = answer.into_body();
        if round % 2 == 0 {
            assert!(answer.frame().await.unwrap().is_ok());
        }
        drop(answer);
    }
    world.records(9).await;
    world.until_reported("nothing in flight", |units| units.iter().all(|(_, unit)| unit.inflight == 0)).await;
    assert_eq!(world.metric("denv_gateway_unit_inflight{unit=\"chat.prod.0\"}").await, 0.0);
}
