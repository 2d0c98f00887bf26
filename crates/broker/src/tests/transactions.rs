//! Transactions of Kafka's producers over the shards of a node.

use base::Offset;
use machine::{CommitOffset, ProducerKey, Refusal, TransactionRefusal};
use record::marker::Marker;
use shard::error::{AppendError, ExecuteError};

use super::*;
use crate::TransactionState;

const ID: &str = "orders";
const TIMEOUT_MS: u32 = 60_000;

fn refusal<T: std::fmt::Debug>(result: Result<T, ExecuteError>) -> TransactionRefusal {
    match result {
        Err(ExecuteError::Refused(Refusal::Transaction(refusal))) => refusal,
        other => panic!("{other:?}"),
    }
}

/// The producer's next batch in a partition, transactional.
fn batch_of(
    producer: ProducerKey,
    sequence: i32,
    partition: PartitionId,
    value: &str,
) -> AppendBatch {
    let ProducerKey { id: producer_id, epoch: producer_epoch } = producer;
    let options = BatchOptions {
        producer_id,
        producer_epoch,
        base_sequence: sequence,
        transactional: true,
        ..BatchOptions::default()
    };
    let mut batch = BatchBuilder::new(options);
    batch.push(1, None, Some(value.as_bytes()), &[]).expect("has room");
    let bytes = BytesMut::from(&batch.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    AppendBatch::new(partition, header, bytes)
}

async fn produce(
    broker: &Broker,
    producer: ProducerKey,
    sequence: i32,
    partition: PartitionId,
) -> Result<Offset, AppendError> {
    let batch = batch_of(producer, sequence, partition, "value");
    let answer = broker.append(vec![batch]).await.remove(0);
    answer.map(|appended| appended.base_offset)
}

async fn produce_in(broker: &Broker, producer: ProducerKey, sequence: i32, partition: PartitionId) {
    broker.open_transaction(ID, producer, partition, false).await.expect("it is open at home");
    produce(broker, producer, sequence, partition).await.expect("it is open here");
}

/// Markers of a partition: producer's epoch and whether it commits, by offset.
async fn markers(broker: &Broker, partition: PartitionId) -> Vec<(Offset, i16, bool)> {
    let read = broker.read_raw_batches(partition, 0, 8 << 20).await.expect("there");
    let marker = |found: Result<(BatchHeader, bytes::Bytes), _>| {
        let (header, bytes) = found.ok()?;
        let marker = Marker::read(&header, &bytes)?;
        Some((header.base_offset, marker.producer_epoch, marker.commit))
    };
    batches_in(&read.records).filter_map(marker).collect()
}

fn stable_end(broker: &Broker, partition: PartitionId) -> Offset {
    let rows = broker.shard_of(partition).shard.rows();
    let next = rows.partition(partition).expect("it is there").next_offset();
    rows.transactions().stable_end(partition, next)
}

async fn partitions(broker: &Broker) -> Vec<PartitionId> {
    let topic = topic(broker, "log", 6, &[]).await;
    (0..6).map(|index| PartitionId::new(topic, index)).collect()
}

#[tokio::test]
async fn transaction_over_all_shards_ends_with_a_marker_in_each_partition() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let partitions = partitions(&broker).await;
    let first = broker.initialize_producer(ID, None, TIMEOUT_MS).await.expect("it is new");
    for (round, commit) in [true, false, true].into_iter().enumerate() {
        let known = broker.transaction(ID).expect("it leads").expect("it is known");
        let producer = known.producer;
        assert_eq!(producer, ProducerKey { epoch: round as i16, ..first });
        for &partition in &partitions {
            produce_in(&broker, producer, 0, partition).await;
            assert_eq!(stable_end(&broker, partition), 2 * round as u64);
        }
        let known = broker.transaction(ID).expect("it leads").expect("it is known");
        assert_eq!((known.state, &known.partitions), (TransactionState::Ongoing, &partitions));
        let next = broker.end_transaction(ID, producer, commit, true).await.expect("it is open");
        // A repetition gets the same reply, and another result is refused.
        assert_eq!(broker.end_transaction(ID, producer, commit, true).await, Ok(next));
        let other = broker.end_transaction(ID, producer, !commit, true).await;
        assert!(matches!(refusal(other), TransactionRefusal::Ended { .. }));
        for &partition in &partitions {
            assert_eq!(stable_end(&broker, partition), 2 * round as u64 + 2, "{partition}");
        }
        let fenced = produce(&broker, producer, 1, partitions[4]).await;
        let current = round as i16 + 1;
        let fenced_by = TransactionRefusal::Fenced { current };
        assert_eq!(fenced, Err(AppendError::Transaction(fenced_by)));
    }
    let expected = [(1, 1, true), (3, 2, false), (5, 3, true)];
    for &partition in &partitions {
        assert_eq!(markers(&broker, partition).await, expected);
    }
    broker.shutdown().await;
    let broker = open(&disk).await;
    for &partition in &partitions {
        let rows = broker.shard_of(partition).shard.rows();
        let known = rows.transactions().partition(partition).expect("it has an aborted one");
        assert!(known.is_aborted(first.id, 2) && !known.is_aborted(first.id, 4));
    }
}

