//! Moves of partitions between shards while they are written and read.

mod crashes;
mod elections;

use std::sync::atomic::{AtomicBool, Ordering};

use machine::moves::{MOVES_SINCE, MoveStep, Step};
use machine::{Command, Origin};
use shard::error::{AppendError, ExecuteError, FetchError, Unavailable};
use shard::request::{Message, Request};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::Refusal;
use crate::move_requests::MoveState;

/// Time limit of any step on a busy machine.
const SOON: Duration = Duration::from_secs(60);

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = found().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn settled(broker: &Broker) {
    until("moves end", async || (broker.moving_count() == 0).then_some(())).await;
    // The source shard drops the bytes a moment later.
    until("sources have left", async || {
        let leaves = |shard: &Arc<LocalShard>| {
            shard.read(|view| {
                let phases = view.rows.all_leaving().map(|(_, leaving)| leaving.phase);
                phases.into_iter().any(|phase| phase != machine::rows::moves::Phase::Away)
                    || view.rows.all_imports().next().is_some()
            })
        };
        (!broker.shards_with_rows().iter().any(leaves)).then_some(())
    })
    .await;
}

async fn moved(broker: &Broker, partition: PartitionId, to: u32) {
    let moving = broker.move_partitions(partition.topic, vec![partition.index], ShardId(to));
    moving.await.expect("it may move");
    settled(broker).await;
    assert_eq!(broker.shard_of(partition).id(), ShardId(to));
}

fn is_passing(error: &AppendError) -> bool {
    matches!(error, AppendError::Moving(_) | AppendError::Unavailable(Unavailable::NotLeader))
}

