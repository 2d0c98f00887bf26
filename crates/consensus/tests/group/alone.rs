//! A group of one voter: applied entries, survival of crashes, start and stop.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{AppliedEntry, Ledger, Node, UNKNOWN, changes, head, small};
use bytes::Bytes;
use consensus::{Consensus, ConsensusOptions, Failure, Payload, ProposeError};
use journal::{Body, Journal};
use world::disk::{Disk, RealDisk, SimulatedDisk};
use world::{Instant, World};

const DIR: &str = "/shard";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_node_alone_leads_at_once() {
    let mut fastest = Duration::MAX;
    // The fastest of several: a disk that is shared may take its time.
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let began = Instant::now();
        let node = Node::start(RealDisk, dir.path()).await;
        fastest = fastest.min(began.elapsed());
        assert_eq!(node.consensus.term(), 1);
        node.consensus.shutdown().await;
    }
    // The product's own bound is 200 ms; this one is for a debug build on a busy machine.
    assert!(fastest < Duration::from_millis(700), "took {fastest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_payloads_are_applied_in_order_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(RealDisk, dir.path()).await;
    node.propose_all(0..10_000).await;
    node.ledger.assert_holds(10_000);
    node.consensus.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_proposals_are_applied_once_and_in_the_order_of_each_task() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(RealDisk, dir.path()).await;
    let tasks = (0..8).map(|task| {
        let leadership = node.leadership.clone();
        tokio::spawn(async move {
            let mut last = None;
            for number in 0..200 {
                let head = Bytes::from(format!("{task}/{number:03}"));
                let payload = Payload { head, bodies: vec![], ticket: 0 };
                last = Some(leadership.propose(payload).await.unwrap());
            }
            last.unwrap().await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let applied = node.ledger.heads();
    assert_eq!(applied.iter().collect::<BTreeSet<_>>().len(), 8 * 200);
    assert_eq!(applied.len(), 8 * 200);
    for task in 0..8 {
        let prefix = format!("{task}/");
        assert!(applied.iter().filter(|head| head.starts_with(prefix.as_bytes())).is_sorted());
    }
    node.consensus.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcome_of_a_proposal_is_its_position_in_the_log() {
    let node = Node::start(SimulatedDisk::new(), Path::new(DIR)).await;
    let first = node.propose(0).await.await.unwrap();
    let second = node.propose(1).await.await.unwrap();
    assert_eq!(second.index, first.index + 1);
    assert_eq!((first.term, first.leader), (1, 1));
    assert_eq!(node.journal.entry_id(second.index), Some(second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_replays_the_log_to_the_same_state() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(RealDisk, dir.path()).await;
    node.propose_all(0..500).await;
    node.consensus.shutdown().await;
    drop(node);

    let node = Node::start(RealDisk, dir.path()).await;
    node.ledger.assert_holds(500);
    assert_eq!(node.consensus.term(), 2, "a restart is a new term");
    node.propose_all(500..600).await;
    node.ledger.assert_holds(600);
    node.consensus.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_loads_the_snapshot_and_replays_only_later_entries() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(RealDisk, dir.path()).await;
    node.propose_all(0..300).await;
    node.consensus.snapshot_now().await.unwrap();
    node.propose_all(300..350).await;
    node.consensus.shutdown().await;
    drop(node);

    let node = Node::start(RealDisk, dir.path()).await;
    node.ledger.assert_holds(350);
    assert_eq!(node.ledger.seen().len(), 50);
    node.consensus.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_node_keeps_all_applied_entries() {
    let mut disk = SimulatedDisk::new();
    let mut applied = 0;
    for life in 0..5 {
        let node = Node::start(disk.clone(), Path::new(DIR)).await;
        assert!(node.ledger.len() >= applied, "life {life} lost something");
        let known = node.ledger.len();
        node.ledger.assert_holds(known);
        node.propose_all(known..known + 100).await;
        applied = known + 100;
        // Further entries without a confirmed outcome: they may be there or not, but in order.
        for number in applied..applied + 20 {
            drop(node.propose(number).await);
        }
        disk = if life % 2 == 0 { disk.killed() } else { disk.power_loss(life) };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_taken_as_the_log_grows_and_purge_it() {
    let disk = SimulatedDisk::new();
    let node = Node::start_with(disk.clone(), Path::new(DIR), 64 << 10).await;
    for round in 0..40 {
        node.propose_all(round * 100..(round + 1) * 100).await;
    }
    for _ in 0..200 {
        if node.journal.purged_id().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let purged = node.journal.purged_id().expect("the log was purged up to a snapshot");
    assert!(purged.index > 100);
    node.consensus.shutdown().await;
    drop(node);

    let node = Node::start(disk, Path::new(DIR)).await;
    node.ledger.assert_holds(4_000);
    assert!(node.ledger.seen().len() < 4_000, "it began from a snapshot");
}

/// Size of the newest snapshot on disk.
fn snapshot_bytes(disk: &SimulatedDisk) -> u64 {
    let names = disk.list(Path::new(DIR)).unwrap();
    let newest = names.iter().filter(|name| name.starts_with("snapshot-")).max();
    let newest = newest.expect("a snapshot was taken");
    disk.content(&Path::new(DIR).join(newest)).unwrap().len() as u64
}

/// Writes one entry with one batch of its stream.
async fn write(node: &Node, stream: u64, base_offset: u64, bytes: usize) {
    let bytes = Bytes::from(vec![7; bytes]);
    let body = Body { stream, base_offset, span: 1, max_timestamp: -1, bytes };
    let payload = Payload { head: Bytes::new(), bodies: vec![body], ticket: 0 };
    node.leadership.propose(payload).await.unwrap().await.unwrap();
}

/// Most of a snapshot is the table of many streams' batches: the machine's part is small.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_snapshot_waits_for_eight_times_the_size_of_the_last_one() {
    const STREAMS: u64 = 1_500;
    let mut disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    for stream in 0..STREAMS {
        write(&node, stream, 0, 100).await;
    }
    node.consensus.snapshot_now().await.unwrap();
    let saved = snapshot_bytes(&disk);
    let machine = STREAMS * 4;
    assert!(saved > 3 * machine, "{saved}");
    drop(node);

    let mut written = 0;
    // The first of these runs knows the size from the snapshot that it began with.
    for _ in 0..2 {
        disk = disk.killed();
        let node = Node::start_with(disk.clone(), Path::new(DIR), 1_000).await;
        let saved = snapshot_bytes(&disk);
        while node.journal.bytes_since_snapshot() < saved * 6 {
            write(&node, STREAMS, written, 5_000).await;
            written += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(node.journal.bytes_since_snapshot() >= saved * 6, "a snapshot came too soon");
        while node.journal.bytes_since_snapshot() >= saved * 6 {
            write(&node, STREAMS, written, 5_000).await;
            written += 1;
            assert!(node.journal.bytes_since_snapshot() < saved * 20, "no snapshot came");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(node);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_replayed_by_a_restart_are_bounded_even_in_a_short_log() {
    let disk = SimulatedDisk::new();
    let node = Node::start_bounded(disk.clone(), Path::new(DIR), u64::MAX, 10_000).await;
    for _ in 0..100 {
        let payload = Payload { head: changes(500), bodies: vec![], ticket: 0 };
        node.leadership.propose(payload).await.unwrap().await.unwrap();
    }
    for _ in 0..200 {
        if node.journal.purged_id().is_some_and(|purged| purged.index > 50) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(node);

    // The process is killed.
    let node = Node::start(disk.killed(), Path::new(DIR)).await;
    assert_eq!(node.ledger.len(), 100);
    let again = node.ledger.seen().len();
    assert!(again < 50, "{again} entries were applied again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_changes_count_for_the_next_snapshot() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    for _ in 0..100 {
        let payload = Payload { head: changes(500), bodies: vec![], ticket: 0 };
        node.leadership.propose(payload).await.unwrap().await.unwrap();
    }
    drop(node);
    // Consecutive crashes must not make each restart longer than the last.
    let disk = disk.killed();
    let node = Node::start_bounded(disk.clone(), Path::new(DIR), u64::MAX, 10_000).await;
    assert_eq!(node.ledger.seen().len(), 100);
    for _ in 0..200 {
        if node.journal.purged_id().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(node);
    let node = Node::start(disk.killed(), Path::new(DIR)).await;
    assert_eq!((node.ledger.len(), node.ledger.seen().len()), (100, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_during_a_snapshot_leaves_the_old_or_the_new_one() {
    let mut disk = SimulatedDisk::new();
    let mut applied = 0;
    for seed in 0..20 {
        let node = Node::start(disk.clone(), Path::new(DIR)).await;
        let known = node.ledger.len();
        assert!(known >= applied, "seed {seed} lost something");
        node.ledger.assert_holds(known);
        node.propose_all(known..known + 20).await;
        applied = known + 20;
        // Up to as many changes as writing a snapshot takes: somewhere in it.
        disk.cut_power_after(seed % 7);
        let _ = node.consensus.snapshot_now().await;
        disk = disk.power_loss(seed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_snapshot_write_does_not_stop_the_node() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    node.propose_all(0..10).await;
    disk.fail_write("snapshot", 0);
    node.consensus.snapshot_now().await.unwrap_err();
    node.propose_all(10..20).await;
    node.consensus.snapshot_now().await.unwrap();
    node.consensus.shutdown().await;
    assert_eq!(node.failure.reason(), None);
    drop(node);

    let node = Node::start(disk, Path::new(DIR)).await;
    node.ledger.assert_holds(20);
    assert_eq!(node.ledger.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_returns_to_the_proposer_and_is_0_on_replay() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    let mut expected = Vec::new();
    for number in 0..10 {
        let ticket = if number % 3 == 0 { 0 } else { number + 100 };
        let payload = Payload { head: head(number as usize), bodies: vec![], ticket };
        let id = node.leadership.propose(payload).await.unwrap().await.unwrap();
        expected.push(AppliedEntry { index: id.index, ticket, replay: false });
    }
    assert_eq!(node.ledger.seen(), expected);
    node.consensus.shutdown().await;
    drop(node);

    let node = Node::start(disk, Path::new(DIR)).await;
    let replayed = |seen: AppliedEntry| AppliedEntry { ticket: 0, replay: true, ..seen };
    assert_eq!(node.ledger.seen(), expected.into_iter().map(replayed).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_readable_unchanged_once_applied() {
    let disk = SimulatedDisk::new();
    let batch = Bytes::from(vec![42; 100_000]);
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    for number in 0..100 {
        let body = Body {
            stream: 7,
            base_offset: number,
            span: 1,
            max_timestamp: -1,
            bytes: batch.clone(),
        };
        let payload = Payload { head: head(number as usize), bodies: vec![body], ticket: 0 };
        node.leadership.propose(payload).await.unwrap().await.unwrap();
    }
    let read = node.journal.read(7, 50, 1).await.unwrap();
    assert_eq!(read, [batch.clone().into()]);
    let disk = disk.killed();
    drop(node);

    // 10 MB: more than one read from the journal.
    let node = Node::start(disk, Path::new(DIR)).await;
    node.ledger.assert_holds(100);
    assert_eq!(node.journal.read(7, 99, 1).await.unwrap(), [batch.into()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_sync_stops_the_node_and_is_reported() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    node.propose_all(0..10).await;
    disk.fail_sync("00000001.seg", 0);
    let outcome = node.propose(10).await.await;
    assert!(matches!(outcome, Err(ProposeError::Failed(_))), "{outcome:?}");
    assert_eq!(node.ledger.len(), 10, "what is not durable is not applied");
    let told = reported_failure(&node).await;
    assert!(told.starts_with("consensus stopped: "), "{told}");

    let payload = Payload { head: head(11), bodies: vec![], ticket: 0 };
    let refused = node.leadership.propose(payload).await.unwrap_err();
    assert!(matches!(refused, ProposeError::Failed(Failure::Storage(_))), "{refused:?}");
    node.consensus.shutdown().await;

    let node = Node::start(disk.power_loss(1), Path::new(DIR)).await;
    assert!(node.ledger.len() >= 10);
    node.ledger.assert_holds(node.ledger.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_the_machine_stops_the_node_and_is_reported() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    node.propose_all(0..3).await;
    node.ledger.panic_from_now_on();
    let outcome = node.propose(3).await.await;
    assert!(matches!(outcome, Err(ProposeError::Failed(_))), "{outcome:?}");
    let why = reported_failure(&node).await;
    assert!(why.contains("the machine panicked at entry"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inapplicable_entry_stops_the_node_and_is_neither_skipped_nor_lost() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    node.propose_all(0..3).await;
    let payload = Payload { head: UNKNOWN.into(), bodies: vec![], ticket: 0 };
    let outcome = node.leadership.propose(payload).await.expect("it is taken").await;
    assert!(matches!(outcome, Err(ProposeError::Failed(_))), "{outcome:?}");
    let why = reported_failure(&node).await;
    assert!(why.contains("cannot be applied: it needs a later program"), "{why}");
    assert_eq!(node.ledger.len(), 3, "nothing is applied behind it");
    node.consensus.shutdown().await;

    // The node does not start while the entry is there.
    let world = World::on(Arc::new(disk.power_loss(1)));
    let opened = Journal::open(&world, Path::new(DIR), small()).expect("the log is whole");
    let ledger = Arc::new(Ledger::default());
    ledger.set_journal(&opened.journal);
    let started = Consensus::start(&world, 1, opened, ledger, ConsensusOptions::default()).await;
    let error = started.expect_err("it cannot be replayed").to_string();
    assert!(error.contains("it needs a later program"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entry_is_not_applied_before_its_sync() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    node.propose_all(0..3).await;
    disk.hang_syncs(true);
    let mut under_way = node.propose(3).await;
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut under_way).await;
    assert!(waited.is_err(), "applied without a sync");
    assert_eq!(node.ledger.len(), 3);
    disk.hang_syncs(false);
    under_way.await.unwrap();
    assert_eq!(node.ledger.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_completes_proposals_in_flight_and_rejects_further_ones() {
    let disk = SimulatedDisk::new();
    let node = Node::start(disk.clone(), Path::new(DIR)).await;
    let mut under_way = Vec::new();
    for number in 0..100 {
        under_way.push(node.propose(number).await);
    }
    node.consensus.shutdown().await;
    for proposed in under_way {
        proposed.await.unwrap();
    }
    let payload = Payload { head: head(100), bodies: vec![], ticket: 0 };
    let refused = node.leadership.propose(payload).await.unwrap_err();
    assert_eq!(refused, ProposeError::Stopping);
    assert_eq!(node.failure.reason(), None, "to be asked to stop is no failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_under_another_id_is_rejected_with_the_list_of_voters() {
    let disk = SimulatedDisk::new();
    Node::start(disk.clone(), Path::new(DIR)).await.consensus.shutdown().await;
    let opened =
        Journal::open(&World::on(Arc::new(disk)), Path::new(DIR), crate::harness::small()).unwrap();
    let machine = Arc::new(Ledger::default());
    let refused =
        Consensus::start(&World::real(), 2, opened, machine, ConsensusOptions::default()).await;
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("node 2 does not vote") && why.contains("{1}"), "{why}");
}

async fn reported_failure(node: &Node) -> String {
    let reported = tokio::time::timeout(Duration::from_secs(60), node.failure.reported());
    reported.await.expect("the node is told")
}