#[tokio::test]
async fn open_transaction_survives_a_crash_and_its_end_reaches_all_shards() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let partitions = partitions(&broker).await;
    let producer = broker.initialize_producer(ID, None, TIMEOUT_MS).await.expect("it is new");
    for &partition in &partitions {
        produce_in(&broker, producer, 0, partition).await;
    }
    drop(broker);
    let broker = open(&disk.power_loss(7)).await;
    broker.end_transaction(ID, producer, true, true).await.expect("it is open");
    for &partition in &partitions {
        assert_eq!(markers(&broker, partition).await, [(1, 1, true)]);
        assert_eq!(stable_end(&broker, partition), 2);
    }
}

#[tokio::test]
async fn next_initialization_aborts_the_open_transaction_and_fences_its_producer() {
    let broker = open(&SimulatedDisk::new()).await;
    let partitions = partitions(&broker).await;
    let old = broker.initialize_producer(ID, None, TIMEOUT_MS).await.expect("it is new");
    for &partition in &partitions[..3] {
        produce_in(&broker, old, 0, partition).await;
    }
    let new = broker.initialize_producer(ID, None, TIMEOUT_MS).await.expect("it aborts");
    assert_eq!(new, ProducerKey { epoch: 2, ..old });
    for &partition in &partitions[..3] {
        assert_eq!(markers(&broker, partition).await, [(1, 1, false)]);
    }
    let fenced = TransactionRefusal::Fenced { current: 2 };
    assert_eq!(refusal(broker.end_transaction(ID, old, true, true).await), fenced);
    assert_eq!(refusal(broker.open_transaction(ID, old, partitions[5], false).await), fenced);
    produce_in(&broker, new, 0, partitions[0]).await;
}

#[tokio::test]
async fn offsets_are_committed_with_the_transaction_or_not_at_all() {
    let broker = open(&SimulatedDisk::new()).await;
    let partitions = partitions(&broker).await;
    let mut producer = broker.initialize_producer(ID, None, TIMEOUT_MS).await.expect("it is new");
    for (offset, commit) in [(5, true), (9, false)] {
        for group in ["a", "b", "c", "d"] {
            broker.add_offsets(ID, producer, group).await.expect("the producer is current");
            let offsets = vec![CommitOffset {
                partition: partitions[0],
                offset,
                leader_epoch: -1,
                metadata: String::new(),
                expire_ms: None,
            }];
            let refused = broker.add_pending_offsets(ID, producer, group, offsets, true).await;
            assert_eq!(refused, Ok(vec![]));
        }
        producer = broker.end_transaction(ID, producer, commit, true).await.expect("it is open");
        for group in ["a", "b", "c", "d"] {
            let known = broker.shards().offsets(group, &partitions[..1]).await.expect("answered");
            assert_eq!(known[0].as_ref().map(|it| it.offset), Some(5), "{group}");
        }
    }
}

#[tokio::test]
async fn transaction_past_its_timeout_is_aborted() {
    let broker = open(&SimulatedDisk::new()).await;
    let partitions = partitions(&broker).await;
    let producer = broker.initialize_producer(ID, None, 50).await.expect("it is new");
    produce_in(&broker, producer, 0, partitions[1]).await;
    wait_for("the abort", async || stable_end(&broker, partitions[1]) == 2).await;
    assert_eq!(markers(&broker, partitions[1]).await, [(1, 1, false)]);
    let late = refusal(broker.end_transaction(ID, producer, true, true).await);
    assert_eq!(late, TransactionRefusal::Fenced { current: 1 });
}

#[tokio::test]
async fn registered_partitions_are_those_that_a_client_of_the_first_version_may_write() {
    let broker = open(&SimulatedDisk::new()).await;
    let partitions = partitions(&broker).await;
    let producer = broker.initialize_producer(ID, None, TIMEOUT_MS).await.expect("it is new");
    let open = async |partition| broker.open_transaction(ID, producer, partition, true).await;
    assert_eq!(refusal(open(partitions[1]).await), TransactionRefusal::InvalidState);
    broker.add_partitions(ID, producer, partitions[..2].to_vec()).await.expect("it begins");
    assert_eq!(broker.is_registered(ID, producer, partitions[1]), Ok(true));
    assert_eq!(broker.is_registered(ID, producer, partitions[2]), Ok(false));
    for sequence in 0..2 {
        open(partitions[1]).await.expect("it is registered");
        produce(&broker, producer, sequence, partitions[1]).await.expect("it is open");
    }
    assert_eq!(broker.end_transaction(ID, producer, true, false).await, Ok(producer));
    assert_eq!(stable_end(&broker, partitions[1]), 3);
    // Late, with the same epoch.
    let late = produce(&broker, producer, 2, partitions[1]).await;
    assert_eq!(late, Err(AppendError::Transaction(TransactionRefusal::NotOpen)));
    assert_eq!(refusal(open(partitions[1]).await), TransactionRefusal::InvalidState);
}