/// The batch of an idempotent producer.
fn produced(partition: PartitionId, producer: i64, sequence: i32, value: &str) -> AppendBatch {
    let options = BatchOptions {
        producer_id: producer,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    let mut batch = BatchBuilder::new(options);
    batch.push(1, None, Some(value.as_bytes()), &[]).expect("has room");
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    AppendBatch::new(partition, header, bytes)
}

/// Appends until accepted; returns the duration, and whether the batch was a duplicate.
async fn append_soon(broker: &Broker, make: impl Fn() -> AppendBatch) -> (Duration, bool) {
    let began = Instant::now();
    loop {
        let answer = broker.append(vec![make()]).await.remove(0);
        match answer {
            Ok(appended) => return (began.elapsed(), appended.duplicate),
            Err(error) => assert!(is_passing(&error), "{error}"),
        }
        assert!(began.elapsed() < SOON, "it is not taken");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_moves_while_it_is_written_and_read() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    append(&broker, partition, &numbered("before ", 500)).await;
    let stop = AtomicBool::new(false);
    let producing = async {
        let (mut longest, mut count) = (Duration::ZERO, 0);
        while !stop.load(Ordering::Relaxed) {
            let value = format!("with {count}");
            let (took, duplicate) =
                append_soon(&broker, || produced(partition, 7, count, &value)).await;
            assert!(!duplicate);
            (longest, count) = (longest.max(took), count + 1);
        }
        (longest, count)
    };
    let plain = async {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let value = [format!("plain {count}")];
            append_soon(&broker, || batch(&[partition], &value)).await;
            count += 1;
        }
        count
    };
    let reading = async {
        let (mut epoch, mut end) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let now = broker.leaders(partition.topic).of(partition.index).epoch;
            assert!(now >= epoch, "leader epochs only rise: {now} after {epoch}");
            epoch = now;
            match broker.read_raw_batches(partition, end, 1 << 20).await {
                Ok(read) => {
                    assert!(read.high_watermark >= end, "nothing that was read is gone");
                    end = read.high_watermark;
                }
                Err(error) => {
                    assert_eq!(error, FetchError::Unavailable(Unavailable::NotLeader));
                }
            }
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
    };
    let moving = async {
        for to in [2, 3, 1, 2, 1, 3] {
            moved(&broker, partition, to).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    let ((longest, with), plain, (), ()) = tokio::join!(producing, plain, reading, moving);
    println!("longest pause of appends over 6 moves: {longest:?} ({with} and {plain} appends)");
    let all = values(&broker, partition).await;
    let of = |prefix: &str| {
        let of = all.iter().filter(|value| value.starts_with(prefix));
        of.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("before "), numbered("before ", 500));
    assert_eq!(of("with "), numbered("with ", with as usize));
    assert_eq!(of("plain "), numbered("plain ", plain));
    assert_eq!(all.len(), 500 + with as usize + plain);
    // The target shard recognizes a late retry.
    let last = format!("with {}", with - 1);
    let (_, duplicate) = append_soon(&broker, || produced(partition, 7, with - 1, &last)).await;
    assert!(duplicate);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_move_with_the_partition_and_survive_a_restart() {
    let disk = SimulatedDisk::new();
    let mut broker = open(&disk).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    let mut expected = numbered("a ", 300);
    append(&broker, partition, &expected).await;
    broker.shards().advance_starts(vec![(partition, 120)]).await.expect("there")[0]
        .as_ref()
        .expect("it moves");
    expected.drain(..120);
    let bytes = |broker: &Broker, shard: usize| {
        broker.local_shards()[shard].journal().stream_bytes(partition.stream())
    };
    for to in [2, 1, 3] {
        moved(&broker, partition, to).await;
        let held: Vec<bool> = (1..=3).map(|shard| bytes(&broker, shard) > 0).collect();
        assert_eq!(held, [1, 2, 3].map(|shard| shard == to), "moved to {to}");
        let bounds = broker.bounds(partition).expect("it is there");
        assert_eq!((bounds.log_start, bounds.end), (120, 120 + expected.len() as u64));
        append(&broker, partition, &[format!("in {to}")]).await;
        expected.push(format!("in {to}"));
    }
    for with_snapshot in [false, true] {
        if with_snapshot {
            for shard in broker.local_shards() {
                shard.save_snapshot().await.expect("saved");
            }
        }
        let epoch = broker.leader_epoch(partition);
        broker.shutdown().await;
        broker = open(&disk).await;
        assert!(broker.leader_epoch(partition) >= epoch);
        let read = values_from(&broker, partition, 120).await;
        assert_eq!(read, expected);
    }
    broker.shutdown().await;
}

/// From the hand-over on the other shard owns the partition, also while the catalog cannot be updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handed_over_partition_is_served_once_the_catalog_has_its_place() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    append(&broker, partition, &numbered("a ", 5)).await;
    let epoch = broker.leader_epoch(partition);
    let _unreachable = broker.peers().cut_off(ShardId::CATALOG);
    broker.move_partitions(partition.topic, vec![0], ShardId(2)).await.expect("it may move");
    until("it is handed over", async || {
        let state = broker.moves().await.ok()?.first().map(|status| status.state);
        (state == Some(MoveState::HandedOver)).then_some(())
    })
    .await;
    let answer = broker.append(vec![batch(&[partition], &["b".to_owned()])]).await.remove(0);
    assert_eq!(answer, Err(AppendError::Moving(partition)));
    let read = broker.read_raw_batches(partition, 0, 1 << 20).await.map(|read| read.high_watermark);
    assert_eq!(read, Err(FetchError::Unavailable(Unavailable::NotLeader)));
    // The move cannot be cancelled.
    broker.cancel_moves(partition.topic, vec![0]).await.expect("it moves");
    broker.shutdown().await;
    let broker = open(&disk).await;
    settled(&broker).await;
    assert_eq!(broker.shard_of(partition).id(), ShardId(2));
    assert!(broker.leader_epoch(partition) > epoch);
    append(&broker, partition, &["b".to_owned()]).await;
    assert_eq!(values(&broker, partition).await, ["a 0", "a 1", "a 2", "a 3", "a 4", "b"]);
    broker.shutdown().await;
}

async fn values_from(broker: &Broker, partition: PartitionId, start: u64) -> Vec<String> {
    let (mut all, mut offset) = (Vec::new(), start);
    loop {
        let read = broker.read_raw_batches(partition, offset, 8 << 20).await.expect("there");
        for found in batches_in(&read.records) {
            let (header, bytes) = found.expect("a batch");
            let batch = record::SharedBatch::decode(&bytes).expect("records");
            for (delta, record) in (0..).zip(batch.records()) {
                if header.base_offset + delta >= start {
                    let value = record.expect("a record").value.expect("a value");
                    all.push(String::from_utf8(value.to_vec()).expect("text"));
                }
            }
            offset = header.next_offset();
        }
        if offset >= read.high_watermark {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_record_is_stored_once_across_a_move() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[("dedup.window.ms", "600000")]).await;
    let with_id = |id: &str| {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        let key = base::headers::ID.as_bytes();
        let header = record::Header { key, value: Some(id.as_bytes()) };
        let now = broker.clock().now_ms();
        batch.push(now, None, Some(id.as_bytes()), &[header]).expect("has room");
        let bytes = BytesMut::from(&batch.finish()[..]);
        let header = BatchHeader::parse(&bytes).expect("a batch");
        AppendBatch::new(partition, header, bytes)
    };
    for id in ["a", "b"] {
        append_soon(&broker, || with_id(id)).await;
    }
    for to in [2, 3] {
        moved(&broker, partition, to).await;
        append_soon(&broker, || with_id("a")).await;
        append_soon(&broker, || with_id("b")).await;
    }
    append_soon(&broker, || with_id("c")).await;
    assert_eq!(values(&broker, partition).await, ["a", "b", "c"]);

    // Also after the records are deleted: the ids are not read from them.
    broker.shards().advance_starts(vec![(partition, 3)]).await.expect("deleted");
    for to in [1, 2] {
        moved(&broker, partition, to).await;
        for id in ["a", "b", "c"] {
            append_soon(&broker, || with_id(id)).await;
        }
    }
    assert_eq!(broker.bounds(partition).expect("there").end, 3);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_with_a_dedup_window_moves_before_its_first_record() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[("dedup.window.ms", "600000")]).await;
    moved(&broker, partition, 2).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_reach_a_moving_partition() {
    const RECORDS: usize = 400;
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic_in(&broker, 2, "graves", &[]).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    append(&broker, queue, &numbered("job ", RECORDS)).await;
    let session = broker.lease_session();
    let done = AtomicBool::new(false);
    let rejecting = async {
        let mut rejected = 0;
        while rejected < RECORDS {
            let taken = take(&session, group, 3).await;
            rejected += taken.len();
            session.settle(settles(&taken, Settlement::Reject)).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let moving = async {
        let mut moves = 0;
        while !done.load(Ordering::Relaxed) {
            for to in [3, 1, 2] {
                moved(&broker, graves, to).await;
                moves += 1;
            }
        }
        moves
    };
    let ((), moves) = tokio::join!(rejecting, moving);
    assert!(moves >= 3);
    wait_for_quiet(&broker).await;
    let mut found = values(&broker, graves).await;
    found.sort_unstable();
    let mut expected = numbered("job ", RECORDS);
    expected.sort_unstable();
    assert_eq!(found, expected, "each once, over {moves} moves");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn move_to_a_shard_without_a_leader_can_be_cancelled() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    append(&broker, partition, &numbered("a ", 10)).await;
    let reach = broker.peers().cut_off(ShardId(2));
    let (topic, partitions) = (partition.topic, vec![partition.index]);
    broker.move_partitions(topic, partitions.clone(), ShardId(2)).await.expect("it may move");
    let again = broker.move_partitions(topic, partitions.clone(), ShardId(3)).await;
    let already = Refusal::MovesAlready { partition, to: ShardId(2) };
    assert_eq!(again, Err(ExecuteError::Refused(already)));
    let moves = broker.moves().await.expect("known");
    assert_eq!(moves[0].state, MoveState::Waits);
    append(&broker, partition, &["b".to_owned()]).await;
    broker.cancel_moves(topic, partitions).await.expect("it moves");
    settled(&broker).await;
    broker.peers().restore(ShardId(2), reach);
    assert_eq!(broker.shard_of(partition).id(), ShardId(1));
    assert_eq!(values(&broker, partition).await.len(), 11);
    moved(&broker, partition, 2).await;
    assert_eq!(values(&broker, partition).await.len(), 11);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_with_a_moved_partition_can_grow_and_be_deleted() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    let topic = partition.topic;
    append(&broker, partition, &numbered("a ", 10)).await;
    moved(&broker, partition, 2).await;
    broker.create_partitions(topic, 6).await.expect("it grows");
    let all: Vec<PartitionId> = (0..6).map(|index| PartitionId::new(topic, index)).collect();
    let homes: Vec<u32> = all.iter().map(|it| broker.shard_of(*it).id().0).collect();
    assert_eq!(homes, [2, 2, 3, 1, 2, 3]);
    for partition in &all {
        append(&broker, *partition, &[format!("in {}", partition.index)]).await;
        assert!(
            values(&broker, *partition).await.len() == if partition.index == 0 { 11 } else { 1 }
        );
    }
    broker.move_partitions(topic, vec![1, 3], ShardId(3)).await.expect("they may move");
    broker.delete_topic(topic).await.expect("it is there");
    settled(&broker).await;
    let streams = |shard: &Arc<LocalShard>| {
        let bytes = all.iter().map(|it| shard.journal().stream_bytes(it.stream())).sum::<u64>();
        let rows = shard.shard.rows();
        (bytes, rows.topics().count(), rows.moving_topics().count())
    };
    until("nothing is left of it", async || {
        let left = broker.shards_with_rows().iter().map(streams);
        left.into_iter().all(|left| left == (0, 0, 0)).then_some(())
    })
    .await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_group_and_move_of_a_topic_exclude_each_other() {
    let broker = open(&SimulatedDisk::new()).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    group(&broker, queue.topic, &[]).await;
    let refused = broker.move_partitions(queue.topic, vec![0], ShardId(2)).await;
    assert!(matches!(refused, Err(ExecuteError::Refused(Refusal::HasLeaseGroups { .. }))));
    let partition = topic_in(&broker, 1, "t", &[]).await;
    moved(&broker, partition, 2).await;
    let make = || {
        let config = std::collections::BTreeMap::new();
        broker.create_lease_group(partition.topic, "main".into(), Vec::new(), config)
    };
    let refused = make().await.expect_err("a partition is elsewhere");
    assert!(refused.to_string().contains("--partitions 0 --to-shard 1"), "{refused}");
    moved(&broker, partition, 1).await;
    append(&broker, partition, &numbered("job ", 3)).await;
    let group = make().await.expect("all is where it was made");
    let taken = take(&broker.lease_session(), group, 3).await;
    assert_eq!(taken.len(), 3);
    broker.shutdown().await;
}

#[tokio::test]
async fn move_below_the_feature_level_names_the_upgrade_command() {
    let levels = base::Levels { min: base::Level(1), max: base::Level(1) };
    let options = BrokerOptions { levels, ..options() };
    let world = World::on(Arc::new(SimulatedDisk::new()));
    let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
    let topic = topic(&broker, "t", 1, &[]).await;
    let refused = broker.move_partitions(topic, vec![0], ShardId(2)).await;
    let (needed, at) = (MOVES_SINCE, base::Level(1));
    assert_eq!(refused, Err(ExecuteError::Refused(Refusal::LevelTooLow { needed, at })));
    assert!(refused.unwrap_err().to_string().contains("cluster upgrade --finalize"));
    broker.shutdown().await;
}

#[tokio::test]
async fn message_is_rejected_until_its_partition_is_served_here() {
    let broker = open(&SimulatedDisk::new()).await;
    let partition = topic_in(&broker, 1, "t", &[]).await;
    let shards = broker.shards_with_rows();
    let here = shards.iter().find(|shard| shard.id() == ShardId(2)).expect("there are three");
    // Newer than all moves in the catalog, so that the import is not discarded.
    let step = |what| Command::Move(MoveStep { partition, id: 1_000_000, what });
    here.execute(step(Step::Import { from: 0, to: 0 })).await.expect("it may come");
    let message = || {
        let (reply, answer) = oneshot::channel();
        let origin = Origin { shard: ShardId(1), number: 0, next: 1 };
        let batches = vec![batch(&[partition], &numbered("letter ", 1))];
        let message = Message { origin, batches, commands: Vec::new() };
        here.request(Request::Receive { message, reply }).expect("it goes on");
        answer
    };
    let refused = message().await.expect("it is answered").map(drop);
    assert_eq!(refused, Err(AppendError::UnknownPartition(partition).into()));
    // A message is dropped only if its partition is neither here nor about to be.
    here.execute(step(Step::Discard)).await.expect("it is given up");
    message().await.expect("it is answered").expect("it is passed over");
    broker.shutdown().await;
}
